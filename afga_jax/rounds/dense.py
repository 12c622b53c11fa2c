"""The dense engine: everybody's model is there, mixed after every local step.

Client models are one pytree with a leading axis of clients; from the first local step
of a cycle to its last, a client's leaves lie in one row of an array (`RowForm`). Only
the clients that compute are taken out of it, stepped, and put back; gossip then mixes
all of it.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from afga_jax import trees
from afga_jax.gossip.base import positions
from afga_jax.recipe import FederatedState, Memory, Model, RoundInfo
from afga_jax.rounds import broadcast, client_step, needed, server_step
from afga_jax.rounds.client_step import RowForm
from afga_jax.rounds.cycle import Cycle
from afga_jax.typing import Array, PyTree


def run_cycle(cycle: Cycle) -> tuple[FederatedState, RoundInfo]:
    """From one server model to the next; FedCluster has several in a round."""
    recipe, state, plan, number = cycle.recipe, cycle.state, cycle.plan, cycle.number
    num_clients, holders = cycle.num_clients, cycle.holders
    active, count = cycle.part.flat_active(num_clients)
    planned = jnp.int32(active.size) if count is None else count.sum()
    stateful = client_step.is_stateful(recipe, state.params)
    matters = needed.mask(recipe, plan, number, stateful=stateful)
    if matters is not None:
        active, count = needed.first(active, matters)
    size = num_clients if holders is None else len(holders)
    start = _begin(cycle, holders, size)
    form = RowForm(*jax.tree.map(lambda x: x[0], start))
    rows = jax.vmap(form.pack)(*start)
    rows, sums = jax.lax.scan(
        functools.partial(_local_step, cycle, form, holders),
        rows,
        (jnp.arange(len(active)), active, count),
        unroll=_unroll(size, rows[0], active.shape),
    )
    # Of everybody's models only what is read below is computed.
    unpack = jax.vmap(form.unpack)
    models, memories = unpack(*rows)
    if recipe.server is None:
        state, diagnostics = _persist(cycle, holders, models, memories)
    else:
        optimizers = _kept(cycle, holders, memories)
        sent, ids, weights = server_step.uploads(cycle, holders, rows)
        uploaded, memories = unpack(*sent)
        deltas = _deltas(state, uploaded, ids < num_clients)
        state, diagnostics = server_step.apply(cycle, ids, weights, deltas, memories)
        state = dataclasses.replace(state, optimizers=optimizers)
        state, received = broadcast.keep_models(cycle, state, holders, models)
        reached = needed.reached(recipe, plan, number)
        diagnostics |= received | server_step.idle_uploads(cycle, reached)
    computed = planned if count is None else count.sum()
    sums = jax.tree.map(lambda x: x.sum(), sums)
    return state, server_step.info(cycle, sums, computed, planned, diagnostics)


def _local_step(cycle: Cycle, form: RowForm, holders: Array | None, carry, inputs):
    """The active clients step from their rows; then everybody gossips."""
    (models, memories), (step, active, count) = carry, inputs
    rows, read = positions(holders, active, cycle.num_clients), None
    mix = client_step.mixing_at(cycle, step)
    if mix_first := cycle.recipe.mix_first:
        before, (models, memories) = models, mix(models, memories)
        # A gradient is taken where the client was, with what it shares mixed.
        read = form.with_shared(before, models)
    models, memories, sums = client_step.step_clients(
        cycle, form, step, active, models, memories, rows, count, read=read
    )
    return (models, memories) if mix_first else mix(models, memories), sums


def _begin(cycle: Cycle, holders: Array | None, size: int) -> tuple[Model, Memory]:
    """Models and memories at the start of a cycle, one row for each that holds one."""
    recipe, state = cycle.recipe, cycle.state
    own = (state.clients, state.controls, state.optimizers)
    if holders is not None:
        own = cycle.rows_at(own, holders)
    clients, controls, optimizers = own
    if recipe.server is None:
        return client_step.resumed(recipe, *clients)
    models, memories = client_step.fresh(
        recipe, state.params, state.stats, controls, optimizers, size
    )
    if recipe.models_persist:
        models = clients[0]._replace(shared=models.shared)
    return models, memories


def _kept(cycle: Cycle, holders: Array | None, memories: Memory) -> PyTree:
    """Everybody's optimizer state for the next round, `[N, ...]`; () for none."""
    if holders is None or not cycle.recipe.keep_optimizer:
        return memories.optimizer if cycle.recipe.keep_optimizer else ()
    return trees.put(cycle.state.optimizers, holders, memories.optimizer)


def _deltas(state: FederatedState, models: Model, real: Array) -> Array:
    """How far each model is from the server's, `[models, d]`."""
    start = ravel_pytree((state.params, state.stats))[0]
    ends = jax.vmap(lambda model: ravel_pytree((model.params, model.stats))[0])(models)
    # Padding took somebody's model, and that one's NaN is its own.
    return jnp.where(real[:, None], ends - start[None], 0)


def _persist(cycle: Cycle, holders: Array | None, models: Model, memories: Memory):
    """Without a server models stay where they are, and their mean is evaluated."""
    state, num_clients = cycle.state, cycle.num_clients
    if holders is not None:
        order = jnp.argsort(holders)[:num_clients]
        models, memories = cycle.rows_at((models, memories), order)
    params, stats = jax.tree.map(lambda x: x.mean(0), (models.params, models.stats))
    delta = jax.tree.map(jnp.subtract, params, state.params)
    weights = jnp.full(num_clients, 1 / num_clients)
    nothing = jnp.zeros((), jnp.int32)
    diagnostics = {
        "delta_norm": optax.tree.norm(delta),
        "spread": trees.spread(weights, models.params, params),
        "uploads": nothing,
        "idle_uploads": nothing,
        "aggregation": {},
    }
    clients = (models, memories)
    state = dataclasses.replace(state, params=params, stats=stats, clients=clients)
    return state, diagnostics


def _unroll(size: int, models: PyTree, shape: tuple[int, ...]) -> int:
    """Two steps in one where everybody's models are the larger part of the work.

    A step that mixes all of them writes to new memory and copies it back for the next;
    two steps can take turns between two buffers. Rows of many arrays are left alone:
    their gradients cost more than that copy, and the program would take twice as long
    to compile.
    """
    steps, active = shape
    small = len(jax.tree.leaves(models)) <= 8
    return 2 if small and steps % 2 == 0 and size >= 4 * active else 1
