"""The dense engine: everybody's model is there, mixed after every local step.

Client models are one pytree with a leading axis of clients. Only the clients that
compute are taken out of it, stepped, and put back; gossip then mixes all of it. On an
axis of devices each holds a block of the rows and steps the clients that it holds, or
as many as the others (`turns`).
"""

import dataclasses
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
from afga_jax.recipe import FederatedState, Memory, Model, Recipe, RoundInfo
from afga_jax.shares import Held, Share
from afga_jax.turns import turns
from afga_jax.typing import Array, PyTree


def run_cycle(cycle: Cycle) -> tuple[FederatedState, RoundInfo]:
    """From one server model to the next; FedCluster has several in a round."""
    recipe, state, plan, number = cycle.recipe, cycle.state, cycle.plan, cycle.number
    num_clients = recipe.clustering.num_clients
    holders = recipe.mixing.rows(plan, number)
    share = Share(num_clients if holders is None else len(holders), cycle.axis)
    part = plan.cycle(number)
    active, count = part.flat_active(num_clients)
    planned = jnp.int32(active.size) if count is None else count.sum()
    stateful = cycles.is_stateful(recipe, state.params)
    matters = reach.needed(recipe, plan, number, stateful=stateful)
    if matters is not None:
        active, count = reach.first(active, matters)
    (models, memories), sums = jax.lax.scan(
        functools.partial(_local_step, cycle, holders, share),
        _begin(recipe, state, holders, share),
        (jnp.arange(len(active)), active, count),
        unroll=_unroll(share, state.params, active.shape),
    )
    if recipe.server is None:
        state, moved = _persist(cycle, holders, share, models, memories)
    else:
        ids = part.upload.reshape(-1)
        uploads = share.held(positions(holders, ids, num_clients))
        models, memories = rows.take((models, memories), uploads.place)
        real = uploads.pick(ids, num_clients) < num_clients
        changes = _changes(state, models, real)
        reached = reach.reached(recipe, plan, number)
        state, moved = cycles.end(cycle, changes, memories, uploads, reached)
    needed = planned if count is None else count.sum()
    sums = share.total(jax.tree.map(lambda x: x.sum(), sums))
    return state, cycles.info(sums, needed, planned, moved)


def _local_step(cycle: Cycle, holders: Array | None, share: Share, carry, inputs):
    """Take the active clients out, step them, put them back, gossip."""
    (models, memories), (step, active, count) = carry, inputs
    recipe, num_clients = cycle.recipe, cycle.recipe.clustering.num_clients
    place = positions(holders, active, num_clients)
    turn = turns(share, place, count, balanced=recipe.balance)
    batches = None
    if not (isinstance(turn, Held) and cycles.has_own_data(cycle)):
        batches = turn.pick_rows(cycles.sent_batches(cycle, step, active, count))
    active = turn.pick(active, num_clients)
    mix = recipe.mixing.at(cycle.plan, step, cycle.number).on(share)
    base = mix(models) if recipe.mix_first else models

    chosen = turn.take(models)
    if recipe.mix_first:
        chosen = chosen._replace(shared=turn.take(base.shared))
    increments, memory, losses, metrics = over_clients(
        lambda inputs: step_client(cycle, step, *inputs),
        (active, chosen, turn.take(memories), batches),
        chunk=recipe.chunk,
        count=turn.count,
        usual=turn.usual,
    )
    models = turn.add(base, increments)
    memories = turn.put(memories, memory)
    if not recipe.mix_first:
        models = mix(models)
    sums = jax.tree.map(lambda x: x.sum(0), (losses, metrics))
    return (models, memories), sums


def _begin(recipe: Recipe, state: FederatedState, holders: Array | None, share: Share):
    """Models and memories at the start of a cycle, one row for each that holds one."""
    own = state.clients if recipe.server is None else state.controls
    if holders is not None:
        by_id = Share(recipe.clustering.num_clients, share.axis)
        own = share.mine(by_id.collect(own, holders))
    if recipe.server is None:
        return own
    return fresh(recipe, state.params, state.stats, own, share.size)


def _changes(state: FederatedState, models: Model, real: Array) -> Array:
    """What was added to each model since the cycle began, `[models, d]`."""
    start = ravel_pytree((state.params, state.stats))[0]
    ends = jax.vmap(lambda model: ravel_pytree((model.params, model.stats))[0])(models)
    # Padding took somebody's model, and that one's NaN is its own.
    return jnp.where(real[:, None], ends - start[None], 0)


def _persist(cycle: Cycle, holders, share: Share, models: Model, memories: Memory):
    """Without a server models stay where they are, and their mean is evaluated."""
    state = cycle.state
    if holders is not None:
        by_id = Share(cycle.recipe.clustering.num_clients, share.axis)
        order = jnp.argsort(holders)[: by_id.rows]
        models, memories = by_id.mine(share.collect((models, memories), order))
        share = by_id
    mean = lambda x: x.mean(0) / share.devices  # noqa: E731
    params, stats = share.total(jax.tree.map(mean, (models.params, models.stats)))
    delta = jax.tree.map(jnp.subtract, params, state.params)
    weights = jnp.full(share.size, 1 / share.rows)
    nothing = jnp.zeros((), jnp.int32)
    moved = {
        "delta_norm": optax.tree.norm(delta),
        "spread": share.total(rows.spread(weights, models.params, params)),
        "uploads": nothing,
        "idle_uploads": nothing,
    }
    clients = (models, memories)
    state = dataclasses.replace(state, params=params, stats=stats, clients=clients)
    return state, moved


def _unroll(share: Share, params: PyTree, shape: tuple[int, ...]) -> int:
    """Two steps in one where everybody's models are the larger part of the work.

    A step that mixes all of them writes to new memory and copies it back for the next;
    two steps can take turns between two buffers. Large models are left alone: their
    gradients cost more than that copy, and the program would take twice as long to
    compile.
    """
    steps, active = shape
    small = len(jax.tree.leaves(params)) <= 8
    return 2 if small and steps % 2 == 0 and share.rows >= 4 * active else 1
