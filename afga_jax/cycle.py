"""What all engines share: how a cycle's client steps begin, run and end.

An engine decides when and where the gradients of a cycle are computed; which, from
which data, with which randomness and to what end is decided here.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from afga_jax import keys, rows
from afga_jax.aggregate import server_step
from afga_jax.client import client_step
from afga_jax.participation import Plan
from afga_jax.recipe import FederatedState, Memory, Model, Recipe, RoundInfo
from afga_jax.shares import Held, everything
from afga_jax.typing import Array, ClientData, PyTree, Task


class Cycle(NamedTuple):
    """Where in a round we are, and all that is fixed while its local steps run.

    `axis` names the axis of devices that share the work, inside `shard_map`.
    """

    recipe: Recipe
    task: Task
    key: Array
    state: FederatedState
    data: ClientData
    plan: Plan
    number: Array | int
    axis: str | None = None


def fresh(
    recipe: Recipe, params: PyTree, stats: PyTree, controls: PyTree, count: int
) -> tuple[Model, Memory]:
    """Models and memories of `count` clients that have done nothing yet.

    Args:
      recipe: The algorithm.
      params: Where everybody starts.
      stats: Likewise.
      controls: The clients' own, `[count, ...]`.
      count: How many.
    """
    optimizer, shared = recipe.optimizer.init(params)
    models = rows.repeat(Model(params, stats, shared), count)
    steps = recipe.correction.begin(params)
    optimizer, steps = rows.repeat((optimizer, steps), count)
    return models, Memory(optimizer, controls, steps)


def is_stateful(recipe: Recipe, params: PyTree) -> bool:
    """Whether a client's step depends on its steps before, beyond the model."""
    control = jax.eval_shape(recipe.correction.init, params)
    begin = jax.eval_shape(
        lambda p: (recipe.optimizer.init(p)[0], recipe.correction.begin(p)), params
    )
    return bool(jax.tree.leaves((begin, control)))


def step_client(
    cycle: Cycle, step: Array, client: Array, model: Model, memory: Memory
) -> tuple[Model, Memory, Array, dict[str, Array]]:
    """One client's local step, with the data and the keys of its place in the run."""
    state, data = cycle.state, cycle.data
    where = (state.round, cycle.number, step, client)
    if cycle.recipe.full_batch:
        batch = data.full(client)
    else:
        batch = data.batch(keys.batch_key(cycle.key, *where), client)
    anchor = (state.params, state.control)
    dropout = keys.dropout_key(cycle.key, *where)
    return client_step(cycle.recipe, cycle.task, model, memory, anchor, batch, dropout)


def end(
    cycle: Cycle, changes: Array, memories: Memory, uploads: Held | None = None
) -> tuple[FederatedState, dict[str, Array]]:
    """The server's step on what the uploading clients did.

    Args:
      cycle: Where we are.
      changes: Of parameters and statistics since the cycle began, `[uploads, d]`.
      memories: `[uploads, ...]`.
      uploads: Those that are on this device; None: all are, on every device.
    """
    return server_step(
        cycle.recipe,
        cycle.state,
        cycle.data,
        cycle.plan.cycle(cycle.number),
        cycle.plan.clusters[cycle.number],
        changes,
        memories,
        everything(len(changes)) if uploads is None else uploads,
    )


def info(
    sums: tuple[Array, dict[str, Array]],
    needed: Array,
    planned: Array,
    moved: dict[str, Array],
) -> RoundInfo:
    """Diagnostics from sums over the gradients that were computed."""
    mean = jax.tree.map(lambda x: x / jnp.maximum(needed, 1), sums)
    loss, metrics = mean
    return RoundInfo(loss, metrics, gradients=planned, needed=needed, **moved)
