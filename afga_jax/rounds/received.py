"""What may happen to uploads before the server joins them: lies, and what is no number.

Both are off unless the recipe says otherwise.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from afga_jax import keys
from afga_jax.optimizers.attacks import Uploads
from afga_jax.recipe import Memory
from afga_jax.rounds.cycle import Cycle
from afga_jax.typing import Array


class Received(NamedTuple):
    """What the server gets; see `server_step.apply` for the arrays.

    Attributes:
      ids: Ids of the clients whose uploads count; the number of clients is nobody.
      weights: Weights of the uploads.
      deltas: Their deltas, zero for nobody.
      memories: What the clients remember.
    """

    ids: Array
    weights: Array
    deltas: Array
    memories: Memory


def with_lies(cycle: Cycle, received: Received, num_params: int) -> Received:
    """The same with liars' lies; only the first `num_params` numbers can be lies."""
    attack, num_clients = cycle.recipe.attack, cycle.recipe.clustering.num_clients
    if attack is None or attack.upload is None or cycle.liars is None:
        return received
    ids, deltas = received.ids, received.deltas
    real = ids < num_clients
    lying = real & cycle.liars.at[ids].get(mode="fill", fill_value=False)
    params = deltas[:, :num_params]
    place = (cycle.key, keys.Purpose.LIE, cycle.state.round, cycle.number)
    lies = attack.upload(
        keys.place_key(*place), Uploads(params, lying, real & ~lying, ids)
    )
    params = jnp.where(lying[:, None], lies.astype(params.dtype), params)
    deltas = jnp.concatenate([params, deltas[:, num_params:]], axis=1)
    return received._replace(deltas=deltas)


def contained(cycle: Cycle, received: Received) -> tuple[Received, Array]:
    """Leaves out uploads that are not finite.

    Returns:
      The others, whose weights are scaled to sum to one again, and the ids of the
      clients that were left out, `[uploads]`, with nobody's for those that were not.
    """
    ids, weights, deltas, memories = received
    nobody = jnp.asarray(cycle.recipe.clustering.num_clients, ids.dtype)
    good = jnp.isfinite(deltas).all(1)
    left = jnp.where(good, weights, 0)
    total = left.sum()
    # Where all are good, not even rounding may change a weight.
    weights = jnp.where(good.all(), weights, left / jnp.where(total > 0, total, 1))

    def kept(x):
        return jnp.where(good.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.zeros_like(x))

    others = Received(
        jnp.where(good, ids, nobody),
        weights,
        kept(deltas),
        jax.tree.map(kept, memories),
    )
    return others, jnp.where(good, nobody, ids)
