"""Rounds as a run executes them: for several seeds at once, and watched for NaN."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec

from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.execution import Execution
from afga_jax.mesh import SEEDS
from afga_jax.recipe import RoundInfo
from afga_jax.train import over_seeds
from afga_jax.typing import Array, PyTree


class Watched(NamedTuple):
    """Diagnostics of a round.

    Attributes:
      info: The round's own.
      finite: Whether its loss, the new model and the server's moments are free of NaN
        and infinity.
    """

    info: RoundInfo
    finite: Array


def keys_of(first: int, count: int) -> Array:
    """The keys of seeds `first`, `first + 1`, ...; one for each."""
    return jax.vmap(jax.random.key)(jnp.arange(first, first + count))


def seeded(algorithm: FederatedAlgorithm) -> FederatedAlgorithm:
    """The same algorithm for several seeds.

    Its functions take the keys of all seeds in place of one; the state, the diagnostics
    (`Watched`) and what else a round is given have a leading axis of seeds. The data
    are the same for all. So `Trainer` runs many rounds of many seeds in one
    program.
    """

    def init(keys: Array, **numbers: float) -> PyTree:
        return each_seed(lambda key: algorithm.init(key, **numbers), keys)

    def round(
        keys: Array,
        state: PyTree,
        data: PyTree,
        *more: PyTree,
        execution: Execution = Execution(),
    ):
        def one(row):
            key, state, *rest = row
            new, info = algorithm.round(key, state, data, *rest, execution=execution)
            seen = (info.loss, new.params, new.stats, new.server)
            return new, Watched(info, _finite(seen))

        return each_seed(one, (keys, state, *more), execution.mesh)

    return algorithm._replace(init=init, round=round)


def each_seed(
    function: Callable[[PyTree], PyTree], rows: PyTree, mesh: Mesh | None = None
) -> PyTree:
    """`over_seeds`; a single seed takes no loop, which would copy its state.

    Args:
      function: Of one seed's row.
      rows: `[seeds, ...]`.
      mesh: If it has an axis of seeds, each of its devices runs some of them.
    """

    def here(rows):
        if len(jax.tree.leaves(rows)[0]) > 1:
            return over_seeds(function, rows)
        result = function(jax.tree.map(lambda x: x[0], rows))
        return jax.tree.map(lambda x: jnp.expand_dims(x, 0), result)

    if mesh is None or SEEDS not in mesh.axis_names:
        return here(rows)
    own = PartitionSpec(SEEDS)
    return jax.shard_map(
        here,
        mesh=mesh,
        in_specs=(own,),
        out_specs=own,
        axis_names={SEEDS},
        check_vma=False,
    )(rows)


def _finite(tree: PyTree) -> Array:
    # One loop over all numbers: one for each array would take seconds to compile.
    return jnp.isfinite(ravel_pytree(tree)[0]).all()
