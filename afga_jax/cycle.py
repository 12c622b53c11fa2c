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
from afga_jax.dealing import Dealt, on_this_device
from afga_jax.execute import over_clients
from afga_jax.participation import Plan
from afga_jax.recipe import FederatedState, Memory, Model, Recipe, RoundInfo
from afga_jax.shares import Held, everything
from afga_jax.typing import Array, Batch, ClientData, PyTree, Task


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
    optimizer, _ = jax.eval_shape(recipe.optimizer.init, params)
    done = jax.eval_shape(recipe.correction.begin, params)
    if recipe.correction.scale is None:
        # Every client counts its steps, and here nobody asks for the number.
        done = done.gradients
    return bool(jax.tree.leaves((optimizer, done, control)))


def step_client(
    cycle: Cycle,
    step: Array,
    client: Array,
    model: Model,
    memory: Memory,
    batch: Batch | None = None,
) -> tuple[Model, Memory, Array, dict[str, Array]]:
    """One client's local step, with the data and the keys of its place in the run.

    Its batch is drawn here, or given where another device has its samples.
    """
    state = cycle.state
    if batch is None:
        batch = draw_batch(cycle, step, client)
    anchor = (state.params, state.control)
    where = (state.round, cycle.number, step, client)
    dropout = keys.dropout_key(cycle.key, *where)
    return client_step(cycle.recipe, cycle.task, model, memory, anchor, batch, dropout)


def draw_batch(cycle: Cycle, step: Array, client: Array) -> Batch:
    """What a client sees at a step."""
    if cycle.recipe.full_batch:
        return cycle.data.full(client)
    where = (cycle.state.round, cycle.number, step, client)
    return cycle.data.batch(keys.batch_key(cycle.key, *where), client)


def has_own_data(cycle: Cycle) -> bool:
    """Whether a device can draw batches for all whose models it holds."""
    return not isinstance(cycle.data, Dealt) or cycle.data.aligned


def sent_batches(
    cycle: Cycle, steps: Array, clients: Array, count: Array | None = None
) -> Batch | None:
    """Batches on every device, each from where the client's samples are.

    Args:
      cycle: Where we are.
      steps: Of each client, or one for all.
      clients: Their ids, `[listed]`.
      count: Only the first so many are real; None: all.

    Returns:
      `[listed, ...]`; None: every device has all samples.
    """
    data = cycle.data
    if not isinstance(data, Dealt):
        return None
    here = on_this_device(data, clients, count)
    order = jnp.argsort(~here, stable=True)
    steps = jnp.broadcast_to(steps, clients.shape)
    drawn = over_clients(
        lambda at: draw_batch(cycle, *at),
        (steps[order], clients[order]),
        chunk=cycle.recipe.chunk,
        count=here.sum(dtype=jnp.int32),
    )
    return data.share.total(rows.put(jax.tree.map(jnp.zeros_like, drawn), order, drawn))


def end(
    cycle: Cycle,
    changes: Array,
    memories: Memory,
    uploads: Held | None = None,
    reached: Array | None = None,
) -> tuple[FederatedState, dict[str, Array]]:
    """The server's step on what the uploading clients did.

    Args:
      cycle: Where we are.
      changes: Of parameters and statistics since the cycle began, `[uploads, d]`.
      memories: `[uploads, ...]`.
      uploads: Those that are on this device; None: all are, on every device.
      reached: Whether a gradient has a part in each of all uploads; None: in all.
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
        reached,
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
