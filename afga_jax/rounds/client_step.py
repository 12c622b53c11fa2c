"""What clients do in a cycle: how their local steps begin, run and are fed.

An engine decides when and where the gradients of a cycle are computed; which, from
which data, with which randomness and to what end is decided here.
"""

from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from afga_jax import keys, trees
from afga_jax.mesh import on_cpu
from afga_jax.recipe import Memory, Model, Recipe
from afga_jax.rounds.client_blocks import ClientBlocks
from afga_jax.rounds.cycle import Cycle
from afga_jax.rounds.update_rows import rows_from_blocks, update_rows
from afga_jax.typing import Array, Batch, ClientData, PyTree, Task

Packing = trees.Packing | trees.Unpacked


class RowForm:
    """How models and memories of clients lie in rows while local steps run.

    For accelerators a model is one vector, and so is each field of a memory: everybody
    is a few arrays `[rows, d]`, of which rows are taken, added to and mixed at once,
    where a tree starts a kernel for each of its arrays. A CPU has nothing to start, and
    the vector of a gradient would be one more copy of it: there rows are trees.

    Args:
      model: One client's, or its shapes.
      memory: One client's, or its shapes; what is public is a vector already.
    """

    def __init__(self, model: Model, memory: Memory):
        self._model = _packing(model)
        fields = [_packing(field) for field in memory[:-1]]
        self._fields = [*fields, trees.Unpacked(memory.public)]

    def pack(self, model: Model, memory: Memory) -> tuple[PyTree, Memory]:
        """A client's model and memory as they lie in a row."""
        fields = zip(self._fields, memory, strict=True)
        return self._model.pack(model), Memory(*(how.pack(x) for how, x in fields))

    def unpack(self, model: PyTree, memory: Memory) -> tuple[Model, Memory]:
        """The model and the memory that lie in a row."""
        fields = zip(self._fields, memory, strict=True)
        return self._model.unpack(model), Memory(*(how.unpack(x) for how, x in fields))

    def with_shared(self, models: PyTree, mixed: PyTree) -> PyTree:
        """Models with what they share as in others; all are rows of everybody."""

        def joined(model, mixed):
            shared = self._model.unpack(mixed).shared
            return self._model.pack(self._model.unpack(model)._replace(shared=shared))

        return jax.vmap(joined)(models, mixed)


def _packing(example: PyTree) -> Packing:
    if on_cpu():
        return trees.Unpacked(example)
    return trees.Packing(example, most=trees.AT_ONCE)


def local_step(
    recipe: Recipe,
    task: Task,
    model: Model,
    memory: Memory,
    anchor: tuple[PyTree, PyTree],
    batch: Batch,
    key: Array,
) -> tuple[Model, Memory, Array, dict[str, Array]]:
    """One local step of one client.

    Args:
      recipe: The algorithm, for its optimizer and its correction.
      task: The loss.
      model: The client's model; `shared` as the step should see it.
      memory: What the client remembers of its steps.
      anchor: The round's starting parameters and the mean control.
      batch: The data of the step.
      key: The key of the step's dropout.

    Returns:
      What to add to the model, the new memory, the loss and the metrics.
    """
    start, mean_control = anchor
    loss_of = jax.value_and_grad(task.loss, has_aux=True)
    (loss, (stats, metrics)), raw = loss_of(model.params, model.stats, batch, key, True)
    gradient = recipe.correction.gradient(
        raw, model.params, start, memory.control, mean_control
    )
    updates, optimizer, shared = recipe.optimizer.update(
        gradient, memory.optimizer, model.shared, model.params
    )
    increment = Model(updates, jax.tree.map(jnp.subtract, stats, model.stats), shared)
    steps = recipe.correction.record(memory.steps, raw)
    memory_now = memory._replace(optimizer=optimizer, steps=steps)
    return (
        trees.with_dtypes_of(model, increment),
        trees.with_dtypes_of(memory, memory_now),
        loss,
        metrics,
    )


def fresh(
    recipe: Recipe,
    params: PyTree,
    stats: PyTree,
    controls: PyTree,
    optimizers: PyTree,
    count: int,
) -> tuple[Model, Memory]:
    """Models and memories of `count` clients that have done nothing yet.

    Args:
      recipe: The algorithm.
      params: Where everybody starts.
      stats: The statistics that everybody starts with.
      controls: The clients' own controls, `[count, ...]`.
      optimizers: The states of their optimizers, `[count, ...]`, if the recipe keeps
        them; otherwise they begin anew.
      count: Number of clients.
    """
    optimizer, shared = recipe.optimizer.init(params)
    models = trees.repeat(Model(params, stats, shared), count)
    steps = recipe.correction.begin(params)
    optimizer, steps = trees.repeat((optimizer, steps), count)
    if recipe.keep_optimizer:
        optimizer = optimizers
    public: PyTree = ()
    if recipe.mixing.remembers:
        public = trees.repeat(trees.ravel(Model(params, stats, shared))[0], count)
    return models, Memory(optimizer, controls, steps, public)


