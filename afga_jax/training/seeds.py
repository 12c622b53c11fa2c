"""Several seeds at once, in one program; and rounds that are watched for NaN."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec

from afga_jax.mesh import SEEDS, on_cpu
from afga_jax.recipe import FederatedState, RoundInfo
from afga_jax.rounds.execution import Execution
from afga_jax.typing import Array, PyTree


class Watched(NamedTuple):
    """Diagnostics of a round.

    Attributes:
      info: What the round itself says.
      finite: Whether the round's loss, the new model and the server's moments are free
        of NaN and infinity; without the loss where uploads that are not are left out.
    """

    info: RoundInfo
    finite: Array


def keys_of(first: int, count: int) -> Array:
    """The random keys of seeds `first`, `first + 1`, ...

    Args:
      first: The first seed.
      count: Number of seeds.

    Returns:
      One key for each seed, `[seeds]`.
    """
    return jax.vmap(jax.random.key)(jnp.arange(first, first + count))


def watched(state: FederatedState, info: RoundInfo) -> Watched:
    """For `Trainer(observe=...)`: a round's diagnostics, watched for NaN."""
    arrays: PyTree = (info.loss, state.params, state.stats, state.server)
    if jax.tree.leaves(info.contained):
        # The loss of a client that is left out may be NaN.
        arrays = arrays[1:]
    # One loop over all numbers: one for each array would take seconds to compile.
    return Watched(info, jnp.isfinite(ravel_pytree(arrays)[0]).all())


def seeded_init(init: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """An algorithm's `init` for one key, or for `[seeds]` of them."""

    def start(key: Array, **numbers: Any) -> PyTree:
        init_seed = functools.partial(init, **numbers)
        return each_seed(init_seed, key, several=key.ndim > 0)

    return start


def seeded_round(
    round: Callable[..., tuple], observe: Callable[..., PyTree]
) -> Callable[..., tuple]:
    """An algorithm's `round` for one key, or for `[seeds]` of them.

    With several keys the state, the plan, the schedule and what is observed have a
    leading axis of seeds; the data are the same for all.

    Args:
      round: The `round` of an algorithm.
      observe: `(state, info) -> what is kept of a round`.
    """

    def run(
        key: Array,
        state: PyTree,
        data: PyTree,
        *more: PyTree,
        execution: Execution = Execution(),
    ):
        def run_seed(row, data):
            key, state, *rest = row
            new, info = round(key, state, data, *rest, execution=execution)
            return new, observe(new, info)

        row, several = (key, state, *more), key.ndim > 0
        return each_seed(run_seed, row, data, several=several, mesh=execution.mesh)

    return run


def over_seeds(function: Callable[[Array], PyTree], keys: Array) -> PyTree:
    """Runs a function of a key for several keys in one program.

    By `vmap` on accelerators; one after another on CPU, where batching over seeds would
    batch the weights and slow every layer down.

    Args:
      function: A pure function of one key.
      keys: The random keys of the seeds, `[seeds]`.
    """
    if on_cpu():
        return jax.lax.map(function, keys)
    return jax.vmap(function)(keys)


def each_seed(
    function: Callable[..., PyTree],
    rows: PyTree,
    *same: PyTree,
    several: bool = True,
    mesh: Mesh | None = None,
) -> PyTree:
    """`over_seeds`; a single seed takes no loop, which would copy its state.

    Args:
      function: A function of one seed's row and of what is the same for all seeds.
      rows: Arrays with a leading axis of seeds, `[seeds, ...]`.
      *same: What is the same for all seeds. It is an argument, not closed over: on a
        mesh it must be one of `shard_map`.
      several: Whether there is an axis of seeds; without one it is the function itself.
      mesh: Devices; if they have an axis of seeds, each runs some of the seeds.
    """
    if not several:
        return function(rows, *same)

    def here(rows, *same):
        if len(jax.tree.leaves(rows)[0]) > 1:
            return over_seeds(lambda row: function(row, *same), rows)
        result = function(jax.tree.map(lambda x: x[0], rows), *same)
        return jax.tree.map(lambda x: jnp.expand_dims(x, 0), result)

    if mesh is None or SEEDS not in mesh.axis_names:
        return here(rows, *same)
    own = PartitionSpec(SEEDS)
    return jax.shard_map(
        here,
        mesh=mesh,
        in_specs=(own, *[PartitionSpec()] * len(same)),
        out_specs=own,
        axis_names={SEEDS},
        check_vma=False,
    )(rows, *same)
