"""Who gets the server's new model, where not everybody starts a round from it.

Then models persist, `[N, ...]`: who does not get the new model goes on with its own,
and an upload is how far its client is from the server's model, whoever has that.
"""

import dataclasses

import jax
import jax.numpy as jnp

from afga_jax import trees
from afga_jax.population.sampling import Plan
from afga_jax.recipe import FederatedState, Model, Recipe
from afga_jax.rounds.cycle import Cycle
from afga_jax.typing import Array


def receivers(recipe: Recipe, plan: Plan, cycle: Array | int = 0) -> Array:
    """Whether each client gets what the server makes of a cycle's uploads, `[N]`.

    `sampled`: those whose upload arrived. `clusters`: all of a cluster from which one
    did, but for those that are not there at the end of the cycle.

    Args:
      recipe: An algorithm whose server does not send its model to everybody.
      plan: The round's plan.
      cycle: Number of the cycle in the round.
    """
    part, nobody = plan.cycle(cycle), recipe.clustering.num_clients
    ids = jnp.asarray(part.upload)
    if recipe.broadcast == "clusters":
        heard = (ids < nobody).any(1, keepdims=True)
        members = jnp.asarray(recipe.clustering.table(), jnp.int32)
        ids = jnp.where(heard, members[plan.clusters[cycle]], nobody)
    gets = jnp.zeros(nobody, bool).at[ids].set(True, mode="drop")
    if part.toll is None or part.toll.until is None:
        return gets
    return gets & (part.toll.until >= part.active.shape[0])


def keep_models(
    cycle: Cycle, state: FederatedState, holders: Array | None, models: Model
) -> tuple[FederatedState, dict[str, Array]]:
    """The state with the clients' models, and how many got the server's new one.

    Args:
      cycle: Where we are; its state is that before the cycle.
      state: The state with the server's new model.
      holders: Ids of the clients in row order; None: 0, 1, …, N−1.
      models: Their models after the last local step, `[rows, ...]`.
    """
    if not cycle.recipe.models_persist:
        return state, {}
    own = models._replace(shared=())
    if holders is not None:
        own = trees.put(cycle.state.clients[0], holders, own)
    gets = receivers(cycle.recipe, cycle.plan, cycle.number)

    def received(own, new):
        return jnp.where(gets.reshape(-1, *[1] * new.ndim), new[None], own)

    own = jax.tree.map(received, own, Model(state.params, state.stats, ()))
    state = dataclasses.replace(state, clients=(own, ()))
    return state, {"receivers": gets.sum(dtype=jnp.int32)}
