"""Which engine runs an algorithm's rounds, what it will cost, and its schedules.

The dense engine keeps everybody's model and mixes all of them after every step; the
span engine keeps increments and forms a model when it is needed. Both compute the same
gradients, so the choice is about everything else: bytes moved and bytes held.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from afga_jax import schedule, span
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.cycle import is_stateful
from afga_jax.graph import Finder
from afga_jax.mixing import NoMixing
from afga_jax.participation import Plan
from afga_jax.recipe import FederatedState, Recipe
from afga_jax.schedule import Schedule, Sizes
from afga_jax.typing import Array, PyTree

# Passes over one model: a mixing step reads and writes a row, a read adds one to a
# model that stays in cache, a gradient's model and increment are copied twice. On CPU
# reads run at about half the rate of mixing (`benchmarks.engines`).
_MIX, _READ, _TASK = 2.0, 2.0, 4.0
# What a gradient costs at least: a batch of 50 through one dense layer and back.
_GRADIENT = 25.0
# Rounds that the sizes of schedules are first taken from.
_SAMPLE = 8


class Choice(NamedTuple):
    """An engine and why.

    Attributes:
      engine: `dense` or `span`.
      reason: In a few words.
      bytes: Predicted for client models and increments.
      other_bytes: The same for the other engine; None: it cannot run this.
      width: Gradients side by side in a slot of the span engine.
      devices: That share a slot.
    """

    engine: str
    reason: str
    bytes: int
    other_bytes: int | None = None
    width: int = 1
    devices: int = 1

    def __str__(self) -> str:
        return f"{self.engine} engine, {_size(self.bytes)} of models: {self.reason}"


class Scheduler:
    """Schedules of any rounds of an algorithm, made on the host.

    Args:
      algorithm: From `build`; the span engine must be able to run it.
      width: Gradients side by side in a slot.
      stateful: The local optimizer has state.
    """

    def __init__(self, algorithm: FederatedAlgorithm, width: int, *, stateful: bool):
        recipe = algorithm.recipe
        self._finder = Finder(recipe, stateful=stateful)
        self._num_clients = recipe.clustering.num_clients
        self._width = width
        self._capacity: Sizes | None = None
        rounds = jax.vmap(algorithm.plan, (None, 0))
        self._plans = jax.jit(jax.vmap(rounds, (0, None)))

    def __call__(self, key: Array, rounds: range) -> Schedule:
        """Schedules with leading axes of rounds, seeds if `key` has them, and cycles.

        All have the same sizes, powers of two that only grow, so that a program
        compiled for some rounds serves the others.
        """
        made = self._timetables(key, rounds)
        if self._capacity is None:
            # Of the first rounds, wherever a run begins, so that a resumed run
            # compiles what the run before it did.
            sample = (
                made if rounds.start == 0 else self._timetables(key, range(_SAMPLE))
            )
            self._capacity = schedule.bucket([t.sizes for _, t in _flat(sample)])
        sizes = [table.sizes for _, table in _flat(made)]
        self._capacity = schedule.bucket([self._capacity, *sizes])
        padded = [
            [_stack([self._pad(*cycle) for cycle in seed]) for seed in one]
            for one in made
        ]
        seeds = [_stack(one) if key.ndim else one[0] for one in padded]
        return _stack(seeds)

    def sizes(self, key: Array, rounds: range) -> list[tuple[int, Sizes]]:
        """Needed gradients and sizes, of every cycle."""
        made = _flat(self._timetables(key, rounds))
        return [(len(graph.step), table.sizes) for graph, table in made]

    def _pad(self, graph, table) -> Schedule:
        return schedule.pad(
            graph, table, self._width, self._capacity, self._num_clients
        )

    def _timetables(self, key: Array, rounds: range):
        """By round, seed and cycle."""
        # A fixed number of rounds at a time: one program.
        numbers = np.arange(rounds.start, rounds.start + max(len(rounds), _SAMPLE))
        plans = self._plans(key if key.ndim else key[None], numbers)
        plans = jax.tree.map(np.asarray, plans)
        return [
            [
                self._of_plan(jax.tree.map(lambda x: x[seed, number], plans))  # noqa: B023
                for seed in range(len(plans.round))
            ]
            for number in range(len(rounds))
        ]

    def _of_plan(self, plan: Plan):
        graphs = [self._finder.graph(plan, c) for c in range(len(plan.clusters))]
        return [(graph, schedule.timetable(graph, self._width)) for graph in graphs]


def choose(
    algorithm: FederatedAlgorithm, key: Array
) -> tuple[Choice, Scheduler | None]:
    """The engine of an algorithm, and for the span engine what makes its schedules.

    Args:
      algorithm: From `build`.
      key: The run's key, or several seeds'.
    """
    recipe, options = algorithm.recipe, algorithm.options
    state = _shapes(algorithm, key)
    plan = jax.eval_shape(algorithm.plan, jax.random.key(0), 0)
    size = _bytes((state.params, state.stats))
    rows = _dense_rows(recipe, plan)
    # One copy is read while the other is written.
    dense_bytes = 2 * rows * size
    cpu = jax.default_backend() == "cpu"
    devices = jax.local_device_count() if cpu else 1
    against = None
    if options.engine == "dense":
        against = "as asked"
    elif options.engine == "auto":
        against = span.reason_against(recipe, state.params)
        if isinstance(recipe.mixing, NoMixing) and devices == 1:
            against = against or "nobody mixes, so only a few hold a model"
    if against:
        return Choice("dense", against, dense_bytes), None
    width = options.wave_width or _width(devices)
    devices = math.gcd(devices, width)
    stateful = is_stateful(recipe, state.params)
    scheduler = Scheduler(algorithm, width, stateful=stateful)
    sizes = scheduler.sizes(key, range(_SAMPLE))
    # The uploads, and what is done to them on the way to the server.
    uploads = 3 * int(np.prod(plan.cycles.upload.shape[1:]))
    span_bytes = (schedule.bucket([one for _, one in sizes]).rows + uploads) * size
    dense_passes, span_passes = _passes(sizes, rows, options.local_steps, devices)
    chosen = Choice("span", "as asked", span_bytes, dense_bytes, width, devices)
    if options.engine == "span":
        return chosen, scheduler
    compared = "{:,.0f} passes over a model per round against {:,.0f}".format
    if span_passes < dense_passes:
        return chosen._replace(reason=compared(span_passes, dense_passes)), scheduler
    reason = compared(dense_passes, span_passes)
    return Choice("dense", reason, dense_bytes, span_bytes), None


def _passes(
    sizes: list[tuple[int, Sizes]], rows: int, steps: int, devices: int
) -> tuple[float, float]:
    """Work of a cycle by either engine, in passes over one model."""
    tasks = np.mean([needed for needed, _ in sizes])
    reads = np.mean([one.reads for _, one in sizes])
    slots = np.mean([one.slots for _, one in sizes])
    dense = tasks * _GRADIENT + steps * rows * _MIX
    alone = slots if devices > 1 else tasks
    span_ = alone * _GRADIENT + (reads * _READ + tasks * _TASK) / devices
    return float(dense), float(span_)


def _width(devices: int) -> int:
    """One client at a time on each CPU device, a batch of them on an accelerator."""
    return devices * (1 if jax.default_backend() == "cpu" else 8)


def _dense_rows(recipe: Recipe, plan: Plan) -> int:
    """Models that the dense engine holds."""
    rows = jax.eval_shape(recipe.mixing.rows, plan)
    return recipe.clustering.num_clients if rows is None else len(rows)


def _shapes(algorithm: FederatedAlgorithm, key: Array) -> FederatedState:
    state = jax.eval_shape(algorithm.init, key)
    if not key.ndim:
        return state
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), state)


def _bytes(tree: PyTree) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} GB"


def _flat(made):
    return [cycle for one in made for seed in one for cycle in seed]


def _stack(trees: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *x: np.stack(x), *trees)
