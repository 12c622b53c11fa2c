"""Plans of a run's rounds and, for the span engine, schedules of their gradients."""

import copy
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.mesh import quick_to_compile
from afga_jax.population.sampling import Plan
from afga_jax.rounds.span import schedule
from afga_jax.rounds.span.dependencies import Finder, Graph
from afga_jax.rounds.span.schedule import Schedule, Sizes, Timetable
from afga_jax.typing import Array, PyTree

# Rounds that the sizes of schedules are first taken from.
_SAMPLE = 8


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

    def with_width(self, width: int | None) -> "Planner":
        """For another width, or no schedules; what is compiled is shared."""
        other = copy.copy(self)
        other._width, other._capacity = width, None
        return other

    def sizes(self, key: Array) -> list[tuple[int, Sizes]]:
        """Needed gradients and sizes, of every cycle of the first rounds."""
        plans = self._plans(jnp.atleast_1d(key), np.arange(_SAMPLE))
        timetables = self._timetables(jax.tree.map(np.asarray, plans))
        return [(len(graph.step), table.sizes) for graph, table in _flat(timetables)]

    def _padded(self, key: Array, rounds: range, plans: Plan) -> Schedule:
        if self._capacity is None:
            # Of the first rounds, wherever a run begins, so that a resumed run
            # compiles what the run before it did.
            self._capacity = schedule.bucket([sizes for _, sizes in self.sizes(key)])
        timetables = self._timetables(plans)
        sizes = [table.sizes for _, table in _flat(timetables)]
        self._capacity = schedule.bucket([self._capacity, *sizes])
        size = (self._width, self._capacity, self._num_clients)

        def of_seed(cycles):
            return _stack([schedule.pad(*cycle, *size) for cycle in cycles])

        return _stack([_stack(list(map(of_seed, seeds))) for seeds in timetables])

    def _timetables(self, plans: Plan) -> list:
        """By round, seed and cycle."""
        rounds, seeds = plans.round.shape
        at = lambda *index: jax.tree.map(lambda x: x[index], plans)  # noqa: E731

        def of_plan(plan: Plan) -> list[tuple[Graph, Timetable]]:
            graphs = [self._finder.graph(plan, c) for c in range(len(plan.clusters))]
            return [(g, schedule.timetable(g, self._width)) for g in graphs]

        return [[of_plan(at(r, seed)) for seed in range(seeds)] for r in range(rounds)]


def _flat(timetables):
    return [cycle for seeds in timetables for seed in seeds for cycle in seed]


def _stack(trees: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *x: np.stack(x), *trees)
