"""Who holds which samples: stored, computed or cut into ranges.

An assignment maps (client, position) to the index of a sample. It is a pytree that
works with NumPy arrays on the host and, passed to compiled code, with traced ones: the
same lines serve the summaries and the draw of a batch. `Stored` keeps a list per
client, `Ranges` keeps runs of consecutive samples, for windows of a text, and
`Computed` (`afga_jax.data.partition.overlap`) keeps nothing per client.
"""

from collections.abc import Sequence
from typing import Any, Protocol, cast

import jax
import numpy as np
from flax import struct


class Assignment(Protocol):
    """Who holds which samples; a pytree."""

    @property
    def num_clients(self) -> int:
        """Number of clients."""

    @property
    def capacity(self) -> int:
        """Number of samples of the largest client."""

    @property
    def sizes(self) -> Any:
        """Number of samples of each client; indexable with an array of clients."""

    @property
    def end(self) -> int:
        """One more than the largest sample index; on the host."""

    def size(self, client):
        """Number of samples of one client, without computing those of all."""

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
        """Number of samples of one client."""
        return self.offsets[client + 1] - self.offsets[client]


@struct.dataclass
class Stored(_ByOffsets):
    """A list of samples per client, all lists in one array.

    Attributes:
      order: Indices of the samples, client after client, int32 `[all samples]`.
      offsets: Index into `order` of each client's first sample, and its length,
        int32 `[num_clients + 1]`.
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
        samples = np.unique(self.order)
        return stored(samples, np.array([len(samples)]))


@struct.dataclass
class Ranges(_ByOffsets):
    """Runs of consecutive samples, several per client.

    Attributes:
      starts: Index of each run's first sample, runs sorted by client, int32 `[runs]`.
      cumulative: Number of samples in all runs before each, int32 `[runs + 1]`.
      offsets: Number of samples of all clients before each, int32
        `[num_clients + 1]`.
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
      order: Indices of the samples, client after client, `[all samples]`.
      sizes: Number of samples of each client, `[num_clients]`.

    Returns:
      The assignment.
    """
    offsets = _offsets(sizes)
    return Stored(np.asarray(order, np.int32), offsets, int(np.max(sizes)))


def from_indices(lists: Sequence[Any]) -> Stored:
    """One's own partition, given by the samples of each client.

    Args:
      lists: Indices of each client's samples, one array or list per client. Clients
        may share samples.

    Returns:
      The assignment.

    Example:
      >>> assignment = from_indices([[0, 3], [1, 2, 4]])
      >>> assignment.sizes.tolist(), members(assignment, 1).tolist()
      ([2, 3], [1, 2, 4])
    """
    arrays = [np.asarray(indices) for indices in lists]
    for client, indices in enumerate(arrays):
        whole = np.issubdtype(indices.dtype, np.integer) or indices.size == 0
        if indices.ndim != 1 or not whole:
            raise ValueError(
                f"the samples of client {client} are {indices.dtype} of shape "
                f"{indices.shape}, but they must be a list of whole numbers: give the "
                "indices of the samples of each client; an array of each sample's "
                "client goes through partition.by_client."
            )
        if indices.size and indices.min() < 0:
            raise ValueError(
                f"client {client} holds sample {indices.min()}, but the smallest index "
                "is 0: count the samples from the first."
            )
    if not arrays:
        raise ValueError("the partition has no clients: give a list of indices each.")
    sizes = np.array([len(indices) for indices in arrays])
    return stored(np.concatenate(arrays), sizes)


def as_assignment(given: Any) -> Assignment:
    """An assignment as it is, or one from a list of each client's samples."""
    if isinstance(given, list | tuple | np.ndarray | jax.Array):
        return from_indices(cast(Sequence[Any], given))
    if not hasattr(given, "num_clients"):
        raise ValueError(
            f"the assignment is a {type(given).__name__}, but it must say who holds "
            "which samples: take one of afga_jax.data.partition, or a list of each "
            "client's indices."
        )
    return given


def ranges(starts: np.ndarray, counts: np.ndarray, runs: np.ndarray) -> Ranges:
    """Runs of consecutive samples.

    Args:
      starts: Index of each run's first sample, runs sorted by client, `[all runs]`.
      counts: Number of samples of each run, `[all runs]`.
      runs: Number of runs of each client, `[num_clients]`.

    Returns:
      The assignment.

    Example:
      >>> runs = ranges(np.array([0, 7, 4]), np.array([2, 2, 1]), np.array([2, 1]))
      >>> members(runs, 0).tolist(), members(runs, 1).tolist()
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


def in_blocks(assignment: Stored, blocks: np.ndarray) -> tuple[Stored, np.ndarray]:
    """Each device's own clients and samples, numbered anew on the device.

    Args:
      assignment: Lists of all clients, as NumPy arrays.
      blocks: Ids of the clients of each device, `[devices, rows]`. The id
        `num_clients` fills up a block and holds no samples.

    Returns:
      The devices' assignments, one after another in every array, with clients numbered
      by their rows; and the samples of each device, `[devices, samples]`. No client
      refers to the zeros that fill up a shorter list.
    """
    offsets = np.append(assignment.offsets, assignment.offsets[-1])
    orders, starts, samples = [], [], []
    for ids in blocks:
        sizes = offsets[ids + 1] - offsets[ids]
        block_offsets = np.concatenate([[0], np.cumsum(sizes)])
        position = np.arange(block_offsets[-1]) - np.repeat(block_offsets[:-1], sizes)
        order = assignment.order[np.repeat(offsets[ids], sizes) + position]
        distinct, local_order = np.unique(order, return_inverse=True)
        orders.append(local_order)
        starts.append(block_offsets)
        samples.append(distinct)
    offsets = np.concatenate(starts).astype(np.int32)
    local = Stored(_padded(orders).reshape(-1), offsets, assignment.capacity)
    return local, _padded(samples)


def members(assignment: Assignment, client: int) -> np.ndarray:
    """All sample indices of one client, on the host.

    Args:
      assignment: Who holds which samples, as NumPy or concrete device arrays.
      client: The client's number.

    Returns:
      Indices, int `[size of the client]`.
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


def _padded(lists: list[np.ndarray]) -> np.ndarray:
    longest = max(map(len, lists))
    rows = [np.pad(row, (0, longest - len(row))) for row in lists]
    return np.stack(rows).astype(np.int32)


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
