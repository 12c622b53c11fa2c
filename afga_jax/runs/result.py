"""What `afga_jax.run` and `afga_jax.sweep` return."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from afga_jax.recipe import FederatedState
from afga_jax.runs import record
from afga_jax.runs.experiment import Experiment
from afga_jax.runs.record import Row, Run
from afga_jax.training.client_metrics import ClientMetrics
from afga_jax.training.fit import Result
from afga_jax.training.history import History


@dataclasses.dataclass(frozen=True, repr=False)
class RunResult(Result):
    """A trained model, and the folder that keeps how it came about.

    As what `fit` returns, but `history` has only the evaluated rounds, `info` is None,
    and with several seeds the state and every array have an axis of seeds. Gradients,
    uploads, bytes and hours of the history are those since the evaluated round before,
    so that `np.cumsum` gives what was spent up to it; `needed` is of the round alone,
    and all messages together are not recorded.

    Attributes:
      folder: The run's folder, for `load`, `experiments.compare` and TensorBoard.
      seeds: The seeds that were trained.
      summary: The run's final values, as in `summary.json`.
    """

    folder: Path
    seeds: tuple[int, ...]
    summary: dict[str, Any]


@dataclasses.dataclass(frozen=True, repr=False)
class SweepResult:
    """The runs of a grid.

    Attributes:
      cells: The chosen values of each run, by the names of the grid.
      runs: The record of each run, in the same order.
      rows: The table of `results.csv`, a line for each run in the same order.
      order: Positions of the runs that did not diverge, best first.
      ranking: The best runs as a text.
      folder: The folder of the runs and of `results.csv`.
    """

    cells: Sequence[dict[str, Any]]
    runs: Sequence[Run]
    rows: Sequence[dict[str, Any]]
    order: Sequence[int]
    ranking: str
    folder: Path

    @property
    def best(self) -> dict[str, Any]:
        """The chosen values of the best run: by final accuracy, else by loss."""
        return self.cells[self._first()]

    @property
    def best_folder(self) -> Path:
        """The best run's folder."""
        return Path(self.rows[self._first()]["folder"])

    def __repr__(self) -> str:
        return self.ranking

    def _first(self) -> int:
        if not self.order:
            raise ValueError(f"there is no best run: {self.ranking}")
        return self.order[0]


def result_of(run: Run, experiment: Experiment, state: FederatedState) -> RunResult:
    """Puts together what a run left.

    Args:
      run: Its record.
      experiment: What was trained.
      state: The state of all its seeds.
    """
    folder, config = Path(run.folder or "."), experiment.config
    seeds = tuple(range(config.seed, config.seed + config.num_seeds))
    clients = _clients(folder) if config.per_client else None
    if len(seeds) == 1:
        state = jax.tree.map(lambda x: x[0], state)
        if clients is not None:
            each = {name: rows[0] for name, rows in clients.values.items()}
            clients = ClientMetrics(each, clients.sizes)
    return RunResult(
        state=state,
        info=None,
        history=_history(run.metrics, len(seeds)),
        clients=clients,
        algorithm=experiment.algorithm,
        data=experiment.clients,
        test=experiment.test,
        folder=folder,
        seeds=seeds,
        summary=dict(run.summary or {}),
    )


def _history(metrics: Sequence[Row], seeds: int) -> History:
    """The lines of metrics as arrays, `[rounds]` or `[rounds, seeds]`."""
    table: dict[str, np.ndarray] = {}
    shape = (-1,) if seeds == 1 else (-1, seeds)
    for name in dict.fromkeys(name for row in metrics for name in row):
        column = [row.get(name) for row in metrics]
        table[name] = np.array(column, float).reshape(shape)
    unknown = np.full_like(table["train_loss"], np.nan)
    losses = {f"{kind}_loss": table.pop(f"{kind}_loss") for kind in ("train", "test")}

    def since_before(name: str) -> np.ndarray:
        return np.diff(table[name], axis=0, prepend=np.zeros_like(table[name][:1]))

    def named(*prefixes: str, keep: bool = False) -> dict[str, np.ndarray]:
        return {
            name if keep else name.removeprefix(prefix): values
            for name, values in table.items()
            for prefix in prefixes
            if name.startswith(prefix)
        }

    return History(
        round=table["round"].reshape(len(unknown), -1)[:, 0].astype(int),
        **losses,
        train_metrics=named("train_"),
        test_metrics=named("test_"),
        delta_norm=table["delta_norm"],
        spread=table["spread"],
        gradients=since_before("gradients_total"),
        needed=table["needed"],
        uploads=since_before("uploads_total"),
        messages=unknown,
        bytes=since_before("bytes_total"),
        hours=since_before("hours"),
        clients=named("client_", "worst_tenth_", keep=True),
    )


def _clients(folder: Path) -> ClientMetrics:
    """Every client's metrics after the last evaluated round, `[seeds, clients]`."""
    arrays = record.read_clients(folder)
    for name in ("round", "seeds"):
        arrays.pop(name)
    return ClientMetrics(sizes=arrays.pop("sizes"), values=arrays)
