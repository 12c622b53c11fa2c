"""Which engine runs an algorithm's rounds, what it will cost, and its plans.

The dense engine keeps everybody's model and mixes all of them after every step; the
span engine keeps increments and forms a model when it is needed. Both compute the same
gradients, so the choice is about everything else: bytes moved and bytes held.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import schedule, span
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.cycle import is_stateful
from afga_jax.graph import Finder, Graph
from afga_jax.mixing import NoMixing
from afga_jax.participation import Plan
from afga_jax.recipe import FederatedState, Recipe
from afga_jax.schedule import Schedule, Sizes, Timetable
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
        where = f" on {self.devices} devices" if self.devices > 1 else ""
        held = _size(self.bytes)
        return f"{self.engine} engine{where}, {held} of client models: {self.reason}"


class Planner:
    """Plans of any rounds of an algorithm and, for the span engine, their schedules.

    Args:
      algorithm: From `build`.
      width: Gradients side by side in a slot of the span engine; None: no schedules.
      stateful: The local optimizer has state.
    """

    def __init__(
        self,
        algorithm: FederatedAlgorithm,
        width: int | None = None,
        *,
        stateful: bool = False,
    ):
        recipe = algorithm.recipe
        self._finder = Finder(recipe, stateful=stateful)
        self._num_clients = recipe.clustering.num_clients
        self._width = width
        self._capacity: Sizes | None = None
        seeds = jax.vmap(algorithm.plan, (0, None))
        self._plans = jax.jit(
            jax.vmap(seeds, (None, 0)), compiler_options=quick_to_compile()
        )

    def __call__(self, key: Array, rounds: range) -> tuple[Plan, Schedule | None]:
        """Leading axes are rounds, then seeds if `key` has them, then cycles.

        All schedules have the same sizes, powers of two that only grow, so that a
        program compiled for some rounds serves the others.
        """
        plans = self._plans(jnp.atleast_1d(key), np.arange(rounds.start, rounds.stop))
        schedules = None
        if self._width is not None:
            schedules = self._padded(key, rounds, jax.tree.map(np.asarray, plans))
        if key.ndim:
            return plans, schedules
        return jax.tree.map(lambda x: x[:, 0], (plans, schedules))

    def sizes(self, key: Array) -> list[tuple[int, Sizes]]:
        """Needed gradients and sizes, of every cycle of the first rounds."""
        plans = self._plans(jnp.atleast_1d(key), np.arange(_SAMPLE))
        made = self._timetables(jax.tree.map(np.asarray, plans))
        return [(len(graph.step), table.sizes) for graph, table in _flat(made)]

    def _padded(self, key: Array, rounds: range, plans: Plan) -> Schedule:
        if self._capacity is None:
            # Of the first rounds, wherever a run begins, so that a resumed run
            # compiles what the run before it did.
            self._capacity = schedule.bucket([one for _, one in self.sizes(key)])
        made = self._timetables(plans)
        sizes = [table.sizes for _, table in _flat(made)]
        self._capacity = schedule.bucket([self._capacity, *sizes])
        return _stack(
            [
                _stack([_stack([self._pad(*cycle) for cycle in seed]) for seed in one])
                for one in made
            ]
        )

    def _pad(self, graph: Graph, table: Timetable) -> Schedule:
        return schedule.pad(
            graph, table, self._width, self._capacity, self._num_clients
        )

    def _timetables(self, plans: Plan) -> list:
        """By round, seed and cycle."""
        rounds, seeds = plans.round.shape
        at = lambda *place: jax.tree.map(lambda x: x[place], plans)  # noqa: E731
        return [
            [self._of_plan(at(number, seed)) for seed in range(seeds)]
            for number in range(rounds)
        ]

    def _of_plan(self, plan: Plan) -> list[tuple[Graph, Timetable]]:
        graphs = [self._finder.graph(plan, c) for c in range(len(plan.clusters))]
        return [(graph, schedule.timetable(graph, self._width)) for graph in graphs]


def quick_to_compile() -> dict[str, int | bool] | None:
    """Options for programs that run once in a while, like drawing and starting.

    Random bits take XLA on CPU seconds to optimise and microseconds to draw.
    """
    if jax.default_backend() != "cpu":
        return None
    return {
        "xla_backend_optimization_level": 1,
        "xla_llvm_disable_expensive_passes": True,
    }


def choose(algorithm: FederatedAlgorithm, key: Array) -> tuple[Choice, Planner]:
    """The engine of an algorithm, and what makes its plans and schedules.

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
        return Choice("dense", against, dense_bytes), Planner(algorithm)
    width = options.wave_width or _width(devices)
    devices = math.gcd(devices, width)
    stateful = is_stateful(recipe, state.params)
    planner = Planner(algorithm, width, stateful=stateful)
    sizes = planner.sizes(key)
    # The uploads, and what is done to them on the way to the server.
    uploads = 3 * int(np.prod(plan.cycles.upload.shape[1:]))
    span_bytes = (schedule.bucket([one for _, one in sizes]).rows + uploads) * size
    dense_passes, span_passes = _passes(sizes, rows, options.local_steps, devices)
    chosen = Choice("span", "as asked", span_bytes, dense_bytes, width, devices)
    if options.engine == "span":
        return chosen, planner
    compared = "{:,.0f} passes over a model per round against {:,.0f}".format
    if span_passes < dense_passes:
        return chosen._replace(reason=compared(span_passes, dense_passes)), planner
    reason = compared(dense_passes, span_passes)
    return Choice("dense", reason, dense_bytes, span_bytes), Planner(algorithm)


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
