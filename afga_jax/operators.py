"""The mixing of one step: what is done to the rows, on one device or on several."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from afga_jax.shares import Share
from afga_jax.typing import Array, PyTree


class Operator(NamedTuple):
    """The mixing of one step, on trees whose leaves are `[rows, ...]`.

    Attributes:
      apply: The cheapest exact form, of all rows.
      matrix: The plain reference.
      split: `share -> apply`, of a device's block of rows; None: every device gathers
        all rows for it.
    """

    apply: Callable[[PyTree], PyTree]
    matrix: Callable[[], Array]
    split: Callable[[Share], Callable[[PyTree], PyTree]] | None = None

    def on(self, share: Share) -> Callable[[PyTree], PyTree]:
        """`apply` for the rows that a device holds."""
        if share.axis is None:
            return self.apply
        return share.gathered(self.apply) if self.split is None else self.split(share)


def same(tree: PyTree) -> PyTree:
    """Nothing is mixed."""
    return tree


def identity(like: Operator) -> Operator:
    """Nothing is mixed, on the rows of another operator."""
    return Operator(same, lambda: jnp.eye(len(like.matrix())), lambda share: same)


def either(condition: Array, first: Operator, second: Operator) -> Operator:
    """The first where the condition holds, the second otherwise."""

    def choose(one: Callable, other: Callable) -> Callable:
        return lambda tree: jax.lax.cond(condition, one, other, tree)

    return Operator(
        choose(first.apply, second.apply),
        lambda: jnp.where(condition, first.matrix(), second.matrix()),
        lambda share: choose(first.on(share), second.on(share)),
    )


def in_blocks(mix: Callable, groups: int) -> Callable:
    """A function of `[groups, rows, ...]` as one of `[groups · rows, ...]`."""

    def apply(tree):
        split = lambda x: x.reshape(groups, -1, *x.shape[1:])  # noqa: E731
        mixed = mix(jax.tree.map(split, tree))
        return jax.tree.map(lambda x, like: x.reshape(like.shape), mixed, tree)

    return apply


def ring_of_first(count: Array, width: int) -> Array:
    """The ring's matrix over the first `count` of `width` places."""
    place = jnp.arange(width)
    number = jnp.maximum(count, 1)
    neighbours = [place, (place + 1) % number, (place - 1) % number]
    ring = sum(jax.nn.one_hot(n, width, dtype=float) for n in neighbours) / 3
    pair = (
        jax.nn.one_hot(place, width, dtype=float)
        + jax.nn.one_hot(1 - place, width, dtype=float)
    ) / 2
    ring = jnp.where(count == 2, pair, ring)
    real = place < count
    return jnp.where(real[:, None], ring, jnp.eye(width))
