"""From an algorithm and data to a trained model, its curves and its costs."""

import dataclasses
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from afga_jax import checks, keys
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.recipe import FederatedState, RoundInfo
from afga_jax.rounds.execution import Execution
from afga_jax.training import ledger
from afga_jax.training.client_metrics import ClientMetrics, evaluate_clients
from afga_jax.training.evaluate import as_batch, evaluate
from afga_jax.training.history import History, history, spent
from afga_jax.training.progress import Progress
from afga_jax.training.trainer import Trainer, check_clients
from afga_jax.typing import Array, Batch, ClientData, PyTree, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Evaluations in a run, unless asked otherwise: enough for a curve.
_EVALUATIONS = 20


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """A trained model and how it came about.

    `state, info = fit(...)` takes it apart into the first two.

    Attributes:
      state: The state after the last round; `state.params` is the model.
      info: The rounds' diagnostics, with a leading axis of rounds; None: of a run whose
        folder keeps them.
      history: What was measured, as plain arrays by round.
      clients: Every client's metrics after the last round; None: not asked for.
      algorithm: The algorithm that was trained.
      data: The clients' data.
      test: The test samples; None: there were none.
    """

    state: FederatedState
    info: RoundInfo | None
    history: History
    clients: ClientMetrics | None
    algorithm: FederatedAlgorithm
    data: ClientData
    test: Batch | None

    @property
    def task(self) -> Task:
        """What was minimised."""
        return self.algorithm.task

    def evaluate(self, test: Batch | None = None) -> dict[str, Array]:
        """The mean loss and metrics of the trained model.

        Args:
          test: Samples to evaluate on; None: those that `fit` was given.
        """
        batch = as_batch(self.test if test is None else test)
        return evaluate(self.task, self.state, batch)

    def evaluate_clients(self, data: ClientData | None = None) -> ClientMetrics:
        """The loss and metrics of the trained model for every client.

        Args:
          data: The clients' samples; None: those that they were trained on.
        """
        return evaluate_clients(
            self.task, self.state, self.data if data is None else data
        )

    def predict(self, inputs: PyTree) -> PyTree:
        """The trained model's outputs, such as the logits of classes.

        Args:
          inputs: Samples as the clients have them, `[samples, ...]`.

        Returns:
          Outputs `[samples, ...]`; `[seeds, samples, ...]` of several seeds.
        """
        predict = self.task.predict
        if predict is None:
            raise ValueError(
                "the task has no predict, so there is no model to ask: give it one by "
                "task._replace(predict=lambda params, stats, inputs: outputs)."
            )
        params, stats = self.state.params, self.state.stats
        if self.state.round.ndim:
            predict = jax.vmap(predict, (0, 0, None))
        return predict(params, stats, inputs)

    def plot(self) -> "Figure":
        """Draws what was measured: accuracy, losses, delta, costs, clients.

        Returns:
          The figure. A notebook shows it; elsewhere its `savefig` writes it, and
          `matplotlib.pyplot.show` shows it.
        """
        from afga_jax.training import picture

        return picture.curves(self.history, self.clients, title=self._outcome())

    def __iter__(self) -> Iterator[Any]:
        return iter((self.state, self.info))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._outcome()})"

    def _outcome(self) -> str:
        """What came out, in a line."""
        clients = self.algorithm.options.num_clients
        _, *seeds = self.history.train_loss.shape
        parts = [f"{clients} clients", f"{self.history.round[-1]} rounds"]
        parts += [f"{number} seeds" for number in seeds]
        parts.append(f"train loss {self.history.train_loss[-1].mean():.4g}")
        if self.test is not None:
            parts.append(f"test loss {self.history.test_loss[-1].mean():.4g}")
        if "accuracy" in self.history.test_metrics:
            parts.append(f"accuracy {self.history.test_accuracy[-1].mean():.2%}")
        return ", ".join(parts)