def resumed(recipe: Recipe, models: Model, memories: Memory) -> tuple[Model, Memory]:
    """Models and memories that persist, at the start of a round.

    Args:
      recipe: The algorithm; where it does not keep optimizers, they begin anew.
      models: The clients' models after the round before, `[count, ...]`.
      memories: What they remember of it, `[count, ...]`.
    """
    if recipe.keep_optimizer:
        return models, memories
    optimizer, shared = jax.vmap(recipe.optimizer.init)(models.params)
    return models._replace(shared=shared), memories._replace(optimizer=optimizer)


def is_stateful(recipe: Recipe, params: PyTree) -> bool:
    """Whether a client's step depends on its steps before, beyond the model."""
    control = jax.eval_shape(recipe.correction.init, params)
    optimizer, _ = jax.eval_shape(recipe.optimizer.init, params)
    done = jax.eval_shape(recipe.correction.begin, params)
    if not recipe.aggregator.uses_steps:
        # Every client counts its steps, and here nobody asks for the number.
        done = done.gradients
    return bool(jax.tree.leaves((optimizer, done, control)))


def mixing_at(
    cycle: Cycle, step: Array
) -> Callable[[PyTree, Memory], tuple[PyTree, Memory]]:
    """How everybody's rows are mixed at a step, with what they remember of it."""
    operator = cycle.recipe.mixing.at(cycle.plan, step, cycle.number)
    more = {} if cycle.mesh is None else {"mesh": cycle.mesh}

    def mix(models, memories):
        if operator.exchange is None:
            return operator.apply(models, **more), memories
        models, public = operator.exchange(models, memories.public, **more)
        return models, memories._replace(public=public)

    return mix


def step_clients(
    cycle: Cycle,
    form: RowForm,
    step: Array,
    active: Array,
    models: PyTree,
    memories: Memory,
    rows: Array,
    count: Array | None,
    *,
    read: PyTree = None,
) -> tuple[PyTree, Memory, tuple[Array, dict[str, Array]]]:
    """One local step of the active clients, each from its row.

    Args:
      cycle: Where we are.
      form: How a model and a memory lie in a row.
      step: The step's number in the cycle.
      active: Who computes, `[active]`.
      models: Everybody's models, in rows.
      memories: Everybody's memories, in rows.
      rows: Row numbers of the active clients, `[active]`.
      count: Only the first so many are real; None: all.
      read: The models that gradients are taken at; None: `models`.

    Returns:
      Models, memories, and the sums of losses and metrics.
    """
    data = cycle.data
    aligned = isinstance(data, ClientBlocks) and data.aligned
    batches = None if aligned else sent_batches(cycle, step, active, count)

    def step_row(model, memory, inputs, copied, data, row):
        client, batch = inputs
        shared, step = copied
        at = row if aligned else client
        now, held = cycle.given(shared), form.unpack(model, memory)
        increment, new, *measured = step_client(
            now, step, client, *held, batch, data, at
        )
        return *form.pack(increment, new), tuple(measured)

    return update_rows(
        step_row,
        models,
        memories,
        rows,
        count,
        (active, batches),
        (cycle.shared, step),
        cast(ClientBlocks, data).own if aligned else copied_data(cycle),
        in_blocks=aligned,
        read=read,
        mixed=cycle.recipe.mixing.mixes,
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
    recipe = cycle.recipe_of(client)
    return local_step(recipe, cycle.task, model, memory, anchor, batch, dropout)


def draw_batch(
    cycle: Cycle, data: ClientData, step: Array, client: Array, at: Array
) -> Batch:
    """What a client sees at a step; `at` is its number among the data's clients."""
    if cycle.recipe.full_batch:
        batch = data.full(at)
    else:
        where = (cycle.state.round, cycle.number, step, client)
        batch = data.batch(keys.batch_key(cycle.key, *where), at)
    attack = cycle.recipe.attack
    if attack is None or attack.batch is None or cycle.liars is None:
        return batch
    lies = cycle.liars.at[client].get(mode="fill", fill_value=False)
    flipped = attack.batch(batch)
    return jax.tree.map(lambda x, lie: jnp.where(lies, lie, x), batch, flipped)


def sent_batches(
    cycle: Cycle, steps: Array, clients: Array, count: Array | None = None
) -> Batch | None:
    """Batches on every device, each from where the client's samples are.

    Args:
      cycle: Where we are.
      steps: The step of each client, or one for all.
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
        data.row_of[clients],
        count,
        (jnp.broadcast_to(steps, clients.shape), clients),
        cycle.shared,
        chunk=cycle.execution.chunk,
        mesh=cast(Mesh, cycle.mesh),
    )


def copied_data(cycle: Cycle) -> ClientData | None:
    """The data, if every device has all of them."""
    return None if isinstance(cycle.data, ClientBlocks) else cycle.data
