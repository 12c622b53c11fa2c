"""Seconds that a round will take with either engine, from counts and a calibration.

Counts are exact for a few rounds' schedules; seconds are right to a factor of about
two, which is enough to tell engines apart that differ by ten. Not counted are the draw
of batches, the server's step and the evaluation, which both engines do alike.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from afga_jax.calibrate import fresh_seconds, operation_seconds, pass_seconds
from afga_jax.gradient import Work
from afga_jax.kernels import Average, Kernel, Shifts, Star
from afga_jax.mixing import AmongSelected, Every, Mixing, NoMixing, WithinClusters
from afga_jax.schedule import Sizes
from afga_jax.stencil import grid_of

# Passes x ← x + y over one model (`benchmarks.auto`): mixing reads and writes a row; a
# read is one of a few that are added together, some of them padding; a gradient's model
# and increment are copied twice; a mean over everybody is read, then written to all.
_MIX, _READ, _TASK, _AVERAGE = 1.0, 4.0, 4.0, 2.0
# Seconds of a step beside its arithmetic: a batch is drawn, many small programs start.
_STEP = 2e-4
# Seconds that devices wait for each other in a slot, and exchange what they computed:
# 0.6 to 1.7 ms were seen, the more the busier the cores.
_MEETING = 1.5e-3


class Cost(NamedTuple):
    """Of a round.

    Attributes:
      moves: Seconds of moving and mixing models.
      gradients: How many are computed one after another; side by side they are one.
    """

    moves: float
    gradients: float

    def seconds(self, gradient: float) -> float:
        """In all, where a gradient takes so many seconds."""
        return self.moves + self.gradients * gradient


class Counts(NamedTuple):
    """What is known of a round before it is planned.

    Attributes:
      cycles: Of a round.
      steps: Of a cycle.
      active: Clients that compute at a step, at most.
      rows: Clients that hold a model in a cycle.
      uploads: Of a cycle.
      model: Bytes of one.
    """

    cycles: int
    steps: int
    active: int
    rows: int
    uploads: int
    model: int


def gradient_seconds(work: Work) -> float:
    """Of one client's step on one core, to a factor of about two.

    Args:
      work: Counted; how well its operations suit the machine is not known.
    """
    return _STEP + work.operations * operation_seconds()


def dense_cost(
    mixing: Mixing, counts: Counts, needed: float | None = None, *, devices: int = 1
) -> Cost:
    """Of the dense engine.

    Args:
      mixing: The algorithm's.
      counts: Of its rounds.
      needed: Gradients of a cycle that reach the server; None: all.
      devices: That share the clients, evenly on average; they meet at every step.
    """
    tasks = counts.steps * counts.active if needed is None else needed
    mixed = counts.steps * _mixing_seconds(mixing, counts)
    moves = mixed + tasks * _TASK * pass_seconds(counts.model)
    # Two copies of everybody's model, anew in every call.
    fresh = fresh_seconds(2 * counts.rows * counts.model)
    moves, tasks = counts.cycles * moves + fresh, counts.cycles * tasks
    meetings = counts.cycles * counts.steps * _MEETING if devices > 1 else 0.0
    return Cost(moves / devices + meetings, tasks / devices)


def span_cost(sizes: Sequence[tuple[int, Sizes]], counts: Counts, devices: int) -> Cost:
    """Of the span engine.

    Args:
      sizes: Needed gradients and sizes of some cycles' schedules.
      counts: Of the algorithm's rounds.
      devices: That share a slot; each forms the models of its own lanes.
    """
    tasks = np.mean([needed for needed, _ in sizes])
    reads = np.mean([one.reads for _, one in sizes])
    slots = np.mean([one.slots for _, one in sizes]) if devices > 1 else tasks
    # Each device forms its own lanes' models, but writes down everybody's increments.
    passes = _READ * reads / devices + _TASK * tasks
    moves = passes * pass_seconds(counts.model)
    if devices > 1:
        moves += slots * _MEETING
    return Cost(float(counts.cycles * moves), float(counts.cycles * slots))


def least_span_cost(mixing: Mixing, counts: Counts, devices: int) -> Cost | None:
    """A lower bound without a schedule, which takes long where all read from all.

    None: not known, because gradients that reach nobody would have to be left out.

    Args:
      mixing: The algorithm's.
      counts: Of its rounds.
      devices: That share a slot.
    """
    if isinstance(mixing, NoMixing) or counts.uploads < counts.rows:
        return None
    tasks = counts.steps * counts.active
    # Of each step before, at least the neighbours' increments that were made then.
    neighbours = max(1.0, _neighbours(mixing) * counts.active / counts.rows)
    reads = tasks * neighbours * (counts.steps - 1) / 2
    passes = (_READ * reads + _TASK * tasks) / devices
    moves = counts.cycles * passes * pass_seconds(counts.model)
    return Cost(moves, counts.cycles * tasks / devices)


def matrix_entries(mixing: Mixing, counts: Counts) -> int:
    """Numbers of the matrices that a schedule is made from; 0: it needs none."""
    if isinstance(mixing, (NoMixing, AmongSelected)):
        return 0
    if grid_of(mixing, counts.steps) is not None:
        return 0
    if isinstance(mixing, Every):
        mixing = mixing.mixing
    if isinstance(mixing, WithinClusters):
        return sum(kernel.n**2 for kernel in mixing.kernels)
    return counts.rows**2


def _mixing_seconds(mixing: Mixing, counts: Counts) -> float:
    """Of one step with the dense engine."""
    everybody = pass_seconds(counts.rows * counts.model)
    if isinstance(mixing, NoMixing):
        return 0.0
    if isinstance(mixing, AmongSelected):
        return _MIX * pass_seconds(counts.active * counts.model)
    if isinstance(mixing, Every):
        return _mixing_seconds(mixing.mixing, counts) / mixing.period
    if isinstance(mixing, WithinClusters):
        kernel, width = mixing.kernels[0], mixing.clustering.width
        if all(other is kernel for other in mixing.kernels):
            if isinstance(kernel, Shifts):
                return _MIX * everybody
            if isinstance(kernel, (Average, Star)):
                return _AVERAGE * everybody
    else:
        width = counts.rows
    # By the matrix: every model of a cluster into every other.
    numbers = counts.rows * counts.model / 4
    return _MIX * everybody + 2 * width * numbers * operation_seconds()


def _neighbours(mixing: Mixing) -> float:
    """Clients that one mixes with, itself among them."""
    if not isinstance(mixing, WithinClusters):
        return 1.0
    return min(_degree(kernel) for kernel in mixing.kernels)


def _degree(kernel: Kernel) -> float:
    if isinstance(kernel, Shifts):
        return float(len(kernel.offsets))
    if isinstance(kernel, Average):
        return float(kernel.n)
    return 1.0
