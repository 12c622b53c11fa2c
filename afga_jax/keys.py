"""Random keys, by purpose and place.

Every draw has a key that is folded from what the draw is for and where it happens
(round, cycle, step, client or cluster), never from its position in an array or from a
`split` whose length matters. So a resumed run needs no bookkeeping, engines and devices
that order the work differently draw the same, and the same seed draws the same clients
for every algorithm.
"""

import enum

import jax

from afga_jax.typing import Array


class Purpose(enum.IntEnum):
    """What a draw is for; the numbers are part of what a seed means."""

    INIT = 0
    ACTIVE = 1
    UPLOAD = 2
    BATCH = 3
    DROPOUT = 4
    ORDER = 5


def fold(key: Array, purpose: Purpose, *places: Array | int) -> Array:
    """The key of one draw."""
    key = jax.random.fold_in(key, int(purpose))
    for place in places:
        key = jax.random.fold_in(key, place)
    return key


def batch_key(key: Array, round: Array, cycle: Array, step: Array, client: Array):
    """The key with which a client draws its batch at one local step."""
    return fold(key, Purpose.BATCH, round, cycle, step, client)


def dropout_key(key: Array, round: Array, cycle: Array, step: Array, client: Array):
    """The key of a client's other randomness (dropout) at one local step."""
    return fold(key, Purpose.DROPOUT, round, cycle, step, client)
