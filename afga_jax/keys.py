"""Random keys, by purpose and place.

Every draw has a key that is folded from what the draw is for and where it happens
(round, cycle, step, client or cluster), never from its position in an array or from a
`split` whose length matters. So a resumed run needs no bookkeeping, engines and devices
that order the work differently draw the same, and the same seed draws the same clients
for every algorithm.
"""

import enum

import jax
import jax.numpy as jnp

from afga_jax.typing import Array


class Purpose(enum.IntEnum):
    """What a draw is for; the numbers are part of what a seed means."""

    INIT = 0
    ACTIVE = 1
    UPLOAD = 2
    BATCH = 3
    DROPOUT = 4
    ORDER = 5
    AGGREGATE = 6
    MIXING = 7
    CLIENT_DROPOUT = 8
    STRAGGLER = 9
    UPLOAD_LOSS = 10
    LINK_FAILURE = 11
    LIARS = 12
    LIE = 13
    COMPRESS = 14


# Purpose, step and cycle share one 32-bit word, since each fold costs compile time.
_PURPOSE_BITS, _STEP_BITS, _CYCLE_BITS = 3, 17, 12
MAX_STEPS, MAX_CYCLES = 2**_STEP_BITS, 2**_CYCLE_BITS
# Purposes that do not fit have a run's key of their own: no round has this number.
_NO_ROUND = 2**31


def place_key(
    key: Array,
    purpose: Purpose | Array,
    round: Array | int,
    cycle: Array | int = 0,
    step: Array | int = 0,
) -> Array:
    """The key of what happens for one purpose at one place of a run.

    Args:
      key: The run's key.
      purpose: What is drawn; as an array only the first eight, up to `MIXING`.
      round: Number of the round, from 0.
      cycle: Number of the cycle in the round, below `MAX_CYCLES`.
      step: Number of the local step in the cycle, below `MAX_STEPS`.
    """
    if isinstance(purpose, Purpose) and purpose >> _PURPOSE_BITS:
        key = jax.random.fold_in(key, _NO_ROUND + (purpose >> _PURPOSE_BITS))
        purpose = purpose % 2**_PURPOSE_BITS
    words = [jnp.asarray(x, jnp.uint32) for x in (cycle, step, purpose)]
    cycle, step, purpose = words
    position = (((cycle << _STEP_BITS) + step) << _PURPOSE_BITS) + purpose
    return jax.random.fold_in(jax.random.fold_in(key, round), position)


def batch_key(
    key: Array, round: Array, cycle: Array | int, step: Array, client: Array
) -> Array:
    """The key with which a client draws its batch at one local step."""
    step_key = place_key(key, Purpose.BATCH, round, cycle, step)
    return jax.random.fold_in(step_key, client)


def dropout_key(
    key: Array, round: Array, cycle: Array | int, step: Array, client: Array
) -> Array:
    """The key of a client's other randomness (dropout) at one local step."""
    step_key = place_key(key, Purpose.DROPOUT, round, cycle, step)
    return jax.random.fold_in(step_key, client)


def typed(key: Array) -> Array:
    """A run's key, or several seeds', as JAX's typed keys.

    Args:
      key: From `jax.random.key`, or from `jax.random.PRNGKey`, whose plain numbers
        stand for the same key.

    Example:
      >>> typed(jax.random.PRNGKey(3)) == jax.random.key(3)
      Array(True, dtype=bool)
    """
    dtype = getattr(key, "dtype", None)
    if dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        return key
    width = jax.random.key_data(jax.random.key(0)).shape
    if dtype != jnp.uint32 or key.shape[-1:] != width:
        raise ValueError(
            f"key = {key!r}, but it must be a random key: pass jax.random.key(0)."
        )
    return jax.random.wrap_key_data(key)
