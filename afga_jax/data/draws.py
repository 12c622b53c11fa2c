"""Whole numbers from random bits."""

import jax.numpy as jnp

from afga_jax.typing import Array


def below(bits: Array, bound: Array | int) -> Array:
    """⌊bits · bound / 2³²⌋: random numbers from 0 up to, and without, `bound`.

    As even as 2³² values can be dealt to `bound` numbers: some get one value more. One
    set of bits is enough, where `jax.random.randint` splits a key and draws two: on CPU
    each of these takes a tenth of a second to compile.

    Args:
      bits: uint32, all values equally likely.
      bound: Up to 2³¹; broadcast against `bits`.

    Returns:
      int32, of the shape of `bits`.

    Example:
      >>> below(jnp.array([0, 2**31, 2**32 - 1], jnp.uint32), 10).tolist()
      [0, 5, 9]
    """
    bound = jnp.asarray(bound).astype(jnp.uint32)
    # The upper half of the 64-bit product, from products of 16-bit halves.
    high, low = bits >> 16, bits & 0xFFFF
    bound_high, bound_low = bound >> 16, bound & 0xFFFF
    first = high * bound_low + (low * bound_low >> 16)
    second = low * bound_high + (first & 0xFFFF)
    return (high * bound_high + (first >> 16) + (second >> 16)).astype(jnp.int32)
