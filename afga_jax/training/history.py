"""What was measured while training, as plain arrays by round."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.training.ledger import Costs
from afga_jax.typing import Array

if TYPE_CHECKING:
    import pandas

_MESSAGES = ("server_uploads", "server_downloads", "broadcasts", "gossip_messages")


@dataclasses.dataclass(frozen=True)
class History:
    """One number for each round, in NumPy arrays `[rounds]`.

    With several seeds every array but `round` is `[rounds, seeds]`. Costs are those of
    the round alone; `np.cumsum` gives what was spent up to it.

    Attributes:
      round: Number of each round, counted from 1.
      train_loss: Mean loss over the gradients of the round, before each local step.
      test_loss: Mean loss over the test samples after the round; NaN where the round
        was not evaluated.
      train_metrics: The task's metrics by name, measured as the training loss is.
      test_metrics: The task's metrics by name, measured as the test loss is.
      delta_norm: Norm of the aggregated delta ‖Δ‖₂; without a server, that of the mean
        model's change.
      spread: Weighted mean of ‖Δᵢ − Δ‖² over the uploads.
      gradients: Number of gradients that a deployment would compute.
      needed: Number of them that reach the server; only these are computed here.
      uploads: Number of deltas that clients upload.
      messages: Number of messages, between clients and with the server.
      bytes: Number of bytes in these messages.
      hours: Simulated time that these messages take (`afga_jax.ledger`).
      clients: Mean, worst tenth and quantiles of the clients' metrics by name, as
        `ClientMetrics.summary` calls them; NaN where they were not measured.
    """

    round: np.ndarray
    train_loss: np.ndarray
    test_loss: np.ndarray
    train_metrics: dict[str, np.ndarray]
    test_metrics: dict[str, np.ndarray]
    delta_norm: np.ndarray
    spread: np.ndarray
    gradients: np.ndarray
    needed: np.ndarray
    uploads: np.ndarray
    messages: np.ndarray
    bytes: np.ndarray
    hours: np.ndarray
    clients: dict[str, np.ndarray]

    @property
    def test_accuracy(self) -> np.ndarray:
        """Accuracy on the test samples; NaN where the round was not evaluated."""
        if "accuracy" not in self.test_metrics:
            have = ", ".join(["test_loss", *self.test_metrics])
            raise ValueError(
                "there is no test accuracy: the task has none, or there was no test "
                f"data (fit(..., test=batch)). There is: {have}."
            )
        return self.test_metrics["accuracy"]

    @property
    def evaluated(self) -> np.ndarray:
        """Whether each round was evaluated on the test samples, `[rounds]`."""
        return np.any(_by_seed(~np.isnan(self.test_loss)), axis=1)

    def columns(self) -> dict[str, np.ndarray]:
        """All arrays by the names that the files of a run have for them, too."""
        names = ("delta_norm", "spread", "gradients", "needed", "uploads", "messages")
        return {
            "round": self.round,
            "train_loss": self.train_loss,
            **{f"train_{name}": x for name, x in self.train_metrics.items()},
            "test_loss": self.test_loss,
            **{f"test_{name}": x for name, x in self.test_metrics.items()},
            **{name: getattr(self, name) for name in (*names, "bytes", "hours")},
            **self.clients,
        }

    def to_pandas(self) -> "pandas.DataFrame":
        """A table with a line for each round, or for each round and seed.

        Raises:
          ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "to_pandas needs pandas, which is not installed: pip install pandas, "
                "or take the arrays of history.columns()."
            ) from error
        columns, seeds = self.columns(), self.train_loss.shape[1:]
        if seeds:
            rounds = len(self.round)
            columns["round"] = np.repeat(self.round, *seeds)
            seed = np.tile(np.arange(*seeds), rounds)
            columns = {"round": columns.pop("round"), "seed": seed, **columns}
        return pandas.DataFrame({name: x.reshape(-1) for name, x in columns.items()})


def history(
    info: Any,
    evaluations: Mapping[int, Mapping[str, Any]],
    clients: Mapping[int, Mapping[str, Any]],
    costs: Mapping[str, np.ndarray],
) -> History:
    """Puts together what was measured.

    Args:
      info: The rounds' diagnostics (`RoundInfo`), with a leading axis of rounds.
      evaluations: What `evaluate` returned, by the number of the round.
      clients: Summaries of the clients' metrics, by the number of the round.
      costs: What `spent` returned.
    """
    info = jax.tree.map(np.asarray, info)
    shape = info.loss.shape
    test = _filled(evaluations, shape)
    counted = ("delta_norm", "spread", "gradients", "needed", "uploads")
    return History(
        round=np.arange(1, shape[0] + 1),
        train_loss=info.loss,
        test_loss=test.pop("loss", np.full(shape, np.nan)),
        train_metrics=dict(info.metrics),
        test_metrics=test,
        **{name: getattr(info, name) for name in counted},
        messages=sum((costs[name] for name in _MESSAGES), np.zeros(shape, int)),
        bytes=costs["bytes"],
        hours=costs["hours"],
        clients=_filled(clients, shape),
    )


def spent(
    costs: Costs, algorithm: FederatedAlgorithm, key: Array, info: Any
) -> dict[str, np.ndarray]:
    """What the rounds of a run from its first on have sent, in arrays by name.

    Args:
      costs: The algorithm's price list.
      algorithm: It draws the plans, where who mixes is drawn.
      key: The run's key, or several seeds'.
      info: The rounds' diagnostics, with a leading axis of rounds.
    """
    read = {name: getattr(info, name) for name in ("uploads", "faults", "receivers")}
    read = jax.tree.map(lambda x: _by_seed(np.asarray(x)), read)
    seeds = key.reshape(-1)
    plan: Callable = jax.jit(algorithm.plan)
    rows = []
    for number, seed in np.ndindex(read["uploads"].shape):
        drawn = plan(seeds[seed], number) if costs.needs_plan else None
        own = jax.tree.map(lambda x: x[number, seed], read)  # noqa: B023
        alone = info._replace(**own)
        rows.append(costs.per_round(alone, number, drawn))
    return {
        name: np.array([row[name] for row in rows]).reshape(info.uploads.shape)
        for name in rows[0]
    }


def _by_seed(values: np.ndarray) -> np.ndarray:
    """`[rounds, seeds]`, whether there is one seed or several."""
    return values.reshape(len(values), -1)


def _filled(
    rows: Mapping[int, Mapping[str, Any]], shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Arrays over all rounds, NaN where a round has no row."""
    names = {name: None for row in rows.values() for name in row}
    arrays = {name: np.full(shape, np.nan) for name in names}
    for number, row in rows.items():
        for name, value in row.items():
            arrays[name][number - 1] = value
    return arrays
