"""Who holds which samples: stored, computed or cut into ranges.

An assignment maps (client, position) to the index of a sample. It is a pytree that
works with NumPy arrays on the host and, passed to compiled code, with traced ones: the
same lines serve the summaries and the draw of a batch. `Stored` keeps a list per
client, `Ranges` keeps runs of consecutive samples, for windows of a text, and
`Computed` (`afga_jax.data.computed`) keeps nothing per client.
"""

from typing import Any, Protocol

import jax
import numpy as np
from flax import struct


class Assignment(Protocol):
    """Who holds which samples; a pytree."""

    @property
    def num_clients(self) -> int:
        """N."""

    @property
    def capacity(self) -> int:
        """Samples of the largest client."""

    @property
    def sizes(self) -> Any:
        """Samples of each client; indexable with an array of clients."""

    @property
    def end(self) -> int:
        """One more than the largest sample index; on the host."""

    def size(self, client):
        """Samples of one client; unlike `sizes[client]`, never at the cost of all."""

    def sample(self, client, position):
        """Index of the sample at `position` in [0, size) of the client."""

    def pooled(self) -> "Assignment":
        """One client with, once, each sample that some client holds; on the host."""


class _ByOffsets:
    """Clients whose lists lie one after another; `offsets` says where each starts."""

    offsets: Any

    @property
    def num_clients(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Any:
        return self.offsets[1:] - self.offsets[:-1]

    def size(self, client):
        """Samples of one client."""
        return self.offsets[client + 1] - self.offsets[client]


@struct.dataclass
class Stored(_ByOffsets):
    """A list of samples per client, all lists in one array.

    Attributes:
      order: Sample indices, client after client, int32 `[held]`.
      offsets: Where each client's list starts in `order`, int32 `[num_clients + 1]`.
      capacity: Size of the largest client.
    """

    order: Any
    offsets: Any
    capacity: int = struct.field(pytree_node=False)

    @property
    def end(self) -> int:
        return int(np.max(self.order)) + 1

    def sample(self, client, position):
        """Index of the sample at `position` of the client's list."""
        return self.order[self.offsets[client] + position]

    def pooled(self) -> "Stored":
        """One client with, once, each sample that some client holds; on the host."""
        held = np.unique(self.order)
        return stored(held, np.array([len(held)]))


@struct.dataclass
class Ranges(_ByOffsets):
    """Runs of consecutive samples, several per client.

    Attributes:
      starts: First sample of each run, runs sorted by client, int32 `[runs]`.
      cumulative: Samples in all runs before, int32 `[runs + 1]`.
      offsets: Samples of all clients before, int32 `[num_clients + 1]`.
      capacity: Size of the largest client.
    """

    starts: Any
    cumulative: Any
    offsets: Any
    capacity: int = struct.field(pytree_node=False)

    @property
    def end(self) -> int:
        return int(np.max(self.starts + np.diff(self.cumulative)))

    def sample(self, client, position):
        """Index of the sample at `position` within the client's runs."""
        rank = self.offsets[client] + position
        numpy = rank.__array_namespace__()
        run = numpy.searchsorted(self.cumulative, rank, side="right") - 1
        return self.starts[run] + rank - self.cumulative[run]

    def pooled(self) -> "Ranges":
        """One client with, once, each sample that some client holds; on the host."""
        starts, counts = np.asarray(self.starts), np.diff(self.cumulative)
        by_start = np.argsort(starts, kind="stable")
        starts, ends = starts[by_start], (starts + counts)[by_start]
        # What an earlier run covers already is cut off: each sample counts once.
        covered = np.concatenate([[0], np.maximum.accumulate(ends)[:-1]])
        starts = np.minimum(np.maximum(starts, covered), ends)
        kept = ends > starts
        return ranges(starts[kept], (ends - starts)[kept], np.array([kept.sum()]))


def stored(order: np.ndarray, sizes: np.ndarray) -> Stored:
    """Lists of samples, one after another.

    Args:
      order: Sample indices, client after client, `[held]`.
      sizes: Samples of each client, `[num_clients]`.

    Returns:
      The assignment.
    """
    offsets = _offsets(sizes)
    return Stored(np.asarray(order, np.int32), offsets, int(np.max(sizes)))


def ranges(starts: np.ndarray, counts: np.ndarray, runs: np.ndarray) -> Ranges:
    """Runs of consecutive samples.

    Args:
      starts: First sample of each run, runs sorted by client, `[all runs]`.
      counts: Samples of each run, `[all runs]`.
      runs: Number of runs of each client, `[num_clients]`.

    Returns:
      The assignment.

    Example:
      >>> held = ranges(np.array([0, 7, 4]), np.array([2, 2, 1]), np.array([2, 1]))
      >>> members(held, 0).tolist(), members(held, 1).tolist()
      ([0, 1, 7, 8], [4])
    """
    cumulative = np.concatenate([[0], np.cumsum(counts)])
    last_runs = np.cumsum(runs)
    sizes = np.diff(cumulative[last_runs], prepend=0)
    return Ranges(
        starts=np.asarray(starts, np.int32),
        cumulative=cumulative.astype(np.int32),
        offsets=_offsets(sizes),
        capacity=int(sizes.max()),
    )


def members(assignment: Assignment, client: int) -> np.ndarray:
    """All sample indices of one client, on the host.

    Args:
      assignment: With NumPy or concrete device arrays.
      client: The client's number.

    Returns:
      int `[size of the client]`.
    """
    check_client(client, assignment.num_clients)
    assignment = jax.tree.map(np.asarray, assignment)
    positions = np.arange(int(assignment.size(client)))
    return assignment.sample(np.full(len(positions), client), positions)


def check_client(client: int, num_clients: int) -> None:
    """Raises a ValueError unless there is a client of that number."""
    if not 0 <= client < num_clients:
        raise ValueError(
            f"client {client} is outside [0, {num_clients}); number the clients from 0."
        )


def _offsets(sizes: np.ndarray) -> np.ndarray:
    if np.min(sizes) < 1:
        raise ValueError(
            f"client {np.argmin(sizes)} of {len(sizes)} holds {np.min(sizes)} samples; "
            "give every client at least 1, or leave it out and number without gaps."
        )
    if np.sum(sizes) >= 2**31:
        raise ValueError(
            f"{np.sum(sizes)} samples do not fit 32-bit indices; hold below 2**31."
        )
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
