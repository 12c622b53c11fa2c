"""What all engines share: how a cycle's client steps begin, run and end.

An engine decides when and where the gradients of a cycle are computed; which, from
which data, with which randomness and to what end is decided here.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from afga_jax import keys, rows
from afga_jax.aggregate import upload_weights
from afga_jax.client import client_step
from afga_jax.client_blocks import ClientBlocks
from afga_jax.execution import Execution
from afga_jax.mesh import CLIENTS, blocks_of
from afga_jax.mixing import positions
from afga_jax.participation import Plan
from afga_jax.recipe import FederatedState, Memory, Model, Recipe, RoundInfo
from afga_jax.typing import Array, Batch, ClientData, PyTree, Task
from afga_jax.update_rows import (
    collected_rows,
    rows_from_blocks,
    update_rows,
    uploaded_rows,
)


class Cycle(NamedTuple):
    """Where in a round we are, and all that is fixed while its local steps run.

    Attributes:
      recipe: The algorithm, with the numbers of the state.
      recipe_at: Makes the recipe from a state.
      task: The loss.
      key: The run's key.
      state: The state before this cycle.
      data: The clients' data.
      plan: Who takes part in the round.
      number: The cycle's number in the round.
      execution: How the round is computed.
    """

    recipe: Recipe
    recipe_at: Callable[[FederatedState], Recipe]
    task: Task
    key: Array
    state: FederatedState
    data: ClientData
    plan: Plan
    number: Array | int
    execution: Execution

    @property
    def shared(self) -> PyTree:
        """What a client's step reads of all this, for `given`."""
        state = dataclasses.replace(self.state, server=(), controls=(), clients=())
        return None if self.mesh is None else (self.key, state, self.number)

    def given(self, shared: PyTree) -> "Cycle":
        """The same inside `shard_map`, which may close over no array.

        Args:
          shared: From `shared`, passed as an argument; None: on one device.
        """
        if shared is None:
            return self
        key, state, number = shared
        recipe = self.recipe_at(state)
        return self._replace(recipe=recipe, key=key, state=state, number=number)

    @property
    def mesh(self) -> Mesh | None:
        """Devices that share the clients; None: one has all."""
        mesh = self.execution.mesh
        return mesh if mesh is not None and CLIENTS in mesh.axis_names else None

    @property
    def holders(self) -> Array | None:
        """Ids of the clients that hold a model, in row order; None: 0, 1, …, N−1.

        Filled up with nobody's so that all devices have equally many.
        """
        ids = self.recipe.mixing.rows(self.plan, self.number)
        if ids is None:
            return None
        missing = -len(ids) % blocks_of(self.mesh)
        return jnp.pad(ids, (0, missing), constant_values=self._num_clients)

    def rows_at(self, tree: PyTree, place: Array) -> PyTree:
        """The rows at `place`, in that order; past the last, anything."""
        return collected_rows(tree, place, self.mesh)

    @property
    def _num_clients(self) -> int:
        return self.recipe.clustering.num_clients


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


def mixing_at(cycle: Cycle, step: Array) -> Callable[[PyTree], PyTree]:
    """How everybody's rows are mixed at a step."""
    operator = cycle.recipe.mixing.at(cycle.plan, step, cycle.number)
    if cycle.mesh is None:
        return operator.apply
    return functools.partial(operator.apply, mesh=cycle.mesh)


