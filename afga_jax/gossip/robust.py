"""Gossip that liars cannot bend as they like, and what liars say in gossip.

A `Defence` says how one client joins its neighbours' messages. What comes out is no
linear function of the models, and their mean is not preserved: such gossip runs in the
dense engine only, where every gradient then counts as needed. A message is everything
that is mixed, as one vector; one that is not finite is left out, and its weight goes
back to the receiver.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from afga_jax import checks
from afga_jax.gossip.base import Around, Mixing
from afga_jax.gossip.operators import Operator, on_first
from afga_jax.optimizers.attacks import Attack
from afga_jax.typing import Array, PyTree

# A receiver's model `[d]`, its neighbours' `[k, d]` and their weights `[k]`, zero for
# who is no neighbour, to the receiver's next model.
Receive = Callable[[Array, Array, Array], Array]


class Defence(NamedTuple):
    """How a client joins its neighbours' messages.

    Attributes:
      receive: `(own, messages, weights) -> own`: the model `[d]`, what neighbours sent
        `[k, d]`, and their weights `[k]`, zero for who is no neighbour.
      least_neighbours: Number of neighbours that every client must have.
    """

    receive: Receive
    least_neighbours: int = 1


def clipped(b: int | None = None, radius: float | None = None) -> Defence:
    """ClippedGossip: a neighbour pulls by at most its weight times τᵢ.

        xᵢ ← xᵢ + Σⱼ Wᵢⱼ·(xⱼ − xᵢ)·min(1, τᵢ/‖xⱼ − xᵢ‖)
        τᵢ² = Σⱼ Wᵢⱼ·‖xⱼ − xᵢ‖²/δᵢ

    The sum in τᵢ is over honest neighbours, and δᵢ is the weight of the others. Who is
    honest is not known: the b farthest neighbours are taken for liars.

    Args:
      b: Number of liars that is assumed among a client's neighbours, at least 1, for
        the radius that adapts.
      radius: τ for everybody in its place.

    Reference: He, Karimireddy and Jaggi, Byzantine-robust decentralized learning via
    ClippedGossip, 2022.
    """
    if (b is None) == (radius is None):
        raise ValueError(
            f"b = {b} and radius = {radius}, but one of them sets how far a neighbour "
            "may pull: give b, the liars assumed among neighbours, or radius."
        )
    if radius is not None:
        checks.number("radius", radius, above=0)
    else:
        checks.integer("b", b, at_least=1)

    def receive(own, messages, weights):
        apart = messages - own[None]
        distances = jnp.linalg.norm(apart, axis=1)
        limit = _adaptive(distances, weights, b) if radius is None else radius
        far = distances > limit
        scale = jnp.where(far, limit / jnp.where(far, distances, 1), 1)
        return own + (weights * scale).astype(own.dtype) @ apart

    return Defence(receive, 1 if b is None else b + 1)


def trimmed_mean(b: int) -> Defence:
    """The mean of the own number and the neighbours' without the b largest, smallest.

        xᵢ[k] ← (xᵢ[k] + Σ of the nᵢ − 2b middle xⱼ[k])/(nᵢ − 2b + 1)

    Neighbours count the same. Who has 2b of them or fewer keeps its model.

    Args:
      b: Number of liars that is assumed among a client's neighbours.

    Reference: Fang, Yang and Bajwa, BRIDGE, 2022.
    """
    checks.integer("b", b, at_least=0)

    def receive(own, messages, weights):
        real = weights > 0
        count, place = real.sum(), jnp.arange(len(messages))
        ordered = jnp.sort(jnp.where(real[:, None], messages, jnp.inf), axis=0)
        kept = (place >= b) & (place < count - b)
        total = own + jnp.where(kept[:, None], ordered, 0).sum(0)
        return total / (1 + jnp.maximum(count - 2 * b, 0))

    return Defence(receive, 2 * b + 1)


#: Defences in gossip by name.
DEFENCES: dict[str, Callable[..., Defence]] = {
    make.__name__: make for make in (clipped, trimmed_mean)
}


@dataclass(frozen=True)
class Guarded(Around):
    """Another mixing, with liars or a defence against them.

    Attributes:
      mixing: Who mixes with whom, and by which weights.
      defence: How messages are joined; None: by the weights.
      attack: What liars do; only what they say to neighbours is looked at.
      num_clients: N.
    """

    defence: Defence | None
    attack: Attack | None
    num_clients: int

    linear = False

    def at(self, plan, step, cycle=0):
        inner = self.mixing.at(plan, step, cycle)
        ids = self.rows(plan, cycle)

        def apply(tree, mesh=None):
            matrix = inner.matrix()
            # Which rows lie to their neighbours.
            lying = jnp.zeros(len(matrix), bool)
            if self.attack is not None and self.attack.dissensus is not None:
                lying = self.attack.liars(plan.key, self.num_clients)
                if ids is not None:
                    lying = lying.at[ids].get(mode="fill", fill_value=False)
            mix = lambda tree: self._mixed(matrix, lying, tree)  # noqa: E731
            return on_first(len(matrix), mix, tree)

        return Operator(apply, inner.matrix)

    def _mixed(self, matrix: Array, lying: Array, tree: PyTree) -> PyTree:
        count = len(matrix)
        if count == 1:
            return tree
        models = jax.vmap(lambda row: ravel_pytree(row)[0])(tree)
        _, unravel = ravel_pytree(jax.tree.map(lambda x: x[0], tree))
        known = self.degrees()
        most = count - 1 if known is None else max(int(known.max()), 1)
        others = jnp.where(jnp.eye(count, dtype=bool), 0, matrix)
        weights, sources = jax.lax.top_k(others, most)

        def next_model(inputs):
            own, source, weight, lies = inputs
            messages = models[source]
            if self.attack is not None and self.attack.dissensus is not None:
                told = lying[source] & ~lies
                lie = _dissent(self.attack.dissensus, own, messages, weight, told)
                messages = jnp.where(told[:, None], lie[None], messages)
            if self.defence is None:
                return own + weight.astype(own.dtype) @ (messages - own[None])
            finite = jnp.isfinite(messages).all(1)
            weight = jnp.where(finite, weight, 0)
            messages = jnp.where(finite[:, None], messages, own[None])
            return self.defence.receive(own, messages, weight)

        mixed = jax.lax.map(next_model, (models, sources, weights, lying))
        return jax.vmap(unravel)(mixed)


def check_neighbours(mixing: Mixing, defence: Defence) -> None:
    """Refuses a defence that needs more neighbours than some client has."""
    degrees = mixing.degrees()
    if degrees is not None and degrees.min() < defence.least_neighbours:
        raise ValueError(
            f"the defence in gossip needs {defence.least_neighbours} neighbours for "
            f"everybody, but a client has {degrees.min()}: assume fewer liars, or take "
            "a topology with more links, such as 'exponential' or 'complete'."
        )


def _adaptive(distances: Array, weights: Array, b: int | None) -> Array:
    """τᵢ, with the b farthest neighbours taken for liars."""
    # Who is no neighbour comes last, after the farthest.
    order = jnp.argsort(jnp.where(weights > 0, -distances, jnp.inf))
    suspect = jnp.zeros(len(order), bool).at[order[:b]].set(True) & (weights > 0)
    weight = jnp.where(suspect, weights, 0).sum()
    squares = jnp.where(suspect, 0, weights * distances**2).sum()
    return jnp.sqrt(squares / jnp.where(weight > 0, weight, 1))


def _dissent(
    scale: float, own: Array, messages: Array, weights: Array, told: Array
) -> Array:
    """What liars tell a client, so that it moves against its honest neighbours.

    x_j = xᵢ − ε·Σ_honest Wᵢₖ(xₖ − xᵢ)/Σ_liars Wᵢⱼ
    """
    honest = jnp.where(told, 0, weights).astype(own.dtype)
    weight = jnp.where(told, weights, 0).sum()
    pull = honest @ (messages - own[None])
    return own - scale * pull / jnp.where(weight > 0, weight, 1)
