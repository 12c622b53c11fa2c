"""How a step that is written for one client runs for those who take it.

The one module that knows about vmap, chunks and devices: on a mesh each device updates
the rows that lie on it.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from afga_jax import trees
from afga_jax.mesh import CLIENTS, COPIED, ROWS, blocks_of, on_cpu, over_blocks
from afga_jax.typing import Array, PyTree


def update_rows(
    step: Callable[..., tuple[PyTree, PyTree, PyTree]],
    models: PyTree,
    memories: PyTree,
    rows: Array,
    count: Array | None,
    inputs: PyTree,
    copied: PyTree,
    data: PyTree,
    *,
    in_blocks: bool = False,
    read: PyTree = None,
    mixed: bool = False,
    chunk: int | None = None,
    mesh: Mesh | None = None,
) -> tuple[PyTree, PyTree, PyTree]:
    """Steps the clients at some rows: adds to their models, replaces their memories.

    Args:
      step: `(model, memory, input, copied, data, row) -> (increment, memory,
        measured)`, for one client. It closes over no array: devices would not have it.
      models: `[rows, ...]`, to which increments are added.
      memories: `[rows, ...]`.
      rows: Row numbers of the clients that step, each at most once, `[listed]`; past
        the last row is padding.
      count: Only the first so many are real; None: all.
      inputs: What is given to each listed client, `[listed, ...]`.
      copied: What all steps read.
      data: The clients' data.
      in_blocks: Whether the data lie in blocks with the rows: then a step is given its
        device's block, and its row in it.
      read: The models that clients step from, `[rows, ...]`; None: `models`.
      mixed: Whether models are mixed before or after this, into new memory.
      chunk: Clients that run side by side on a device; None: by platform.
      mesh: Devices that share the rows; None: one has all.

    Returns:
      Models, memories, and the sums of what was measured, one for each device.
    """

    def block(models, memories, read, data, rows, count, inputs, copied, usual=None):
        """On one device, with the numbers of its own rows."""
        at = lambda tree: trees.take(tree, rows)  # noqa: E731
        increments, memory, measured = over_clients(
            lambda client: step(*client[:3], copied, data, client[3]),
            (at(models if read is None else read), at(memories), inputs, rows),
            chunk=chunk,
            count=count,
            usual=usual,
        )
        everybody = len(rows) == len(jax.tree.leaves(models)[0])
        add = _sums if mixed and everybody and not on_cpu() else trees.add
        models = add(models, rows, increments)
        memories = trees.put(memories, rows, memory)
        return models, memories, jax.tree.map(lambda x: x.sum(0), measured)

    if mesh is None:
        return block(models, memories, read, data, rows, count, inputs, copied)
    # How many of the list a device has on average.
    usual = -(-len(rows) // blocks_of(mesh))

    def here(models, memories, read, data, rows, count, inputs, copied):
        size = len(jax.tree.leaves(models)[0])
        local, order, number = _lying_here(size, rows, count)
        inputs = trees.take(inputs, order)
        *updated, sums = block(
            models, memories, read, data, local, number, inputs, copied, usual
        )
        return *updated, jax.tree.map(lambda x: x[None], sums)

    in_specs = (ROWS, ROWS, ROWS, ROWS if in_blocks else COPIED, *[COPIED] * 4)
    return over_blocks(here, mesh, in_specs, ROWS)(
        models, memories, read, data, rows, count, inputs, copied
    )


def collected_rows(tree: PyTree, rows: Array, mesh: Mesh | None = None) -> PyTree:
    """Rows by their numbers, in that order, on every device; past the last, anything.

    Args:
      tree: `[rows, ...]`.
      rows: Row numbers, `[listed]`.
      mesh: Devices that share the rows: each sends those that lie on it. A compiler
        would gather all of them.
    """
    if mesh is None:
        return trees.take(tree, rows)

    def here(tree, rows):
        def collect(x):
            local = rows - jax.lax.axis_index(CLIENTS) * len(x)
            local = jnp.where(local < 0, len(x), local)
            own = x.at[local].get(mode="fill", fill_value=0)
            return jax.lax.psum(own, CLIENTS)

        return jax.tree.map(collect, tree)

    return over_blocks(here, mesh, (ROWS, COPIED), COPIED)(tree, rows)


def uploaded_rows(
    tree: PyTree,
    rows: Array,
    ids: Array,
    weights: Array,
    *,
    nobody: int,
    mesh: Mesh | None = None,
) -> tuple[PyTree, Array, Array]:
    """What lies at some rows; on a mesh no row moves, so the order changes.

    Args:
      tree: `[rows, ...]`.
      rows: Row numbers of the uploading clients, `[uploads]`; past the last row is
        padding.
      ids: Ids of the uploading clients, `[uploads]`.
      weights: Weights of the uploads, `[uploads]`.
      nobody: The id of what fills up a device's list; its weight is zero.
      mesh: Devices that share the rows: each takes out those that lie on it.

    Returns:
      Rows with their ids and weights.
    """
    if mesh is None:
        return trees.take(tree, rows), ids, weights

    def here(tree, rows, ids, weights):
        size = len(jax.tree.leaves(tree)[0])
        local, order, number = _lying_here(size, rows, None)
        real = jnp.arange(len(order)) < number
        own_ids = jnp.where(real, ids[order], jnp.asarray(nobody, ids.dtype))
        return trees.take(tree, local), own_ids, jnp.where(real, weights[order], 0)

    in_specs = (ROWS, *[COPIED] * 3)
    return over_blocks(here, mesh, in_specs, ROWS)(tree, rows, ids, weights)


def rows_from_blocks(
    function: Callable[..., PyTree],
    own: PyTree,
    block: int,
    rows: Array,
    count: Array | None,
    inputs: PyTree,
    copied: PyTree,
    *,
    chunk: int | None = None,
    mesh: Mesh,
) -> PyTree:
    """What each device computes from its block for some clients, on every device.

    Args:
      function: `(own, row, input, copied) -> result`, for one client and its row in
        the block.
      own: Arrays that lie in blocks over the devices.
      block: Number of rows in a block.
      rows: Row numbers of the clients among all rows, `[listed]`.
      count: Only the first so many are real; None: all.
      inputs: What is given to each listed client, `[listed, ...]`.
      copied: What all read.
      chunk: Clients that run side by side on a device; None: by platform.
      mesh: Devices that hold the blocks.

    Returns:
      Results `[listed, ...]`.
    """

    def here(own, rows, count, inputs, copied):
        local, order, number = _lying_here(block, rows, count)
        results = over_clients(
            lambda client: function(own, *client, copied),
            (local, trees.take(inputs, order)),
            chunk=chunk,
            count=number,
        )
        shape = lambda x: jnp.zeros((len(rows), *x.shape[1:]), x.dtype)  # noqa: E731
        at = jnp.where(jnp.arange(len(order)) < number, order, len(rows))
        listed = trees.put(jax.tree.map(shape, results), at, results)
        return jax.lax.psum(listed, CLIENTS)

    in_specs = (ROWS, *[COPIED] * 4)
    return over_blocks(here, mesh, in_specs, COPIED)(own, rows, count, inputs, copied)


def over_clients(
    function: Callable[[PyTree], PyTree],
    inputs: PyTree,
    *,
    chunk: int | None = None,
    count: Array | None = None,
    usual: int | None = None,
) -> PyTree:
    """Applies `function` to every row of `inputs`.

    Args:
      function: Written for one client.
      inputs: Leaves are `[clients, ...]`.
      chunk: Clients that run side by side; None: one at a time on CPU, where a batched
        weight turns a convolution into a slow grouped one, all at once elsewhere.
      count: Only the first `count` rows are real. The others cost nothing beyond the
        last chunk, and their results are zero whatever was computed.
      usual: How many rows are real as a rule, where that is known: then not all but so
        many run at once on an accelerator.

    Returns:
      Results with leaves `[clients, ...]`.
    """
    total = len(jax.tree.leaves(inputs)[0])
    if chunk is None:
        chunk = 1 if on_cpu() else usual or total
    chunk = min(chunk, total)
    if count is not None:
        # Traced once, for the shapes of the results and for the loop.
        return _first(jax.jit(function), inputs, total, chunk, count)
    if chunk == 1:
        return jax.lax.map(function, inputs)
    if chunk == total:
        return jax.vmap(function)(inputs)
    return jax.lax.map(function, inputs, batch_size=chunk)


def over_lanes(
    function: Callable[..., PyTree],
    lanes: PyTree,
    *copied: PyTree,
    mesh: Mesh | None = None,
) -> PyTree:
    """Applies `function` to all lanes of a slot, shared by the devices.

    Args:
      function: Takes some lanes, `[lanes, ...]`, and what every device has.
      lanes: Inputs of the lanes; their number is a multiple of the devices.
      *copied: What every device has.
      mesh: Devices that share the lanes; each gets all results.
    """
    if mesh is None:
        return function(lanes, *copied)

    def here(lanes, *copied):
        return jax.lax.all_gather(function(lanes, *copied), CLIENTS, tiled=True)

    in_specs = (ROWS, *[COPIED] * len(copied))
    return over_blocks(here, mesh, in_specs, COPIED)(lanes, *copied)


def _sums(models: PyTree, rows: Array, increments: PyTree) -> PyTree:
    """As `trees.add` where all rows step, but in new memory.

    The old is then free for what is mixed, which would be copied back to it otherwise.
    """
    size = len(rows)
    # Who is not listed gets a number past the list: computed, as a constant is copied.
    numbers = jnp.arange(size, dtype=rows.dtype)
    place = jnp.maximum(rows, size).at[rows].set(numbers, mode="drop")
    own = jax.tree.map(lambda x: x.at[place].get(mode="fill", fill_value=0), increments)
    # Not summed once more for each neighbour that reads it.
    return jax.lax.optimization_barrier(jax.tree.map(jnp.add, models, own))


def _lying_here(
    size: int, rows: Array, count: Array | None
) -> tuple[Array, Any, Array]:
    """Rows of this device's block: local row numbers, positions in the list, how many.

    Those that lie here come first; the others are past the last row.
    """
    local = rows - jax.lax.axis_index(CLIENTS) * size
    here = (local >= 0) & (local < size)
    if count is not None:
        here &= jnp.arange(len(rows)) < count
    order = jnp.argsort(~here, stable=True)[: min(len(rows), size)]
    return jnp.where(here, local, size)[order], order, here.sum(dtype=jnp.int32)


def _first(function, inputs, total: int, chunk: int, count: Array) -> PyTree:
    shapes = jax.eval_shape(function, jax.tree.map(lambda x: x[0], inputs))
    results = jax.tree.map(lambda x: jnp.zeros((total, *x.shape), x.dtype), shapes)
    if chunk == total and not on_cpu():
        # A condition needs no zeros to begin with, and is not asked for a second time.
        return jax.lax.cond(
            count > 0,
            lambda: jax.tree.map(
                functools.partial(_only, jnp.arange(total) < count),
                jax.vmap(function)(inputs),
            ),
            lambda: results,
        )

    def run(number, results):
        # The last chunk is moved back to end with the rows; rows that ran before run
        # again with the same result.
        start = jnp.minimum(number * chunk, total - chunk)
        slice_ = lambda x: jax.lax.dynamic_slice_in_dim(x, start, chunk)  # noqa: E731
        rows = jax.tree.map(slice_, inputs)
        if chunk == 1:
            single = function(jax.tree.map(lambda x: x[0], rows))
            new = jax.tree.map(lambda x: x[None], single)
        else:
            new = jax.vmap(function)(rows)
        real = start + jnp.arange(chunk) < count

        def put(all_rows, rows):
            rows = _only(real, rows)
            return jax.lax.dynamic_update_slice_in_dim(all_rows, rows, start, 0)

        return jax.tree.map(put, results, new)

    return jax.lax.fori_loop(0, (count + chunk - 1) // chunk, run, results)


def _only(real: Array, rows: Array) -> Array:
    """Rows where `real`, zeros elsewhere."""
    keep = real.reshape(-1, *[1] * (rows.ndim - 1))
    return jnp.where(keep, rows, jnp.zeros_like(rows))
