"""The span engine: a round in the span of its increments, for any number of clients.

Everybody starts a round at x_r and only the active add something, so every client
model is x_r + Σₖ cₖ·Dₖ with one increment Dₖ per gradient. Gossip acts on the
coefficients, which do not depend on gradients: a `Schedule` holds them as a sparse
list. Only the models that take a gradient and those that are uploaded are ever formed.
Equal to the dense engine in exact arithmetic; memory follows the increments alive at a
time, not the number of clients.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from afga_jax import trees
from afga_jax.mesh import on_cpu
from afga_jax.recipe import FederatedState, Model, Recipe, RoundInfo
from afga_jax.rounds import client_step, server_step
from afga_jax.rounds.cycle import Cycle
from afga_jax.rounds.span.schedule import Schedule
from afga_jax.rounds.update_rows import over_clients, over_lanes
from afga_jax.typing import Array, PyTree

# Increments that are added in one pass over a model.
_TOGETHER = 8


def reason_against(recipe: Recipe, params: PyTree) -> str | None:
    """Why the span engine cannot run a recipe; None: it can.

    Args:
      recipe: The algorithm.
      params: The model's parameters, or their shapes.
    """
    if recipe.server is None:
        return "without a server models persist, so a round has no common start"
    if recipe.models_persist:
        return "not everybody gets the server's model, so a round has no common start"
    if not recipe.mixing.linear:
        return (
            "gossip that is robust, lied to or compressed is not linear in the models"
        )
    _, shared = jax.eval_shape(recipe.optimizer.init, params)
    if jax.tree.leaves(shared):
        return "the local optimizer has state that is mixed"
    if any(not jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(params)):
        return "a parameter is not a floating-point number"
    return None


def run_cycle(cycle: Cycle, schedule: Schedule) -> tuple[FederatedState, RoundInfo]:
    """One cycle by a schedule, from one server model to the next.

    Devices share the lanes of each slot; all of them keep all increments and do the
    rest alike.
    """
    recipe, state, mesh = cycle.recipe, cycle.state, cycle.mesh
    cumulative = not recipe.mixing.mixes
    start, unravel = ravel_pytree(Model(state.params, state.stats, ()))
    clients = len(schedule.memory_client)
    controls, optimizers = trees.take(
        (state.controls, state.optimizers), schedule.memory_client
    )
    _, memories = client_step.fresh(
        recipe, state.params, state.stats, controls, optimizers, clients
    )
    # The last row takes what padding writes.
    table = jnp.zeros((schedule.rows + 1, len(start)), start.dtype)
    uploads = jnp.zeros((len(schedule.upload), len(start)), start.dtype)
    reads = (schedule.read_row, schedule.read_weight)
    copied = (client_step.copied_data(cycle), cycle.shared, start)

    # One value for each lane of a slot, `[slots, width]`.
    at_lane = ("client", "step", "row", "memory", "first", "count")
    lanes = tuple(getattr(schedule, name) for name in at_lane)

    @jax.jit  # Traced once, for the shapes of the results and for the loop.
    def step(inputs, copied):
        client, step, change, memory, batch = inputs
        data, shared, start = copied
        model = unravel(start + change)
        increment, *rest = client_step.step_client(
            cycle.given(shared), step, client, model, memory, batch, data, client
        )
        increment = increment._replace(shared=())
        if cumulative:
            increment = jax.tree.map(jnp.add, unravel(change), increment)
        # Few arrays to send, or for a kernel each to write, not each of the model's.
        if not on_cpu():
            increment = trees.joined(increment, trees.AT_ONCE)
        elif mesh is not None:
            increment = trees.joined(increment)
        return increment, *rest

    def slot(number, carry):
        table, uploads, memories, sums = carry
        at = jax.tree.map(lambda x: x[number], lanes)
        batches = client_step.sent_batches(cycle, at[1], at[0])

        def run(lanes, table, memories, reads, copied):
            (client, of_step, _, memory, first, count), batches = lanes
            formed = _form(reads, table, first, count)
            own = trees.take(memories, memory)
            inputs = (client, of_step, formed, own, batches)
            # Padding comes last in a slot; with one lane there is none.
            real = (client < cycle.num_clients).sum(dtype=jnp.int32)
            return over_clients(
                lambda inputs: step(inputs, copied),
                inputs,
                chunk=cycle.execution.chunk,
                count=real if schedule.client.shape[1] > 1 else None,
            )

        increments, memory_now, *measured = over_lanes(
            run, (at, batches), table, memories, reads, copied, mesh=mesh
        )
        row, memory = at[2:4]
        table = _write(table, row, increments)
        memories = trees.put(memories, memory, memory_now)
        sums = jax.tree.map(lambda a, x: a + x.sum(0), sums, tuple(measured))
        uploads = jax.lax.fori_loop(
            schedule.finished[number],
            schedule.finished[number + 1],
            functools.partial(_upload, schedule, reads, table),
            uploads,
        )
        return table, uploads, memories, sums

    memory = jax.tree.map(lambda x: x[0], memories)
    batch = jax.eval_shape(
        lambda at: jax.tree.map(
            lambda x: x[0], client_step.sent_batches(cycle, at, at)
        ),
        jnp.zeros(1, jnp.int32),
    )
    first = (jnp.int32(0), jnp.int32(0), start, memory, batch)
    measured = jax.eval_shape(step, first, copied)[2:]
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), measured)
    carry = (table, uploads, memories, zero)
    _, uploads, memories, sums = jax.lax.fori_loop(0, schedule.slots, slot, carry)
    optimizers = state.optimizers
    if recipe.keep_optimizer:
        optimizers = trees.put(optimizers, schedule.memory_client, memories.optimizer)
    memories = trees.take(memories, schedule.upload_memory)
    ids = cycle.part.upload.reshape(-1)
    weights = server_step.upload_weights(cycle)
    state, diagnostics = server_step.apply(cycle, ids, weights, uploads, memories)
    state = dataclasses.replace(state, optimizers=optimizers)
    diagnostics |= server_step.idle_uploads(cycle, reached(schedule))
    needed = (schedule.client < cycle.num_clients).sum(dtype=jnp.int32)
    return state, server_step.info(cycle, sums, needed, schedule.planned, diagnostics)


def reached(schedule: Schedule) -> Array:
    """Whether each upload reads any increment, `[uploads]`; padding reads none."""
    nothing = jnp.zeros(len(schedule.upload), bool)
    return nothing.at[schedule.upload].set(True, mode="drop")


def _form(
    reads: tuple[Array, Array], table: Array, first: Array, count: Array
) -> Array:
    """Σₖ cₖ·Dₖ for each lane, `[lanes, d]`, from its reads.

    Args:
      reads: Rows that are read and their weights, `[reads]` each.
      table: Increments, `[rows, d]`.
      first: Number of the first read of each lane, `[lanes]`.
      count: Number of reads of each lane, `[lanes]`.
    """
    read_row, read_weight = reads

    def more(number, total):
        for offset in range(_TOGETHER):
            at = number * _TOGETHER + offset
            row = read_row.at[first + at].get(mode="clip")
            weight = read_weight.at[first + at].get(mode="clip")
            weight = jnp.where(at < count, weight, 0).astype(table.dtype)[:, None]
            # A row of no weight may be another client's, and that one's NaN its own.
            total += jnp.where(weight != 0, weight * _rows_at(table, row), 0)
        return total

    empty = jnp.zeros((len(first), table.shape[1]), table.dtype)
    passes = (count.max() + _TOGETHER - 1) // _TOGETHER
    return jax.lax.fori_loop(0, passes, more, empty)


def _rows_at(table: Array, row: Array) -> Array:
    if len(row) == 1:
        # A slice fuses with what follows; XLA on CPU copies what it gathers.
        return jax.lax.dynamic_index_in_dim(table, row[0])
    return table[row]


def _write(table: Array, row: Array, increments: PyTree) -> Array:
    """Puts each lane's increment into its row, array by array.

    On a CPU as updates of slices, which happen in place. Joined to one row first, an
    increment would be put together number by number: XLA on CPU fuses that into the
    update.
    """
    offset = 0
    for leaf in jax.tree.leaves(increments):
        parts = leaf.reshape(len(row), -1).astype(table.dtype)
        if len(row) <= 8 and on_cpu():
            for lane in range(len(row)):
                part = parts[lane : lane + 1]
                at = (row[lane], jnp.asarray(offset, row.dtype))
                table = jax.lax.dynamic_update_slice(table, part, at)
        else:
            table = table.at[row, offset : offset + parts.shape[1]].set(parts)
        offset += parts.shape[1]
    return table


def _upload(schedule: Schedule, reads, table: Array, number: Array, uploads: Array):
    """Forms one upload and puts it into its row."""
    first, count = schedule.upload_first[number], schedule.upload_count[number]
    formed = _form(reads, table, first[None], count[None])
    return uploads.at[schedule.upload[number]].set(formed[0], mode="drop")
