"""How many messages a mixing sends: one for each weight Wᵢⱼ ≠ 0, i ≠ j.

Structured topologies are counted without their matrices, so a million clients cost no
more than ten.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import numpy as np

from afga_jax import kernels
from afga_jax.kernels import Kernel
from afga_jax.mixing import (
    AmongSelected,
    Every,
    Mixing,
    NoMixing,
    PeriodicAverage,
    Varying,
    WithinClusters,
)
from afga_jax.participation import Plan


class Traffic(NamedTuple):
    """Messages between clients.

    Attributes:
      messages: All of them.
      serial: Those that wait for each other: the most that one client sends or
        receives, summed over what happens one after another.
    """

    messages: int = 0
    serial: int = 0


#: `(round, step, plan) -> Traffic` of one mixing step, over all cycles of the round.
Schedule = Callable[[int, int, Plan | None], Traffic]


def of_kernel(kernel: Kernel) -> Traffic:
    """The messages of one mixing step in one cluster.

    >>> of_kernel(kernels.ring(50))
    Traffic(messages=100, serial=2)
    >>> of_kernel(kernels.Star(50))
    Traffic(messages=98, serial=49)
    """
    match kernel:
        case kernels.Shifts():
            places = {tuple(np.mod(o, kernel.shape).tolist()) for o in kernel.offsets}
            degree = sum(any(place) for place in places)
            return Traffic(kernel.n * degree, degree)
        case kernels.Average():
            return Traffic(kernel.n * (kernel.n - 1), kernel.n - 1)
        case kernels.Star():
            return Traffic(2 * (kernel.n - 1), kernel.n - 1)
    return _of_matrix(kernel.matrix())


def of_mixing(
    mixing: Mixing,
    *,
    clusters: np.ndarray,
    active: int | None,
    steps: int,
    num_clients: int,
) -> tuple[Schedule, bool]:
    """The messages of each mixing step, and whether only the plan can tell them.

    PGA's exact averaging counts as what it is here, a step on the complete graph; a
    deployment may have a cheaper all-reduce.

    Args:
      mixing: Who mixes with whom.
      clusters: Those that take part, `[cycles, groups]`.
      active: How many compute in each group and step; None: not always the same.
      steps: Local steps of a cycle.
      num_clients: N.
    """
    cycles, groups = clusters.shape
    if isinstance(mixing, Every | PeriodicAverage):
        inside, needs_plan = of_mixing(
            mixing.mixing,
            clusters=clusters,
            active=active,
            steps=steps,
            num_clients=num_clients,
        )
    match mixing:
        case NoMixing():
            return _always(Traffic()), False
        case WithinClusters():
            each = {kernel: of_kernel(kernel) for kernel in set(mixing.kernels)}
            cost = _in_turns([each[mixing.kernels[k]] for k in row] for row in clusters)
            return _always(cost), False
        case AmongSelected() if active is not None:
            ring = of_kernel(kernels.ring(active))
            return _always(_in_turns([[ring] * groups] * cycles)), False
        case AmongSelected():
            return _among_drawn, True
        case Every():
            return _every(inside, mixing.period), needs_plan
        case PeriodicAverage():
            average = _in_turns([[of_kernel(kernels.Average(num_clients))]] * cycles)
            return _periodic(inside, average, mixing.period, steps), needs_plan
        case Varying():
            return _varying(mixing, cycles), False
    return _by_matrices(mixing, cycles), True


def innermost(mixing: Mixing) -> Mixing:
    """The mixing inside of what only says when to mix."""
    while isinstance(mixing, Every | PeriodicAverage):
        mixing = mixing.mixing
    return mixing


def _always(cost: Traffic) -> Schedule:
    return lambda round, step, plan: cost


def _every(inside: Schedule, period: int) -> Schedule:
    def at(round, step, plan):
        return Traffic() if (step + 1) % period else inside(round, step, plan)

    return at


def _periodic(inside: Schedule, average: Traffic, period: int, steps: int) -> Schedule:
    def at(round, step, plan):
        number = round * steps + step + 1
        return inside(round, step, plan) if number % period else average

    return at


def _among_drawn(round: int, step: int, plan: Plan | None) -> Traffic:
    counts = np.asarray(cast(Plan, plan).cycles.active_count)[:, step]
    return _in_turns(
        [of_kernel(kernels.ring(int(n))) for n in row if n] for row in counts
    )


def _varying(mixing: Varying, cycles: int) -> Schedule:
    def at(round, step, plan):
        matrix = mixing.matrix_at(np.int32(round), np.int32(step))
        return _in_turns([[_of_matrix(matrix)]] * cycles)

    return at


def _by_matrices(mixing: Mixing, cycles: int) -> Schedule:
    """For mixing of a kind that we do not know."""

    def at(round, step, plan):
        return _in_turns(
            [_of_matrix(mixing.at(plan, step, cycle).matrix())]
            for cycle in range(cycles)
        )

    return at


def _in_turns(cycles: Iterable[list[Traffic]]) -> Traffic:
    """Clusters of a cycle side by side, cycles one after another."""
    cycles = list(cycles)
    return Traffic(
        sum(one.messages for row in cycles for one in row),
        sum(max((one.serial for one in row), default=0) for row in cycles),
    )


def _of_matrix(matrix: Any) -> Traffic:
    sends = np.asarray(matrix) != 0
    np.fill_diagonal(sends, False)
    degree = max(sends.sum(0).max(), sends.sum(1).max())
    return Traffic(int(sends.sum()), int(degree))
