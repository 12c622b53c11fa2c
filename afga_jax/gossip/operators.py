"""The mixing of one step: what is done to the rows."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # `scipy.sparse` is imported where it is used first
from jax.sharding import Mesh

from afga_jax.gossip.kernels import gossip
from afga_jax.mesh import CLIENTS, COPIED, ROWS, blocks_of, over_blocks
from afga_jax.typing import Array, PyTree


class Operator(NamedTuple):
    """The mixing of one step, on trees whose leaves are `[rows, ...]`.

    Attributes:
      apply: `(tree, mesh=None) -> tree` in the cheapest exact form; the devices of a
        mesh share the rows.
      matrix: `() -> W`, `[rows, rows]`, the plain reference.
      exchange: `(models, public, mesh=None) -> (models, public)` in place of `apply`,
        for mixing that remembers what neighbours know of each model; None: it does not.
    """

    apply: Callable[..., PyTree]
    matrix: Callable[[], Array]
    exchange: Callable[..., tuple[PyTree, Array]] | None = None


def same(tree: PyTree, mesh: Mesh | None = None) -> PyTree:
    """Nothing is mixed."""
    return tree


def identity(like: Operator) -> Operator:
    """Nothing is mixed, on the rows of another operator."""
    return Operator(same, lambda: jnp.eye(len(like.matrix())))


def either(condition: Array, first: Operator, second: Operator) -> Operator:
    """The first where the condition holds, the second otherwise."""

    def apply(tree, mesh=None):
        mix = lambda operator: lambda tree: operator.apply(tree, mesh)  # noqa: E731
        return jax.lax.cond(condition, mix(first), mix(second), tree)

    return Operator(
        apply, lambda: jnp.where(condition, first.matrix(), second.matrix())
    )


def by_matrix(weights: Array) -> Operator:
    """Any matrix of all rows, `[rows, rows]`."""

    def apply(tree, mesh=None):
        if mesh is None:
            return gossip(weights, tree)

        def at(table, to, source):
            # Rows that fill up a device's block are nobody's.
            return table.at[to[:, None], source[None]].get(mode="fill", fill_value=0)

        return by_blocks(at, weights, tree, mesh)

    return Operator(apply, lambda: weights)


def by_blocks(
    weights: Callable[..., Array], table: Array, tree: PyTree, mesh: Mesh
) -> PyTree:
    """Any matrix where devices share the rows: blocks of rows go round the devices.

    No device holds more than two blocks; a compiler would gather all rows on each.

    Args:
      weights: `(table, to, from) -> W[to, from]` for numbers of rows.
      table: Array that the weights are taken from; every device has it.
      tree: Arrays of one row per client, `[rows, ...]`.
      mesh: Devices that share the rows.
    """
    devices = blocks_of(mesh)
    onward = [(device, (device - 1) % devices) for device in range(devices)]

    def mix(table, tree):
        size = len(jax.tree.leaves(tree)[0])
        me = jax.lax.axis_index(CLIENTS)

        def add(number, total, block):
            source = (me + number) % devices * size + jnp.arange(size)
            part = weights(table, me * size + jnp.arange(size), source)
            return jax.tree.map(jnp.add, total, gossip(part, block))

        def pass_on(number, carry):
            total, block = carry
            block = jax.lax.ppermute(block, CLIENTS, onward)
            return add(number, total, block), block

        total = add(0, jax.tree.map(jnp.zeros_like, tree), tree)
        return jax.lax.fori_loop(1, devices, pass_on, (total, tree))[0]

    return over_blocks(mix, mesh, (COPIED, ROWS), ROWS)(table, tree)


def on_first(count: int, mix: Callable[[PyTree], PyTree], tree: PyTree) -> PyTree:
    """Mixes the first `count` rows; those behind them are nobody's."""
    if len(jax.tree.leaves(tree)[0]) == count:
        return mix(tree)
    mixed = mix(jax.tree.map(lambda x: x[:count], tree))
    return jax.tree.map(lambda x, y: x.at[:count].set(y), tree, mixed)


def ring_of_first(count: Array, width: int) -> Array:
    """The ring's matrix over the first `count` of `width` clients."""
    client = jnp.arange(width)
    number = jnp.maximum(count, 1)
    neighbours = [client, (client + 1) % number, (client - 1) % number]
    ring = sum(jax.nn.one_hot(n, width, dtype=float) for n in neighbours) / 3
    pair = (
        jax.nn.one_hot(client, width, dtype=float)
        + jax.nn.one_hot(1 - client, width, dtype=float)
    ) / 2
    ring = jnp.where(count == 2, pair, ring)
    real = client < count
    return jnp.where(real[:, None], ring, jnp.eye(width))


def sparse_rings(
    active: Array, ids: np.ndarray, num_clients: int
) -> "scipy.sparse.csr_array":
    """A ring over the active of each group; everybody else keeps its model.

    Args:
      active: Ids of the clients that mix, `[groups, width]`; `num_clients` is padding.
      ids: Ids of all clients that have a row, sorted.
      num_clients: N.
    """
    keeps = np.ones(len(ids), bool)
    entries = []
    for group in np.asarray(active):
        row = np.searchsorted(ids, group[group < num_clients])
        if len(row) < 2:
            continue
        keeps[row] = False
        shifts = (0, 1) if len(row) == 2 else (-1, 0, 1)
        weight = np.full(len(row), 1 / len(shifts))
        entries += [(row, np.roll(row, -shift), weight) for shift in shifts]
    others = np.flatnonzero(keeps)
    entries.append((others, others, np.ones(len(others))))
    rows, columns, weights = map(np.concatenate, zip(*entries, strict=True))
    shape = (len(ids), len(ids))
    return scipy.sparse.csr_array((weights, (rows, columns)), shape=shape)
