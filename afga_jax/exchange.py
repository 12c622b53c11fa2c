"""How clusters mix whose clients live on several devices: what is sent, and no more.

Each function is one kernel's mixing on a device's block of rows (`shares`), inside
`shard_map`. Neighbours on a grid send the rows at the edges of their blocks; means are
sums over devices; a matrix takes everybody's rows, one block after another, so that no
device ever holds more than two.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax.kernels import Average, Kernel, Shifts, Star, gossip
from afga_jax.shares import Share
from afga_jax.typing import Array, PyTree


def form_of(kernel: Kernel) -> Callable[[Kernel, Share], Callable] | None:
    """The form of a kernel in which clusters may span devices; None: by its matrix.

    A form takes the kernel, which is the same for each cluster, and the share.
    """
    forms: dict[type, Callable] = {
        Shifts: shifted,
        Average: averaged,
        Star: through_hub,
    }
    return forms.get(type(kernel))


def shifted(kernel: Shifts, share: Share) -> Callable[[PyTree], PyTree]:
    """Ring, torus, exponential graph: x ← mean over offsets of the shifted rows."""
    halo = edges(kernel, share.rows, share.devices)

    def mix(x):
        near = jnp.concatenate([x, *_received(halo, share.axis, x)])
        moves = [near[_own(source, share.axis)] - x for source in halo.sources]
        return x + sum(moves, jnp.zeros((), x.dtype)) * (1 / len(kernel.offsets))

    return lambda tree: jax.tree.map(mix, tree)


def averaged(kernel: Average, share: Share) -> Callable[[PyTree], PyTree]:
    """Everybody gets the mean of its cluster."""
    cluster, shares = _clusters(share, kernel.n)
    mean = lambda x: share.total(jnp.tensordot(shares.astype(x.dtype), x, 1))  # noqa: E731
    return lambda tree: jax.tree.map(lambda x: mean(x)[cluster], tree)


def through_hub(kernel: Star, share: Share) -> Callable[[PyTree], PyTree]:
    """The hub gets the mean, a leaf ((n−1)·leaf + hub)/n."""
    cluster, shares = _clusters(share, kernel.n)
    is_hub = share.place % kernel.n == 0
    wanted = jnp.concatenate([shares, (shares > 0) * is_hub[None]])
    clusters = len(shares)

    def mix(x):
        found = share.total(jnp.tensordot(wanted.astype(x.dtype), x, 1))
        hub, mean = found[clusters:][cluster], found[:clusters][cluster]
        here = is_hub.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.where(here, mean, x + (hub - x) * (1 / kernel.n))

    return lambda tree: jax.tree.map(mix, tree)


def by_matrix(
    weights: Callable[[Array, Array], Array], share: Share
) -> Callable[[PyTree], PyTree]:
    """Any matrix: blocks of rows go round the devices.

    Args:
      weights: `(to, from) -> [to, from]`, of places among all rows.
      share: Of the rows.
    """
    devices, size = share.devices, share.size
    onward = [(device, (device - 1) % devices) for device in range(devices)]

    def add(number, total, block):
        first = (jax.lax.axis_index(share.axis) + number) % devices * size
        part = weights(share.place, first + jnp.arange(size))
        return jax.tree.map(jnp.add, total, gossip(part, block))

    def apply(tree):
        def turn(number, carry):
            total, block = carry
            block = jax.lax.ppermute(block, share.axis, onward)
            return add(number, total, block), block

        total = add(0, jax.tree.map(jnp.zeros_like, tree), tree)
        return jax.lax.fori_loop(1, devices, turn, (total, tree))[0]

    return apply


class Edges(NamedTuple):
    """What each device sends so that all have their rows' neighbours.

    Attributes:
      sends: For each distance between devices, the pairs (from, to) and the rows that
        are sent, `[devices, rows]`.
      sources: For each offset that moves, where each row's neighbour lies: among the
        device's own rows, followed by what it receives, `[devices, size]`.
    """

    sends: list[tuple[list[tuple[int, int]], np.ndarray]]
    sources: list[np.ndarray]

    @property
    def rows(self) -> int:
        """Rows that are sent in one mixing, by all devices."""
        return sum(len(pairs) * table.shape[1] for pairs, table in self.sends)


def edges(kernel: Shifts, rows: int, devices: int) -> Edges:
    """What devices send each other for shifts in clusters whose rows follow each other.

    Args:
      kernel: Of each cluster.
      rows: Of all clusters.
      devices: That hold them in equal blocks.
    """
    size = -(-rows // devices)
    grid = np.arange(rows).reshape(-1, *kernel.shape)
    axes = tuple(range(1, grid.ndim))
    offsets = [offset for offset in kernel.offsets if any(offset)]
    # Rows that are nobody's stay as they are.
    whole = np.arange(devices * size)
    neighbours = np.stack([whole] * len(offsets)) if offsets else whole[:0, None]
    for number, offset in enumerate(offsets):
        neighbours[number, :rows] = np.roll(grid, offset, axes).ravel()
    neighbours = neighbours.reshape(-1, devices, size)
    sources = neighbours - np.arange(devices)[None, :, None] * size
    sends, start = [], size
    for apart in range(1, devices):
        pairs, lists = [], [np.zeros(0, int)] * devices
        for to in range(devices):
            sender = (to + apart) % devices
            needed = neighbours[:, to] // size == sender
            found = np.unique(neighbours[:, to][needed])
            lists[sender] = found - sender * size
            at = np.searchsorted(found, neighbours[:, to])
            sources[:, to] = np.where(needed, start + at, sources[:, to])
            if len(found):
                pairs.append((sender, to))
        if pairs:
            table = np.zeros((devices, max(map(len, lists))), int)
            for row, one in zip(table, lists, strict=True):
                row[: len(one)] = one
            sends.append((pairs, table))
            start += table.shape[1]
    return Edges(sends, list(sources))


def _received(halo: Edges, axis: str, x: Array) -> list[Array]:
    return [
        jax.lax.ppermute(x[_own(table, axis)], axis, pairs)
        for pairs, table in halo.sends
    ]


def _own(table: np.ndarray, axis: str) -> Array | np.ndarray:
    """A device's row of a table; where all are the same, a constant of the program."""
    if (table == table[0]).all():
        return table[0]
    return jnp.asarray(table, jnp.int32)[jax.lax.axis_index(axis)]


def _clusters(share: Share, width: int) -> tuple[Array, Array]:
    """The cluster of each row, and each row's share in every cluster's mean."""
    clusters = share.rows // width
    cluster = jnp.minimum(share.place // width, clusters - 1)
    real = (share.place < share.rows) / width
    return cluster, jax.nn.one_hot(cluster, clusters, axis=0, dtype=float) * real[None]
