"""What is measured on request: how far the clients' models are apart.

A round keeps only what its result needs: models of clients that do not upload may be
left out of it. So the local steps are repeated here as if there were no server, from
the same state and with the same draws: then everybody's model is there.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from afga_jax import trees
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.recipe import FederatedState, Recipe
from afga_jax.rounds.round import init_state, run_round
from afga_jax.training.evaluate import mean_metrics
from afga_jax.typing import Array, ClientData, PyTree, Task


def check_inspectable(algorithm: FederatedAlgorithm) -> None:
    """Refuses algorithms whose rounds have no end of local steps for all clients."""
    cycles = len(jax.eval_shape(algorithm.plan, jax.random.key(0), 0).clusters)
    if cycles > 1:
        raise ValueError(
            f"a round has {cycles} cycles with a server step each, so there is no "
            "moment at which all clients hold a model of the same age: leave consensus "
            "and local_global out."
        )
    if algorithm.recipe.pooled:
        raise ValueError(
            "a centralised algorithm has a single client: leave consensus and "
            "local_global out."
        )


def inspect_round(
    algorithm: FederatedAlgorithm,
    key: Array,
    state: FederatedState,
    data: ClientData,
    *,
    local_global: bool = False,
) -> dict[str, Array]:
    """Measures all clients' models at the end of the next round's local steps.

        consensus = Σᵢ‖xᵢ − x̄‖²/N,  f_local = Σᵢ fᵢ(xᵢ)/N,  f_global = f(x̄)

    x̄ is the mean of all N models before the server's step; a client that does not take
    part still has the model that it started from. fᵢ is the loss over all samples of
    client i, f that over all samples.

    Args:
      algorithm: An algorithm from `build`.
      key: The run's key, the same for all rounds.
      state: The state before the round; it is not changed.
      data: The clients' data.
      local_global: Whether f_local and f_global are measured, too, which takes a pass
        over all data.

    Reference: HA-Fed, Appendix F.1.
    """
    recipe, task = algorithm.recipe_at(state), algorithm.task
    plan = algorithm.plan(key, state.round)
    # Of those who do not take part there must be models, too.
    plan = plan._replace(cycles=plan.cycles._replace(members=None))
    start = _without_server(recipe, task, key, state)
    serverless = lambda state: algorithm.recipe_at(state)._replace(server=None)  # noqa: E731
    after, _ = run_round(serverless, task, key, start, data, plan)
    models, _ = after.clients
    number = recipe.clustering.num_clients
    weights = jnp.full(number, 1 / number)
    measurements = {"consensus": trees.spread(weights, models.params, after.params)}
    if local_global:
        own_losses = _loss_of_each(task, data, lambda i: trees.take(models, i))
        mean_model_losses = _loss_of_each(task, data, lambda i: after)
        sizes = data.sizes / data.sizes.sum()
        f_global = (sizes * mean_model_losses).sum()
        measurements |= {"f_local": own_losses.mean(), "f_global": f_global}
    return measurements


def _without_server(
    recipe: Recipe, task: Task, key: Array, state: FederatedState
) -> FederatedState:
    """Everybody holds the model that its round starts from, and what is its own."""
    if recipe.server is None:
        return state
    given = task._replace(init=lambda key: (state.params, state.stats))
    start = init_state(recipe._replace(server=None), given, key, state.numbers)
    models, memories = start.clients
    if recipe.models_persist:
        models = state.clients[0]._replace(shared=models.shared)
    memories = memories._replace(control=state.controls)
    if recipe.keep_optimizer:
        memories = memories._replace(optimizer=state.optimizers)
    return dataclasses.replace(
        start,
        round=state.round,
        control=state.control,
        controls=state.controls,
        clients=(models, memories),
    )


def _loss_of_each(
    task: Task, data: ClientData, model: Callable[[Array], PyTree]
) -> Array:
    def loss(client):
        own = model(client)
        return mean_metrics(task, own.params, own.stats, data.full(client))["loss"]

    return jax.lax.map(loss, jnp.arange(len(data.sizes)))
