"""The compiled program of a block of rounds, on one device or on a mesh."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from afga_jax.execution import Execution
from afga_jax.placement import Placement

#: Rounds of a block: planned by the host while those before run.
AHEAD = 8


def compiled(
    round: Callable[..., tuple],
    execution: Execution = Execution(),
    where: Placement | None = None,
) -> Callable:
    """The program of some rounds; on a mesh, the compiler partitions it.

    Args:
      round: An algorithm's, or `seeds.seeded_round` of it.
      execution: Passed on to `round`.
      where: How the arguments lie on a mesh; None: on one device.
    """
    rounds = functools.partial(_rounds, round, execution)
    if where is None:
        return jax.jit(rounds, donate_argnames="state")
    shardings = (where.shardings("state"), where.shardings("infos"))
    return jax.jit(rounds, donate_argnames="state", out_shardings=shardings)


def _rounds(round, execution, key, *, state, data, plans, begin, rounds):
    """`rounds` rounds from the `begin`-th of a block, whose plans are given."""
    # So that it is traced once, for the shapes and for the loop.
    round_ = jax.jit(round, static_argnames="execution")

    def one(number, state):
        plan, schedule = jax.tree.map(lambda x: x[begin + number], plans)
        return round_(key, state, data, plan, schedule, execution=execution)

    shape = jax.eval_shape(one, jnp.int32(0), state)[1]
    empty = jax.tree.map(lambda x: jnp.zeros((AHEAD, *x.shape), x.dtype), shape)

    def add(number, carry):
        state, infos = carry
        state, info = one(number, state)
        infos = jax.tree.map(lambda all_, x: all_.at[number].set(x), infos, info)
        return state, infos

    return jax.lax.fori_loop(0, rounds, add, (state, empty))
