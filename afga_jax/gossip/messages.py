"""How many messages mixing sends: one for each weight Wᵢⱼ ≠ 0, i ≠ j.

What a topology sends is known to its kernel (`Kernel.messages`), what a round sends to
the mixing (`Mixing.messages`). Here is what both are told in, and how the messages of
clusters and cycles add up.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy  # `scipy.sparse` is imported where it is used first

from afga_jax.population.sampling import Plan


class Traffic(NamedTuple):
    """Messages between clients.

    Attributes:
      messages: Number of all messages.
      serial: Number of messages that wait for each other: the most that one client
        sends or receives, summed over what happens one after another.
    """

    messages: int = 0
    serial: int = 0


class StepMessages(NamedTuple):
    """The messages of each mixing step of a run.

    Attributes:
      at: `(round, step, plan) -> Traffic` over all cycles of the round.
      needs_plan: Whether `at` must be given the round's plan, because who mixes is
        drawn; otherwise the plan may be None.
    """

    at: Callable[[int, int, Plan | None], Traffic]
    needs_plan: bool = False

    @classmethod
    def always(cls, traffic: Traffic) -> "StepMessages":
        """The same messages at every step of every round."""
        return cls(lambda round, step, plan: traffic)


def of_matrix(matrix: Any) -> Traffic:
    """The messages of one mixing step, from its matrix."""
    return of_sparse(scipy.sparse.coo_array(np.asarray(matrix)))


def of_sparse(matrix: "scipy.sparse.csr_array | None") -> Traffic:
    """The messages of one mixing step, from its sparse matrix; None: nobody mixes."""
    if matrix is None:
        return Traffic()
    entries = matrix.tocoo()
    sent = (entries.row != entries.col) & (entries.data != 0)
    degrees = (np.bincount(x[sent], minlength=1) for x in (entries.row, entries.col))
    return Traffic(int(sent.sum()), max(int(degree.max()) for degree in degrees))


def in_sequence(cycles: Iterable[Sequence[Traffic]]) -> Traffic:
    """Clusters of a cycle side by side, cycles one after another.

    >>> in_sequence([[Traffic(6, 2), Traffic(12, 3)], [Traffic(6, 2)]])
    Traffic(messages=24, serial=5)
    """
    cycles = list(cycles)
    return Traffic(
        sum(cluster.messages for cycle in cycles for cluster in cycle),
        sum(max((cluster.serial for cluster in cycle), default=0) for cycle in cycles),
    )
