"""Operations on pytrees whose leaves have one row for each client, `[rows, ...]`."""

import jax
import jax.numpy as jnp

from afga_jax.typing import Array, PyTree


def take(tree: PyTree, rows: Array) -> PyTree:
    """Picks rows by their numbers; past the last row, the last one."""
    return jax.tree.map(lambda x: x.at[rows].get(mode="clip"), tree)


def put(tree: PyTree, rows: Array, new: PyTree) -> PyTree:
    """Replaces rows; past the last row, nothing happens."""
    return jax.tree.map(lambda x, y: x.at[rows].set(y, mode="drop"), tree, new)


def add(tree: PyTree, rows: Array, change: PyTree) -> PyTree:
    """Adds to rows; past the last row, nothing happens."""
    return jax.tree.map(lambda x, y: x.at[rows].add(y, mode="drop"), tree, change)


def repeat(tree: PyTree, count: int) -> PyTree:
    """The same row for everybody."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *jnp.shape(x))), tree)


def weighted_sum(weights: Array, tree: PyTree) -> PyTree:
    """Σᵢ wᵢ·xᵢ; a row of weight zero is padding and may hold anything, even NaN."""

    def of_leaf(x):
        real = (weights != 0).reshape(-1, *[1] * (x.ndim - 1))
        kept = jnp.where(real, x, jnp.zeros_like(x))
        return jnp.tensordot(weights.astype(x.dtype), kept, 1)

    return jax.tree.map(of_leaf, tree)


def spread(weights: Array, tree: PyTree, center: PyTree) -> Array:
    """Σᵢ wᵢ·‖xᵢ − center‖²."""

    def of_leaf(x, c):
        return ((x - c[None]) ** 2).reshape(len(x), -1).sum(1)

    squares = sum(jax.tree.leaves(jax.tree.map(of_leaf, tree, center)))
    return weighted_sum(weights, squares)


def with_dtypes_of(like: PyTree, tree: PyTree) -> PyTree:
    """Keeps the state's dtypes, whatever precision the hyper-parameters have."""
    return jax.tree.map(lambda y, x: jnp.asarray(x, y.dtype), like, tree)