def step_clients(
    cycle: Cycle,
    step: Array,
    active: Array,
    models: Model,
    memories: Memory,
    place: Array,
    count: Array | None,
    *,
    read: Model | None = None,
) -> tuple[Model, Memory, tuple[Array, dict[str, Array]]]:
    """One local step of the active clients, each from its row.

    Args:
      cycle: Where we are.
      step: Of the cycle.
      active: Who computes, `[active]`.
      models: `[rows, ...]`.
      memories: `[rows, ...]`.
      place: The active clients' rows, `[active]`.
      count: Only the first so many are real; None: all.
      read: The models that gradients are taken at; None: `models`.

    Returns:
      Models, memories, and the sums of losses and metrics.
    """
    data = cycle.data
    aligned = isinstance(data, ClientBlocks) and data.aligned
    batches = None if aligned else sent_batches(cycle, step, active, count)

    def one(model, memory, inputs, copied, data, row):
        client, batch = inputs
        shared, step = copied
        at = row if aligned else client
        increment, memory, *measured = step_client(
            cycle.given(shared), step, client, model, memory, batch, data, at
        )
        return increment, memory, tuple(measured)

    return update_rows(
        one,
        models,
        memories,
        place,
        count,
        (active, batches),
        (cycle.shared, step),
        cast(ClientBlocks, data).own if aligned else copied_data(cycle),
        in_blocks=aligned,
        read=read,
        chunk=cycle.execution.chunk,
        mesh=cycle.mesh,
    )


def step_client(
    cycle: Cycle,
    step: Array,
    client: Array,
    model: Model,
    memory: Memory,
    batch: Batch | None,
    data: ClientData,
    at: Array,
) -> tuple[Model, Memory, Array, dict[str, Array]]:
    """One client's local step, with the data and the keys of its place in the run.

    Its batch is given where another device has its samples; otherwise it is drawn from
    the data, in which the client is the `at`-th.
    """
    state = cycle.state
    if batch is None:
        batch = draw_batch(cycle, data, step, client, at)
    anchor = (state.params, state.control)
    where = (state.round, cycle.number, step, client)
    dropout = keys.dropout_key(cycle.key, *where)
    return client_step(cycle.recipe, cycle.task, model, memory, anchor, batch, dropout)


def draw_batch(
    cycle: Cycle, data: ClientData, step: Array, client: Array, at: Array
) -> Batch:
    """What a client sees at a step; `at` is its number among the data's clients."""
    if cycle.recipe.full_batch:
        return data.full(at)
    where = (cycle.state.round, cycle.number, step, client)
    return data.batch(keys.batch_key(cycle.key, *where), at)


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
    if not isinstance(data, ClientBlocks):
        return None
    return rows_from_blocks(
        lambda own, row, at, shared: draw_batch(
            cycle.given(shared), own, at[0], at[1], row
        ),
        data.own,
        data.block,
        data.place[clients],
        count,
        (jnp.broadcast_to(steps, clients.shape), clients),
        cycle.shared,
        chunk=cycle.execution.chunk,
        mesh=cast(Mesh, cycle.mesh),
    )


def copied_data(cycle: Cycle) -> ClientData | None:
    """The data, if every device has all of them."""
    return None if isinstance(cycle.data, ClientBlocks) else cycle.data


def uploads(
    cycle: Cycle, holders: Array | None, tree: PyTree
) -> tuple[PyTree, Array, Array]:
    """What the uploading clients hold, with their ids and weights.

    Args:
      cycle: Where we are.
      holders: Ids in row order; None: 0, 1, …, N−1.
      tree: `[rows, ...]`.
    """
    part, nobody = cycle.plan.cycle(cycle.number), cycle.recipe.clustering.num_clients
    ids, weights = part.upload.reshape(-1), weights_of(cycle)
    place = positions(holders, ids, nobody)
    return uploaded_rows(tree, place, ids, weights, nobody=nobody, mesh=cycle.mesh)


def weights_of(cycle: Cycle) -> Array:
    """The weight of each upload in Δ, `[uploads]`."""
    part, clusters = cycle.plan.cycle(cycle.number), cycle.plan.clusters[cycle.number]
    return upload_weights(cycle.recipe, cycle.data, part, clusters)


def idle_uploads(cycle: Cycle, reached: Array | None) -> dict[str, Array]:
    """How many uploads no gradient has a part in, for `info`.

    Args:
      cycle: Where we are.
      reached: Whether one has a part in each upload, `[uploads]`; None: in all.
    """
    ids = cycle.plan.cycle(cycle.number).upload.reshape(-1)
    idle = jnp.zeros(ids.shape, bool)
    if reached is not None:
        idle = (ids < cycle.recipe.clustering.num_clients) & ~reached
    return {"idle_uploads": idle.sum(dtype=jnp.int32)}


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
