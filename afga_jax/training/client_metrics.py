"""How well one model serves each client: loss and accuracy on the client's own samples.

A mean over clients hides who is left behind; quantiles, the worst tenth and a histogram
do not.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import checks
from afga_jax.training.evaluate import HasModel, check_state, mean_metrics
from afga_jax.training.seeds import each_seed
from afga_jax.typing import Array, ClientData, PyTree, Task

#: Percentages of the clients at which a metric is reported.
LEVELS = (0, 10, 25, 50, 75, 90, 100)

# Metrics that are summarised, with the sign that makes the worst client's the smallest.
_WORST_IS_SMALLEST = {"accuracy": 1, "loss": -1}


@dataclasses.dataclass(frozen=True)
class ClientMetrics:
    """The metrics of every client.

    With several seeds every array has an axis of seeds before that of clients, and what
    the methods return has one too.

    Attributes:
      values: The mean of each metric over a client's samples, `[clients]` by name:
        `loss`, and the task's own metrics such as `accuracy`.
      sizes: Number of samples of each client, `[clients]`.

    Example:
      >>> accuracy = np.array([0.5, 1.0, 0.9, 0.8, 0.7])
      >>> clients = ClientMetrics({"accuracy": accuracy}, sizes=np.full(5, 10))
      >>> float(clients.quantiles("accuracy")[50])
      0.8
      >>> float(clients.worst_tenth("accuracy"))
      0.5
      >>> counts, edges = clients.histogram("accuracy", bins=5, bounds=(0, 1))
      >>> counts.tolist()
      [0, 0, 1, 1, 3]
    """

    values: dict[str, np.ndarray]
    sizes: np.ndarray

    def quantiles(self, name: str) -> dict[int, np.ndarray]:
        """A metric's quantiles over the clients, by their percentages `LEVELS`."""
        levels = np.quantile(self._of(name), np.array(LEVELS) / 100, axis=-1)
        return dict(zip(LEVELS, levels, strict=True))

    def worst_tenth(self, name: str) -> np.ndarray:
        """The mean over the tenth of the clients, at least one, that are served worst.

        Args:
          name: `accuracy`, of which the smallest are the worst, or `loss`.
        """
        checks.choice("name", name, _WORST_IS_SMALLEST)
        sign = _WORST_IS_SMALLEST[name]
        values = np.sort(sign * self._of(name), axis=-1)
        return sign * values[..., : max(1, values.shape[-1] // 10)].mean(-1)

    def histogram(
        self, name: str, bins: int = 10, bounds: tuple[float, float] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """How many clients have a metric in each of some intervals of equal width.

        Args:
          name: Name of the metric.
          bins: Number of intervals.
          bounds: Where the first interval starts and the last one ends; clients
            outside are not counted. None: at the smallest and at the largest value.

        Returns:
          The counts `[bins]`, and the ends of the intervals `[bins + 1]`.
        """
        checks.integer("bins", bins)
        values = self._of(name)
        edges = np.histogram_bin_edges(values, bins, range=bounds)
        counts = [np.histogram(row, edges)[0] for row in np.atleast_2d(values)]
        return np.reshape(counts, (*values.shape[:-1], bins)), edges

    def summary(self) -> dict[str, np.ndarray]:
        """Mean, worst tenth and quantiles of accuracy and loss, by names for a table.

        The names are `client_accuracy`, `worst_tenth_accuracy` and
        `client_accuracy_q0` to `client_accuracy_q100`; for the loss likewise.
        """
        numbers: dict[str, np.ndarray] = {}
        for name in _WORST_IS_SMALLEST:
            if name in self.values:
                numbers[f"client_{name}"] = self.values[name].mean(-1)
                numbers[f"worst_tenth_{name}"] = self.worst_tenth(name)
                for level, value in self.quantiles(name).items():
                    numbers[f"client_{name}_q{level}"] = value
        return numbers

    def _of(self, name: str) -> np.ndarray:
        checks.choice("name", name, self.values)
        return self.values[name]


def evaluate_clients(task: Task, state: HasModel, data: ClientData) -> ClientMetrics:
    """The metrics of every client with the trained model; compiles once for a task.

    Args:
      task: The task, whose `loss` runs with `train=False`.
      state: What has the model: a state, for one seed or several, or what `load`
        returns.
      data: The clients' data.
    """
    check_state(state)
    model, seeds = (state.params, state.stats), np.ndim(state.round) > 0
    return on_host(_compiled(task, seeds, model, data), data)


def each_client(
    task: Task, params: PyTree, stats: PyTree, data: ClientData
) -> dict[str, Array]:
    """The mean loss and metrics of one model over each client's samples; traceable.

    Args:
      task: The task, whose `loss` runs with `train=False`.
      params: The model.
      stats: BatchNorm statistics of the model.
      data: The clients' data.

    Returns:
      Arrays `[clients]` by the names of the metrics.
    """
    return jax.lax.map(
        lambda client: mean_metrics(task, params, stats, data.full(client)),
        jnp.arange(len(data.sizes)),
    )


def on_host(values: Mapping[str, Any], data: ClientData) -> ClientMetrics:
    """What `each_client` returned, as NumPy arrays, beside the clients' sizes."""
    sizes = np.asarray(data.sizes[np.arange(len(data.sizes))])
    return ClientMetrics({k: np.asarray(v) for k, v in values.items()}, sizes)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _compiled(task, seeds, model, data):
    def per_seed(model, data):
        return each_client(task, *model, data)

    return each_seed(per_seed, model, data, several=seeds)
