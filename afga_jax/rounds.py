"""The heart: one round of federated learning, the same for every algorithm.

An algorithm is a `Recipe` of four choices: who takes part, how a client steps, who
mixes with whom, and what the server does with the mean change. The round reads them:

    plan → everybody starts from x_r → local steps (gradient, correct, step, gossip)
         → mean change Δ of the uploading clients → server step → x_{r+1}

Client models are one pytree with a leading axis of clients. Only the clients that
compute are taken out of it, stepped, and put back; gossip then mixes all of it.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from afga_jax import keys, rows
from afga_jax.aggregate import server_step
from afga_jax.client import client_step
from afga_jax.execute import over_clients
from afga_jax.mixing import positions
from afga_jax.participation import Plan, make_plan
from afga_jax.recipe import FederatedState, Memory, Model, Recipe, RoundInfo
from afga_jax.typing import Array, ClientData, PyTree, Task


def init_state(
    recipe: Recipe, task: Task, key: Array, numbers: dict[str, Array]
) -> FederatedState:
    """The state before the first round."""
    params, stats = task.init(keys.place_key(key, keys.Purpose.INIT, 0))
    control = recipe.correction.init(params)
    num_clients = recipe.clustering.num_clients
    serverless = recipe.server is None
    start = _fresh(recipe, params, stats, (), num_clients)
    return FederatedState(
        round=jnp.zeros((), jnp.int32),
        params=params,
        stats=stats,
        server=() if serverless else recipe.server.init(params),
        control=control,
        controls=rows.repeat(control, num_clients),
        clients=start if serverless else (),
        numbers=numbers,
    )


def run_round(
    recipe: Recipe,
    task: Task,
    key: Array,
    state: FederatedState,
    data: ClientData,
    plan: Plan | None = None,
) -> tuple[FederatedState, RoundInfo]:
    """One round; see the module.

    Args:
      recipe: The algorithm.
      task: The loss.
      key: The run's key; the same for all rounds.
      state: From `init_state` or the round before.
      data: The clients' data.
      plan: Who takes part; None: drawn from the key and the round.
    """
    if plan is None:
        plan = make_plan(recipe.participation, recipe.order, key, state.round)
    if recipe.pooled and len(data.sizes) > 1:
        data = _pooled(data)
    _check_population(recipe, data)

    def cycle(state, number):
        return _run_cycle(recipe, task, key, state, data, plan, number)

    if len(plan.clusters) == 1:
        state, info = cycle(state, 0)
    else:
        cycles = jnp.arange(len(plan.clusters))
        state, infos = jax.lax.scan(cycle, state, cycles)
        info = _over_cycles(infos)
    return state.replace(round=state.round + 1), info


class _Cycle(NamedTuple):
    """Where in a round we are, and all that is fixed while its local steps run."""

    recipe: Recipe
    task: Task
    key: Array
    state: FederatedState
    data: ClientData
    plan: Plan
    number: Array | int
    holders: Array | None

    def rows_of(self, ids: Array) -> Array:
        return positions(self.holders, ids, self.recipe.clustering.num_clients)


def _run_cycle(recipe, task, key, state, data, plan, number):
    """From one server model to the next; FedCluster has several in a round."""
    holders = recipe.mixing.rows(plan, number)
    cycle = _Cycle(recipe, task, key, state, data, plan, number, holders)
    part = plan.cycle(number)
    active, count = part.flat_active(recipe.clustering.num_clients)
    (models, memories), (loss, metrics, counts) = jax.lax.scan(
        functools.partial(_local_step, cycle),
        _begin(recipe, state, holders),
        (jnp.arange(len(active)), active, count),
        unroll=_unroll(recipe, holders, state.params, active.shape),
    )
    if recipe.server is None:
        state, moved = _persist(state, holders, models, memories)
    else:
        uploads = cycle.rows_of(part.upload.reshape(-1))
        models, memories = rows.take((models, memories), uploads)
        clusters = plan.clusters[number]
        state, moved = server_step(
            recipe, state, data, part, clusters, models, memories
        )
    gradients = counts.sum()
    mean = jax.tree.map(lambda x: x.sum() / jnp.maximum(gradients, 1), (loss, metrics))
    return state, RoundInfo(*mean, gradients=gradients, **moved)


def _local_step(cycle: _Cycle, carry, inputs):
    """Take the active clients out, step them, put them back, gossip."""
    (models, memories), (step, active, count) = carry, inputs
    recipe, place = cycle.recipe, cycle.rows_of(active)
    operator = recipe.mixing.at(cycle.plan, step, cycle.number)
    base = operator.apply(models) if recipe.mix_first else models

    chosen = rows.take(models, place)
    chosen = chosen._replace(shared=rows.take(base.shared, place))
    increments, memory, losses, metrics = over_clients(
        functools.partial(_step_client, cycle, step),
        (active, chosen, rows.take(memories, place)),
        chunk=recipe.chunk,
        count=count,
    )
    models = rows.add(base, place, increments)
    memories = rows.put(memories, place, memory)
    if not recipe.mix_first:
        models = operator.apply(models)
    sums = jax.tree.map(lambda x: x.sum(0), (losses, metrics))
    count = jnp.int32(len(active)) if count is None else count
    return (models, memories), (*sums, count)


def _step_client(cycle: _Cycle, step: Array, inputs):
    client, model, memory = inputs
    state, data = cycle.state, cycle.data
    where = (state.round, cycle.number, step, client)
    if cycle.recipe.full_batch:
        batch = data.full(client)
    else:
        batch = data.batch(keys.batch_key(cycle.key, *where), client)
    anchor = (state.params, state.control)
    dropout = keys.dropout_key(cycle.key, *where)
    return client_step(cycle.recipe, cycle.task, model, memory, anchor, batch, dropout)


def _begin(recipe: Recipe, state: FederatedState, holders: Array | None):
    """Models and memories at the start of a cycle, one row for each that holds one."""
    if recipe.server is None:
        return state.clients if holders is None else rows.take(state.clients, holders)
    if holders is None:
        controls, count = state.controls, recipe.clustering.num_clients
    else:
        controls, count = rows.take(state.controls, holders), len(holders)
    return _fresh(recipe, state.params, state.stats, controls, count)


def _fresh(
    recipe: Recipe, params: PyTree, stats: PyTree, controls: PyTree, count: int
) -> tuple[Model, Memory]:
    optimizer, shared = recipe.optimizer.init(params)
    models = rows.repeat(Model(params, stats, shared), count)
    steps = recipe.correction.begin(params)
    optimizer, steps = rows.repeat((optimizer, steps), count)
    return models, Memory(optimizer, controls, steps)


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


def _over_cycles(infos: RoundInfo) -> RoundInfo:
    share = infos.gradients / jnp.maximum(infos.gradients.sum(), 1)
    loss, metrics = rows.weighted_sum(share, (infos.loss, infos.metrics))
    return RoundInfo(
        loss=loss,
        metrics=metrics,
        delta_norm=infos.delta_norm.mean(),
        spread=infos.spread.mean(),
        gradients=infos.gradients.sum(),
        uploads=infos.uploads.sum(),
        idle_uploads=infos.idle_uploads.sum(),
    )


def _pooled(data: ClientData) -> ClientData:
    try:
        return data.pooled()
    except jax.errors.TracerArrayConversionError as error:
        raise ValueError(
            f"data has {len(data.sizes)} clients, but a centralised algorithm needs 1, "
            "and these cannot be pooled inside jit: pass data.pooled(), or use "
            "afga_jax.fit or afga_jax.Trainer, which do."
        ) from error


def _check_population(recipe: Recipe, data: ClientData) -> None:
    have, want = len(data.sizes), recipe.clustering.num_clients
    if have != want:
        raise ValueError(
            f"data has {have} clients, but the algorithm was built with num_clients = "
            f"{want}: build with num_clients={have}, or partition the data for {want}."
        )
