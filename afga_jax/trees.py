"""Operations on pytrees whose leaves have one row for each client, `[rows, ...]`."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from afga_jax.typing import Array, PyTree

#: Arrays that an accelerator joins at once. XLA's compiler for GPUs has at most 96
#: operands and results in a kernel: to one that joins more it adds nothing, and each
#: array is multiplied by the learning rate in a kernel of its own.
AT_ONCE = 64


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


class Packing:
    """How the arrays of a tree lie in few vectors, one for each type of numbers.

    Args:
      example: A tree of arrays, or of their shapes.
      most: How many arrays a vector holds at most; None: any number.

    >>> tree = {"w": jnp.array([[1.0], [2.0]]), "b": jnp.array(3.0)}
    >>> packing = Packing(tree)
    >>> [vector.tolist() for vector in packing.pack(tree)]
    [[3.0, 1.0, 2.0]]
    """

    def __init__(self, example: PyTree, most: int | None = None):
        leaves, self._structure = jax.tree.flatten(example)
        self._shapes = [x.shape for x in leaves]
        by_type: dict[Any, list[int]] = {}
        for place, x in enumerate(leaves):
            by_type.setdefault(x.dtype, []).append(place)
        most = most or len(leaves)
        #: Which arrays lie in each vector.
        self._places = [
            places[start : start + most]
            for places in by_type.values()
            for start in range(0, len(places), most)
        ]

    def pack(self, tree: PyTree) -> PyTree:
        """The vectors of a tree."""
        leaves = jax.tree.leaves(tree)
        return tuple(
            jnp.concatenate([leaves[place].reshape(-1) for place in places])
            for places in self._places
        )

    def unpack(self, vectors: tuple[Array, ...]) -> PyTree:
        """The tree of some vectors."""
        leaves: list[Any] = [None] * len(self._shapes)
        for places, vector in zip(self._places, vectors, strict=True):
            end = 0
            for place in places:
                start, end = end, end + math.prod(self._shapes[place])
                leaves[place] = vector[start:end].reshape(self._shapes[place])
        return jax.tree.unflatten(self._structure, leaves)


class Unpacked:
    """The same for trees that stay as they are."""

    def __init__(self, example: PyTree):
        del example

    def pack(self, tree: PyTree) -> PyTree:
        return tree

    unpack = pack


def joined(tree: PyTree, most: int | None = None) -> list[Array]:
    """The arrays of a tree in their order as vectors of at most `most` of them."""
    leaves = jax.tree.leaves(tree)
    most = most or len(leaves)
    starts = range(0, len(leaves), most)
    return [ravel_pytree(leaves[start : start + most])[0] for start in starts]


def ravel(tree: PyTree) -> tuple[Array, Callable[[Array], PyTree]]:
    """A tree as one vector, in the order of its packing, and the way back."""
    packing = Packing(tree)
    vector, vectors_of = ravel_pytree(packing.pack(tree))
    return vector, lambda vector: packing.unpack(vectors_of(vector))
