"""The heart: one round of federated learning, the same for every algorithm.

An algorithm is a `Recipe` of five choices: who takes part, how a client steps, who
mixes with whom, how the server steps, and who gets its model. The round reads them:

    plan → everybody starts from x_r → local steps (gradient, correct, step, gossip)
         → aggregated delta Δ of the uploading clients → server step on −Δ → x_{r+1}

Where the server's model goes to some only, the others start from their own
(`rounds.broadcast`).

Two engines run the local steps: `dense` keeps everybody's model as one pytree with a
leading axis of clients, `span` keeps only increments and needs a schedule.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from afga_jax import keys, trees
from afga_jax.population.sampling import Plan, make_plan
from afga_jax.recipe import FederatedState, Recipe, RoundInfo
from afga_jax.rounds import dense, span
from afga_jax.rounds.client_step import fresh
from afga_jax.rounds.cycle import Cycle
from afga_jax.rounds.execution import Execution
from afga_jax.rounds.span.schedule import Schedule
from afga_jax.typing import Array, ClientData, PyTree, Task


def init_state(
    recipe: Recipe, task: Task, key: Array, numbers: dict[str, Array]
) -> FederatedState:
    """The state before the first round."""
    params, stats = task.init(keys.place_key(key, keys.Purpose.INIT, 0))
    control = recipe.correction.init(params)
    num_clients = recipe.clustering.num_clients
    serverless = recipe.server is None
    optimizers: PyTree = ()
    if recipe.keep_optimizer:
        optimizers = trees.repeat(recipe.optimizer.init(params)[0], num_clients)
    start = fresh(recipe, params, stats, (), optimizers, num_clients)
    aggregator = recipe.aggregator.init(ravel_pytree(params)[0])
    rows = trees.repeat(aggregator.clients, num_clients)
    clients: PyTree = start if serverless else ()
    if recipe.models_persist and not serverless:
        clients = (start[0]._replace(shared=()), ())
    return FederatedState(
        round=jnp.zeros((), jnp.int32),
        params=params,
        stats=stats,
        server=() if recipe.server is None else recipe.server.init(params),
        control=control,
        controls=trees.repeat(control, num_clients),
        optimizers=() if serverless else optimizers,
        aggregator=aggregator._replace(clients=rows),
        clients=clients,
        numbers=numbers,
    )


def run_round(
    recipe_at: Callable[[FederatedState], Recipe],
    task: Task,
    key: Array,
    state: FederatedState,
    data: ClientData,
    plan: Plan | None = None,
    schedule: Schedule | None = None,
    execution: Execution = Execution(),
) -> tuple[FederatedState, RoundInfo]:
    """One round; see the module.

    Args:
      recipe_at: The algorithm, with the numbers of a state.
      task: The loss.
      key: The run's key; the same for all rounds.
      state: From `init_state` or the round before.
      data: The clients' data.
      plan: Who takes part; None: drawn from the key and the round.
      schedule: For the span engine, of this plan, `[cycles, ...]`; None: dense.
      execution: How it is executed: clients side by side, devices.
    """
    recipe = recipe_at(state)
    if plan is None:
        plan = make_plan(recipe.participation, recipe.order, key, state.round)
    if recipe.pooled and len(data.sizes) > 1:
        data = _pooled(data)
    check_population(data, recipe.clustering.num_clients)

    liars = None
    if recipe.attack is not None:
        liars = recipe.attack.liars(key, recipe.clustering.num_clients)

    def cycle(state, number):
        now = Cycle(
            *(recipe, recipe_at, task, key, state),
            *(data, plan, number, execution, liars),
        )
        if schedule is None:
            return dense.run_cycle(now)
        return span.run_cycle(now, jax.tree.map(lambda x: x[number], schedule))

    if len(plan.clusters) == 1:
        state, info = cycle(state, 0)
    else:
        cycles = jnp.arange(len(plan.clusters))
        state, infos = jax.lax.scan(cycle, state, cycles)
        info = _over_cycles(infos)
    return dataclasses.replace(state, round=state.round + 1), info


def _over_cycles(infos: RoundInfo) -> RoundInfo:
    weights = infos.needed / jnp.maximum(infos.needed.sum(), 1)
    loss, metrics = trees.weighted_sum(weights, (infos.loss, infos.metrics))
    return RoundInfo(
        loss=loss,
        metrics=metrics,
        delta_norm=infos.delta_norm.mean(),
        spread=infos.spread.mean(),
        gradients=infos.gradients.sum(),
        needed=infos.needed.sum(),
        uploads=infos.uploads.sum(),
        idle_uploads=infos.idle_uploads.sum(),
        aggregation=jax.tree.map(lambda x: x.mean(0), infos.aggregation),
        contained=infos.contained,
        receivers=jax.tree.map(lambda x: x.sum(0), infos.receivers),
        faults=jax.tree.map(lambda x: x.sum(0), infos.faults),
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


def check_population(data: ClientData, want: int) -> None:
    """Refuses data of another number of clients."""
    have = len(data.sizes)
    if have != want:
        raise ValueError(
            f"data has {have} clients, but the algorithm was built with num_clients = "
            f"{want}: build with num_clients={have}, or partition the data for {want}."
        )
