"""What one client's gradient takes, counted from the trace of its loss.

Nothing is compiled or run. The count follows loops by their length and knows products
of matrices and convolutions; anything else counts one operation for each number that
it makes.
"""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.extend import core

from afga_jax.typing import Array, Batch, ClientData, Task

#: Passes of a gradient: those by the inputs and by the weights each cost what the loss
#: itself does.
PASSES = 3
# XLA computes these where they are read and does not keep them.
_JOINED = ("add", "add_any", "sub", "mul", "div", "neg", "convert_element_type")
_VIEWS = ("slice", "squeeze", "reshape", "broadcast_in_dim", "transpose")
_NOT_KEPT = frozenset(_JOINED + _VIEWS)


@struct.dataclass
class Work:
    """The work of one gradient.

    Attributes:
      operations: Number of operations on floating-point numbers.
      bytes: Values that the loss makes on its way and the way back reads.
    """

    operations: float
    bytes: float


def count(task: Task, data: ClientData, *, full_batch: bool = False) -> Work:
    """Counts one gradient of a client; see `of_batch`.

    Args:
      task: Its loss is traced, at the cost of a part of what tracing a round costs.
      data: Its batches' shapes matter.
      full_batch: A step sees all samples of a client.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    client = jax.ShapeDtypeStruct((), jnp.int32)
    if full_batch:
        batch = jax.eval_shape(lambda data, client: data.full(client), data, client)
    else:
        draw = lambda data, key, client: data.batch(key, client)  # noqa: E731
        batch = jax.eval_shape(draw, data, key, client)
    return of_batch(task, batch)


def of_batch(task: Task, batch: Batch) -> Work:
    """Counts one gradient, by tracing the loss.

    What it ignores: the moves of memory between operations, and how well an operation
    suits the machine; loops whose length only the values decide, which count once; what
    XLA keeps or does not keep against expectation.

    Args:
      task: Its loss is traced.
      batch: Shapes are enough.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    params, stats = jax.eval_shape(task.init, key)

    def loss(params, stats, batch: Batch, key: Array):
        return task.loss(params, stats, batch, key, True)

    traced = jax.make_jaxpr(loss)(params, stats, batch, key)
    operations, bytes_ = _counted(traced.jaxpr)
    return Work(PASSES * operations, bytes_ + _bytes(traced.jaxpr.invars))


def _counted(jaxpr: core.Jaxpr) -> tuple[float, float]:
    """Operations, and bytes of the values made."""
    operations, bytes_ = 0.0, 0.0
    for equation in jaxpr.eqns:
        inside = [_counted(inner) for inner in _inner(equation)]
        is_loop = "length" in equation.params
        if inside:
            times = equation.params["length"] if is_loop else 1
            # Of branches, which are often one for each platform, only one runs.
            total = max if equation.primitive.name == "cond" else sum
            operations += times * total(part[0] for part in inside)
            # A loop's memory is used again by its next turn.
            bytes_ += sum(part[1] for part in inside)
        else:
            operations += _operations(equation)
        if is_loop or not (inside or equation.primitive.name in _NOT_KEPT):
            bytes_ += _bytes(equation.outvars)
    return operations, bytes_


def _operations(equation: core.JaxprEqn) -> float:
    name = equation.primitive.name
    shapes = [_shape(x) for x in equation.outvars]
    results = float(sum(math.prod(shape) for shape in shapes))
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = _shape(equation.invars[0])
        return 2.0 * results * math.prod(shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = _shape(equation.invars[1])
        outputs = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
        return 2.0 * results * math.prod(kernel) / outputs
    return results


def _shape(value: Any) -> tuple[int, ...]:
    return value.aval.shape


def _inner(equation: core.JaxprEqn) -> Iterator[core.Jaxpr]:
    """The functions that an equation calls; of branches, all."""
    for value in equation.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield item


def _bytes(variables) -> float:
    shapes = [x.aval for x in variables]
    return float(
        sum(
            math.prod(x.shape) * x.dtype.itemsize
            for x in shapes
            if not jnp.issubdtype(x.dtype, jax.dtypes.extended)
        )
    )
