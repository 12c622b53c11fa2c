"""Which gradients matter, those that enter Δ or a gradient that does, and to whom.

Who computes, mixes and uploads is known before any gradient is. A gradient whose
increment reaches no upload by the end of the round changes nothing but the training
loss that would be logged: it is not computed.
"""

import functools

import jax
import jax.numpy as jnp

from afga_jax.gossip.base import positions
from afga_jax.gossip.kernels import gossip
from afga_jax.population.sampling import Plan
from afga_jax.recipe import Recipe
from afga_jax.typing import Array


def mask(
    recipe: Recipe, plan: Plan, cycle: Array | int = 0, *, stateful: bool = False
) -> Array | None:
    """Who of those that compute does so for the server's good, `[steps, active]`.

    Backwards through the steps: a client's model matters at the start of step t if it
    is read by one that matters after it (Wᵀ of those), or if its own gradient of that
    step does.

    Args:
      recipe: The algorithm.
      plan: The round's plan.
      cycle: Number of the cycle in the round.
      stateful: Whether the local optimizer has state: then a gradient that matters
        makes the client's gradients before it matter.

    Returns:
      None where everything does: where models persist or optimizers keep their state
      for later rounds, where nobody mixes and all who compute upload, or where gossip
      is not linear.
    """
    num_clients, part = recipe.clustering.num_clients, plan.cycle(cycle)
    alone = not recipe.mixing.mixes
    kept = recipe.models_persist or recipe.keep_optimizer
    if kept or not recipe.mixing.linear:
        return None
    if alone and part.all_upload(num_clients):
        return None
    active, _ = part.flat_active(num_clients)
    holders = recipe.mixing.rows(plan, cycle)
    row = positions(holders, active, num_clients)
    uploads = positions(holders, part.upload.reshape(-1), num_clients)
    nobody = jnp.zeros(num_clients if holders is None else len(holders))
    matters = nobody.at[uploads].set(1, mode="drop")
    if alone:
        return (matters.at[row].get(mode="clip") > 0) & (active < num_clients)

    def back(carry, inputs):
        matters, later = carry
        step, row, real = inputs
        operator = recipe.mixing.at(plan, step, cycle)
        (before,) = jax.linear_transpose(operator.apply, matters)(matters)
        seen = matters if recipe.mix_first else before
        now = seen.at[row].get(mode="clip") > 0
        if stateful:
            now |= later.at[row].get(mode="clip") > 0
            later = later.at[row].max(now.astype(later.dtype), mode="drop")
        # Only whether it is zero matters; powers of W would underflow.
        matters = (before > 0).astype(matters.dtype)
        matters = matters.at[row].max(now.astype(matters.dtype), mode="drop")
        return (matters, later), now & real

    steps = jnp.arange(len(active))
    inputs = (steps, row, active < num_clients)
    return jax.lax.scan(back, (matters, nobody), inputs, reverse=True)[1]


def reached(recipe: Recipe, plan: Plan, cycle: Array | int = 0) -> Array | None:
    """Whether some gradient has a part in each upload, `[uploads]`.

    Forwards through the steps: after a mixing a model comes from gradients if one that
    it takes a part of does. What an upload without any says is zero but for rounding.

    Args:
      recipe: An algorithm with a server.
      plan: The round's plan.
      cycle: Number of the cycle in the round.

    Returns:
      None where all uploads have one: where models persist, or all that hold one
      compute, so that every part, of whomever, is of a gradient's.
    """
    if recipe.models_persist:
        return None
    num_clients, part = recipe.clustering.num_clients, plan.cycle(cycle)
    active, count = part.flat_active(num_clients)
    holders = recipe.mixing.rows(plan, cycle)
    num_rows = num_clients if holders is None else len(holders)
    if count is None and active.shape[1] == num_rows:
        return None
    row = positions(holders, active, num_clients)
    uploads = positions(holders, part.upload.reshape(-1), num_clients)
    nobody = jnp.zeros(num_rows)

    def forth(has, inputs):
        step, row = inputs
        operator = recipe.mixing.at(plan, step, cycle)
        mix = operator.apply
        if not recipe.mixing.linear:
            mix = functools.partial(gossip, operator.matrix())
        if not recipe.mix_first:
            has = has.at[row].set(1, mode="drop")
        has = (mix(has) > 0).astype(has.dtype)
        if recipe.mix_first:
            has = has.at[row].set(1, mode="drop")
        return has, None

    if recipe.mixing.mixes:
        has, _ = jax.lax.scan(forth, nobody, (jnp.arange(len(row)), row))
    else:
        has = nobody.at[row.reshape(-1)].set(1, mode="drop")
    return has.at[uploads].get(mode="fill", fill_value=0) > 0


def first(active: Array, needed: Array) -> tuple[Array, Array]:
    """The active ids with those that matter first, and how many they are."""
    order = jnp.argsort(~needed, axis=1, stable=True)
    ids = jnp.take_along_axis(active, order, axis=1)
    return ids, needed.sum(1, dtype=jnp.int32)
