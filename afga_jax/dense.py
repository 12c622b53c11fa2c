"""The dense engine: everybody's model is there, mixed after every local step.

Client models are one pytree with a leading axis of clients. Only the clients that
compute are taken out of it, stepped, and put back; gossip then mixes all of it.
"""

import functools

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from afga_jax import cycle as cycles
from afga_jax import reach, rows
from afga_jax.cycle import Cycle, fresh, step_client
from afga_jax.execute import over_clients
from afga_jax.mixing import positions
from afga_jax.recipe import FederatedState, Model, Recipe, RoundInfo
from afga_jax.typing import Array, PyTree


def run_cycle(cycle: Cycle) -> tuple[FederatedState, RoundInfo]:
    """From one server model to the next; FedCluster has several in a round."""
    recipe, state, plan, number = cycle.recipe, cycle.state, cycle.plan, cycle.number
    num_clients = recipe.clustering.num_clients
    holders = recipe.mixing.rows(plan, number)
    part = plan.cycle(number)
    active, count = part.flat_active(num_clients)
    planned = jnp.int32(active.size) if count is None else count.sum()
    stateful = cycles.is_stateful(recipe, state.params)
    matters = reach.needed(recipe, plan, number, stateful=stateful)
    if matters is not None:
        active, count = reach.first(active, matters)
    (models, memories), sums = jax.lax.scan(
        functools.partial(_local_step, cycle, holders),
        _begin(recipe, state, holders),
        (jnp.arange(len(active)), active, count),
        unroll=_unroll(recipe, holders, state.params, active.shape),
    )
    if recipe.server is None:
        state, moved = _persist(state, holders, models, memories)
    else:
        uploads = positions(holders, part.upload.reshape(-1), num_clients)
        models, memories = rows.take((models, memories), uploads)
        real = part.upload.reshape(-1) < num_clients
        state, moved = cycles.end(cycle, _changes(state, models, real), memories)
    needed = planned if count is None else count.sum()
    sums = jax.tree.map(lambda x: x.sum(), sums)
    return state, cycles.info(sums, needed, planned, moved)


def _local_step(cycle: Cycle, holders: Array | None, carry, inputs):
    """Take the active clients out, step them, put them back, gossip."""
    (models, memories), (step, active, count) = carry, inputs
    recipe = cycle.recipe
    place = positions(holders, active, recipe.clustering.num_clients)
    operator = recipe.mixing.at(cycle.plan, step, cycle.number)
    base = operator.apply(models) if recipe.mix_first else models

    chosen = rows.take(models, place)
    chosen = chosen._replace(shared=rows.take(base.shared, place))
    increments, memory, losses, metrics = over_clients(
        lambda inputs: step_client(cycle, step, *inputs),
        (active, chosen, rows.take(memories, place)),
        chunk=recipe.chunk,
        count=count,
    )
    models = rows.add(base, place, increments)
    memories = rows.put(memories, place, memory)
    if not recipe.mix_first:
        models = operator.apply(models)
    sums = jax.tree.map(lambda x: x.sum(0), (losses, metrics))
    return (models, memories), sums


def _begin(recipe: Recipe, state: FederatedState, holders: Array | None):
    """Models and memories at the start of a cycle, one row for each that holds one."""
    if recipe.server is None:
        return state.clients if holders is None else rows.take(state.clients, holders)
    if holders is None:
        controls, count = state.controls, recipe.clustering.num_clients
    else:
        controls, count = rows.take(state.controls, holders), len(holders)
    return fresh(recipe, state.params, state.stats, controls, count)


def _changes(state: FederatedState, models: Model, real: Array) -> Array:
    """What was added to each model since the cycle began, `[models, d]`."""
    start = ravel_pytree((state.params, state.stats))[0]
    ends = jax.vmap(lambda model: ravel_pytree((model.params, model.stats))[0])(models)
    # Padding took somebody's model, and that one's NaN is its own.
    return jnp.where(real[:, None], ends - start[None], 0)


def _persist(state, holders, models, memories):
    """Without a server models stay where they are, and their mean is evaluated."""
    if holders is not None:
        by_id = jnp.argsort(holders)[: len(jax.tree.leaves(state.clients)[0])]
        models, memories = rows.take((models, memories), by_id)
    params, stats = jax.tree.map(lambda x: x.mean(0), (models.params, models.stats))
    delta = jax.tree.map(jnp.subtract, params, state.params)
    count = len(jax.tree.leaves(models)[0])
    nothing = jnp.zeros((), jnp.int32)
    moved = {
        "delta_norm": optax.tree.norm(delta),
        "spread": rows.spread(jnp.full(count, 1 / count), models.params, params),
        "uploads": nothing,
        "idle_uploads": nothing,
    }
    clients = (models, memories)
    return state.replace(params=params, stats=stats, clients=clients), moved


def _unroll(recipe: Recipe, holders: Array | None, params: PyTree, shape) -> int:
    """Two steps in one where everybody's models are the larger part of the work.

    A step that mixes all of them writes to new memory and copies it back for the next;
    two steps can take turns between two buffers. Large models are left alone: their
    gradients cost more than that copy, and the program would take twice as long to
    compile.
    """
    steps, active = shape
    count = recipe.clustering.num_clients if holders is None else len(holders)
    small = len(jax.tree.leaves(params)) <= 8
    return 2 if small and steps % 2 == 0 and count >= 4 * active else 1
