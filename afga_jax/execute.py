"""The one place that knows how a function written for one client runs for many."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from afga_jax.platform import on_cpu
from afga_jax.typing import Array, PyTree


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


def my_share(rows: PyTree, axis: str | None) -> PyTree:
    """The rows that this device runs; all of them where there is no axis of devices.

    Args:
      rows: Leaves are `[rows, ...]`; the number of devices divides it.
      axis: Name of the axis of devices.
    """
    if axis is None:
        return rows
    devices, me = jax.lax.axis_size(axis), jax.lax.axis_index(axis)

    def share(x):
        size = len(x) // devices
        return jax.lax.dynamic_slice_in_dim(x, me * size, size)

    return jax.tree.map(share, rows)


def gather(rows: PyTree, axis: str | None) -> PyTree:
    """Everybody's rows from each device's share of them."""
    if axis is None:
        return rows
    return jax.lax.all_gather(rows, axis, tiled=True)


def _first(function, inputs, total: int, chunk: int, count: Array) -> PyTree:
    shapes = jax.eval_shape(function, jax.tree.map(lambda x: x[0], inputs))
    results = jax.tree.map(lambda x: jnp.zeros((total, *x.shape), x.dtype), shapes)

    def run(number, results):
        # The last chunk is moved back to end with the rows; rows that ran before run
        # again with the same result.
        start = jnp.minimum(number * chunk, total - chunk)
        slice_ = lambda x: jax.lax.dynamic_slice_in_dim(x, start, chunk)  # noqa: E731
        rows = jax.tree.map(slice_, inputs)
        if chunk == 1:
            one = function(jax.tree.map(lambda x: x[0], rows))
            new = jax.tree.map(lambda x: x[None], one)
        else:
            new = jax.vmap(function)(rows)
        real = start + jnp.arange(chunk) < count

        def put(all_rows, rows):
            keep = real.reshape(-1, *[1] * (rows.ndim - 1))
            rows = jnp.where(keep, rows, jnp.zeros_like(rows))
            return jax.lax.dynamic_update_slice_in_dim(all_rows, rows, start, 0)

        return jax.tree.map(put, results, new)

    return jax.lax.fori_loop(0, (count + chunk - 1) // chunk, run, results)