def fit(
    algorithm: FederatedAlgorithm,
    data: ClientData,
    *,
    key: Array,
    rounds: int,
    test: Batch | None = None,
    eval_every: int | None = None,
    per_client: bool = False,
    progress: bool = True,
    links: ledger.Links | None = None,
    execution: Execution = Execution(),
) -> Result:
    """Trains from scratch; the shortest way to a result.

    Args:
      algorithm: From `build`.
      data: The clients' data; no client may be empty.
      key: The run's key, from which everything random follows; or several seeds'
        keys, whose runs are trained in one program.
      rounds: Number of rounds R.
      test: Samples that nobody trains on, a `Batch` or a pair of inputs and targets;
        None: nothing is evaluated.
      eval_every: Number of rounds from one evaluation to the next; the last round is
        always evaluated. None: about twenty evaluations.
      per_client: Whether an evaluation also measures the model on every client's own
        samples, which takes a pass over all data.
      progress: Whether a bar shows how training goes, in notebooks and terminals;
        elsewhere nothing is written.
      links: What a message costs in the simulated hours; None: as in the AFGA paper.
      execution: How rounds are computed.

    Returns:
      The trained model, with its history.

    Example:
      >>> import afga_jax
      >>> problem = afga_jax.data.quadratic(num_clients=10, dimension=5)
      >>> afga = afga_jax.build("afga", problem.task, num_clients=10, active=5)
      >>> result = fit(afga, problem.data, key=jax.random.key(0), rounds=3)
      >>> result.history.gradients.tolist(), int(result.state.round)
      ([120, 120, 120], 3)
    """
    checks.integer("rounds", rounds)
    key, batch = keys.typed(key), None if test is None else as_batch(test)
    check_clients(data, algorithm)
    measures = batch is not None or per_client
    due = _evaluated_rounds(rounds, eval_every, measures)
    trainer = Trainer(algorithm, execution, capacity=rounds, donate=True)
    state, done, infos = trainer.init(key), 0, []
    evaluations, summaries, clients = {}, {}, None
    with Progress(rounds, shown=progress) as bar:
        for stop in due:
            while done < stop:
                number = bar.next_rounds(stop - done)
                state, info = trainer.run(key, state, data, number)
                infos.append(info)
                done += number
                bar.advanced(number, info.loss[-1])
            if batch is not None:
                metrics = jax.device_get(trainer.evaluate(state, batch))
                evaluations[done] = metrics
                bar.evaluated(metrics)
            if per_client:
                clients = trainer.evaluate_clients(state, data)
                summaries[done] = clients.summary()
    info = jax.tree.map(lambda *x: np.concatenate(x), *infos)
    _warn_if_not_finite(info.loss)
    # Shapes of a state without an axis of seeds.
    shapes = jax.eval_shape(algorithm.init, jax.random.key(0))
    prices = ledger.costs(algorithm, shapes, links)
    costs = spent(prices, algorithm, key, info)
    measured = history(info, evaluations, summaries, costs)
    return Result(state, info, measured, clients, algorithm, data, batch)


def _evaluated_rounds(rounds: int, eval_every: int | None, measures: bool) -> list[int]:
    """Numbers of the rounds after which training stops for an evaluation."""
    if eval_every is not None:
        checks.integer("eval_every", eval_every)
        if not measures:
            raise ValueError(
                f"eval_every = {eval_every}, but there is nothing to evaluate: pass "
                "test=afga_jax.Batch(inputs, targets), or per_client=True."
            )
    if not measures:
        return [rounds]
    every = eval_every or max(1, rounds // _EVALUATIONS)
    return sorted({*range(every, rounds, every), rounds})


def _warn_if_not_finite(losses: np.ndarray) -> None:
    bad = ~np.isfinite(losses.reshape(len(losses), -1)).all(1)
    if bad.any():
        warnings.warn(
            f"the training loss is not finite from round {int(bad.argmax()) + 1} on: "
            "lower local_lr or server_lr, or raise eps.",
            RuntimeWarning,
            stacklevel=3,
        )
