"""Fewer bits: compressors, and uploads that are compressed with error feedback.

A compressor is a contraction, E‖C(x) − x‖² ≤ (1 − δ)‖x‖² with some δ > 0, as error
feedback and CHOCO need it. Values count 32 bits, and randomness that sender and
receiver can draw alike costs nothing but its seed.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from afga_jax import checks
from afga_jax.optimizers.aggregators import Aggregator, AggregatorState
from afga_jax.typing import Array

_VALUE, _SEED = 32, 64


class Compressor(NamedTuple):
    """Makes a vector cheaper to send.

    Attributes:
      compress: `(key, x) -> C(x)`, both `[d]`.
      bits: `d -> bits` of what is sent.
    """

    compress: Callable[[Array, Array], Array]
    bits: Callable[[int], float]


def top_k(ratio: float) -> Compressor:
    """The k = ratio·d numbers of largest size; δ = k/d. Each has its value and index.

    Args:
      ratio: k/d; at least one number is sent.
    """
    count = _counted(ratio)

    def compress(key, x):
        _, largest = jax.lax.top_k(jnp.abs(x), count(x.size))
        return jnp.zeros_like(x).at[largest].set(x[largest])

    def bits(d):
        return count(d) * (_VALUE + math.ceil(math.log2(max(d, 2))))

    return Compressor(compress, bits)


def random_k(ratio: float) -> Compressor:
    """As many numbers as k = ratio·d, by chance; δ = k/d. The seed says which.

    Args:
      ratio: k/d; at least one number is sent.
    """
    count = _counted(ratio)

    def compress(key, x):
        chosen = jax.random.choice(key, x.size, (count(x.size),), replace=False)
        return jnp.zeros_like(x).at[chosen].set(x[chosen])

    return Compressor(compress, lambda d: count(d) * _VALUE + _SEED)


def sign() -> Compressor:
    """The scaled sign, ‖x‖₁/d·sign(x); δ = ‖x‖₁²/(d‖x‖²)."""

    def compress(key, x):
        return jnp.abs(x).mean() * jnp.where(x < 0, -1, 1).astype(x.dtype)

    return Compressor(compress, lambda d: d + _VALUE)


def qsgd(bits: int) -> Compressor:
    """Random rounding to s = 2^(bits−1) − 1 levels and a sign, scaled to a contraction.

        C(x) = ‖x‖/(s·c)·sign(x)·⌊s·|x|/‖x‖ + u⌋, u ~ U[0, 1), c = 1 + min(d/s², √d/s)

    δ = 1/c.

    Args:
      bits: Bits of a number, its sign among them; at least 2.

    Reference: Alistarh et al., QSGD, 2017; scaled as in Koloskova, Stich and Jaggi,
    Decentralized stochastic optimization and gossip algorithms with compressed
    communication, 2019.
    """
    checks.integer("bits", bits, at_least=2, at_most=16)
    levels = 2 ** (bits - 1) - 1

    def compress(key, x):
        norm = jnp.linalg.norm(x)
        part = jnp.abs(x) / jnp.where(norm > 0, norm, 1)
        drawn = jax.random.uniform(key, x.shape, x.dtype)
        level = jnp.floor(levels * part + drawn)
        scale = 1 + min(x.size / levels**2, x.size**0.5 / levels)
        return norm / (levels * scale) * jnp.sign(x) * level

    return Compressor(compress, lambda d: d * bits + _VALUE)


#: Compressors by name.
COMPRESSORS: dict[str, Callable[..., Compressor]] = {
    make.__name__: make for make in (top_k, random_k, sign, qsgd)
}


def with_error_feedback(aggregator: Aggregator, compressor: Compressor) -> Aggregator:
    """An aggregator of compressed uploads; each client remembers what it did not send.

        Δ̂ᵢ = C(Δᵢ + eᵢ), eᵢ ← Δᵢ + eᵢ − Δ̂ᵢ for who uploads

    With FedAMS on the server this is FedCAMS. Liars keep to the format: their lies are
    compressed as well.

    Args:
      aggregator: What is done with the Δ̂ᵢ.
      compressor: C.

    Reference: Wang, Lin and Chen, Communication-efficient adaptive federated learning,
    2022.
    """

    def init(params):
        inner = aggregator.init(params)
        return inner._replace(clients=(jnp.zeros_like(params), inner.clients))

    def apply(key, deltas, weights, state, ids, **more):
        errors, own = state.clients
        wanted = deltas + errors
        keys = jax.vmap(lambda client: jax.random.fold_in(key, client))(ids)
        sent = jax.vmap(compressor.compress)(keys, wanted)
        # Padding has somebody's error.
        sent = jnp.where(weights[:, None] > 0, sent, 0)
        inner = AggregatorState(state.server, own)
        delta, inner, info = aggregator.apply(key, sent, weights, inner, ids, **more)
        clients = (wanted - sent, inner.clients)
        return delta, AggregatorState(inner.server, clients), info

    return aggregator._replace(
        init=init,
        apply=apply,
        linear=False,
        upload_bytes=lambda d: math.ceil(compressor.bits(d) / 8),
    )


def _counted(ratio: float) -> Callable[[int], int]:
    checks.number("ratio", ratio, above=0, at_most=1)
    return lambda d: max(1, round(ratio * d))
