"""Is `auto` right? The rule's choice against both engines' measured rounds.

    python -m benchmarks.auto [--only=cnn] [--least=0.3] [--most=10]

An MLP and a CNN on Fashion-MNIST, one device per core. Both engines take turns; the
median of their laps counts, and the peak of the process beyond what it was before,
without what JAX itself takes (`benchmarks.peaks` has whole processes). Cells of very
many gradients are left out, and where many read from many only the chosen engine runs:
they would take minutes a round. Writes `auto.md` and `auto.json` to the folder
`--results`; with `--only`, a part of the cells' names, the other lines stay.
"""

import argparse
import gc
import itertools
import json
import math
import pathlib
import statistics
import time
from typing import NamedTuple

import jax

import afga_jax
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.data import Clients
from afga_jax.rounds.execution import Execution
from afga_jax.runs import devices
from afga_jax.training import engine_choice, flops
from afga_jax.typing import Task
from benchmarks import auto_report
from benchmarks.ours import memory
from benchmarks.problem import task_and_data

RESULTS = pathlib.Path(__file__).parent / "results"
# Clients that compute at a step, and local steps, by the number of clients.
SCALES = {100: (5, 24), 1000: (10, 8), 10_000: (100, 2)}
VARIANTS = {
    "AFGA, ring": ("afga", {}),
    "CAFGA, 5 rings": ("cafga", {"num_clusters": 5}),
    "AFGA, complete": ("afga", {"topology": "complete"}),
    "HA-Fed, 5 rings": ("hafed", {"num_clusters": 5}),
    "FedAMSGrad": ("fedamsgrad", {}),
}
ENGINES = ("dense", "span")
LAPS = 3
# Clients up to which both engines run, where many read from many.
BOTH = {"HA-Fed, 5 rings": 100, "AFGA, complete": 1000}
# Gradients of a round up to which a model is measured.
GRADIENTS = {"mlp-100": 10_000, "cnn": 1_000}


class Cell(NamedTuple):
    """What is measured: a model of `MODELS`, N, a name of `VARIANTS`."""

    model: str
    num_clients: int
    variant: str

    @property
    def name(self) -> str:
        return f"{self.model}, N={self.num_clients:,}, {self.variant}"

    @property
    def gradients(self) -> int:
        active, steps = SCALES[self.num_clients]
        everybody = VARIANTS[self.variant][0] == "hafed"
        return steps * (self.num_clients if everybody else active)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="a part of the cells' names", default="")
    parser.add_argument("--least", type=float, default=0.3, help="seconds of a lap")
    parser.add_argument("--most", type=float, default=10, help="seconds of a round")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    args = parser.parse_args()
    devices.use()
    grid = itertools.product(("mlp-100", "cnn"), SCALES, VARIANTS)
    cells = [Cell(*one) for one in grid]
    path = args.results / "auto.json"
    found = json.loads(path.read_text()) if path.exists() else {"rows": {}}
    for cell in cells:
        if args.only not in cell.name or cell.gradients > GRADIENTS[cell.model]:
            continue
        found["rows"][cell.name] = compared(cell, args.least, args.most)
        print(auto_report.line(cell.name, found["rows"][cell.name]), flush=True)
        found |= {"date": time.strftime("%Y-%m-%d"), "devices": jax.device_count()}
        path.write_text(json.dumps(found, indent=1) + "\n")
        jax.clear_caches()
        gc.collect()
    rows = {c.name: found["rows"][c.name] for c in cells if c.name in found["rows"]}
    (args.results / "auto.md").write_text(auto_report.page(rows, found["devices"]))
    print(auto_report.verdict(rows))


def compared(cell: Cell, least: float, most: float) -> dict:
    """What the rule takes, and both engines' measurements, ready for JSON.

    Args:
      cell: What to run.
      least: Seconds that a lap should take.
      most: Seconds that a round may take; a slower engine gets no second lap.
    """
    task, clients, _ = task_and_data(cell.model, cell.num_clients, "overlap")
    key, algorithm = jax.random.key(0), built(cell, task)
    choice, _ = engine_choice.choose(algorithm, key, data=clients)
    choice = choice.holding(clients, flops.count(task, clients))
    runs = [choice.run] if choice.other is None else [choice.run, choice.other]
    row = {"auto": choice.engine, "reason": choice.reason}
    row["predicted bytes"] = {run.engine: run.rounds for run in runs}
    both = cell.num_clients <= BOTH.get(cell.variant, cell.num_clients)
    wanted = [name for name in ENGINES if name == choice.engine or both]
    measured = {
        name: Contestant(algorithm, Execution(name), clients, key) for name in wanted
    }
    for _ in range(LAPS):
        for one in measured.values():
            # As many as a call of the runner has, which is about a second's.
            if one.slowest < most:
                one.lap(max(1, min(8, math.ceil(least / (one.slowest or least)))))
    row["seconds"] = {name: one.seconds for name, one in measured.items()}
    row["bytes"] = {name: one.bytes for name, one in measured.items()}
    return row


class Contestant:
    """One engine at work; its first round is not timed, but its peak counts."""

    def __init__(
        self,
        algorithm: FederatedAlgorithm,
        execution: Execution,
        clients: Clients,
        key: jax.Array,
    ):
        before = memory(reset=True)
        self._trainer = afga_jax.Trainer(algorithm, execution, capacity=8, donate=True)
        self._key, self._clients, self._laps = key, clients, []
        self._state = self._trainer.init(key)
        self.lap(1)
        self._laps.clear()
        self.bytes = 1e9 * (memory() - before)

    def lap(self, rounds: int) -> None:
        start = time.perf_counter()
        self._state, info = self._trainer.run(
            self._key, self._state, self._clients, rounds
        )
        jax.block_until_ready((self._state, info))
        self._laps.append((time.perf_counter() - start) / rounds)

    @property
    def seconds(self) -> float:
        return statistics.median(self._laps)

    @property
    def slowest(self) -> float:
        return max(self._laps, default=0.0)


def built(cell: Cell, task: Task) -> FederatedAlgorithm:
    """The cell's algorithm."""
    algorithm, own = VARIANTS[cell.variant]
    active, steps = SCALES[cell.num_clients]
    return afga_jax.build(
        algorithm,
        task,
        num_clients=cell.num_clients,
        active=active,
        local_steps=steps,
        local_lr=0.01,
        **own,
    )


if __name__ == "__main__":
    main()
