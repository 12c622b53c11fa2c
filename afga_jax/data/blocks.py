"""Clients' samples in blocks over devices: each device has its own clients' only."""

import numpy as np

from afga_jax.data.assignment import Stored


def dealt(assignment: Stored, blocks: np.ndarray) -> tuple[Stored, np.ndarray]:
    """Who holds which samples, counted anew on each device.

    Args:
      assignment: Of all clients, on the host.
      blocks: The clients of each device, `[devices, rows]`; ids past the last are
        nobody's.

    Returns:
      The devices' assignments one after another in every array, clients numbered by
      their rows, and the samples of each device, `[devices, samples]`; what fills up a
      shorter list is never asked for.
    """
    offsets = np.append(assignment.offsets, assignment.offsets[-1])
    orders, starts, samples = [], [], []
    for ids in blocks:
        sizes = offsets[ids + 1] - offsets[ids]
        own = np.concatenate([[0], np.cumsum(sizes)])
        within = np.arange(own[-1]) - np.repeat(own[:-1], sizes)
        held = assignment.order[np.repeat(offsets[ids], sizes) + within]
        distinct, position = np.unique(held, return_inverse=True)
        orders.append(position)
        starts.append(own)
        samples.append(distinct)
    local = Stored(
        _stacked(orders).reshape(-1),
        np.concatenate(starts).astype(np.int32),
        assignment.capacity,
    )
    return local, _stacked(samples)


def _stacked(lists: list[np.ndarray]) -> np.ndarray:
    longest = max(map(len, lists))
    return np.stack([np.pad(one, (0, longest - len(one))) for one in lists]).astype(
        np.int32
    )
