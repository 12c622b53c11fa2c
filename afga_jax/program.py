"""The compiled program of a block of rounds, on one device or on a mesh."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from afga_jax.execution import Execution
from afga_jax.placement import Placement

#: Rounds of a block: planned by the host while those before run.
AHEAD = 8


def compiled(
    round: Callable[..., tuple],
    where: Placement | None,
    execution: Execution = Execution(),
) -> Callable:
    """The program of some rounds; on a mesh, its devices share the work.

    Args:
      round: An algorithm's, or `seeds.seeded_round` of it.
      where: How the arguments lie on a mesh; None: on one device.
      execution: Passed on to `round`.
    """
    jit = functools.partial(jax.jit, donate_argnames="state")
    some_rounds = functools.partial(_rounds, round, execution)
    if where is None:
        return jit(some_rounds)
    nowhere = PartitionSpec()

    def rounds(key, **arguments):
        specs = where.specs(arguments["data"])
        names = {name: specs[name] for name in ("state", "data", "plans")}
        names |= {"begin": nowhere, "rounds": nowhere}
        shared = jax.shard_map(
            lambda key, all_: some_rounds(key, axis=where.axis, **all_),
            mesh=where.mesh,
            in_specs=(specs["key"], names),
            out_specs=(specs["state"], specs["infos"]),
            # Every device does the same with what they gather, which is not provable.
            check_vma=False,
        )
        return shared(key, arguments)

    return jit(rounds)


def _rounds(round, execution, key, *, state, data, plans, begin, rounds, axis=None):
    """`rounds` rounds from the `begin`-th of a block, whose plans are given."""
    # So that it is traced once, for the shapes and for the loop.
    round_ = jax.jit(round, static_argnames=("axis", "execution"))

    def one(number, state):
        plan, schedule = jax.tree.map(lambda x: x[begin + number], plans)
        return round_(key, state, data, plan, schedule, axis=axis, execution=execution)

    shape = jax.eval_shape(one, jnp.int32(0), state)[1]
    empty = jax.tree.map(lambda x: jnp.zeros((AHEAD, *x.shape), x.dtype), shape)

    def add(number, carry):
        state, infos = carry
        state, info = one(number, state)
        infos = jax.tree.map(lambda all_, x: all_.at[number].set(x), infos, info)
        return state, infos

    return jax.lax.fori_loop(0, rounds, add, (state, empty))
