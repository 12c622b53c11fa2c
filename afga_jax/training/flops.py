"""What one client's gradient takes, counted from the trace of its loss.

Nothing is compiled or run. The count follows loops by their length and knows products
of matrices and convolutions; anything else counts one operation for each number that
it makes.
"""

import math

import jax
import jax.numpy as jnp
from flax import struct
from jax.extend import core

from afga_jax.models.plain_layers import inner_programs
from afga_jax.training.memory import bytes_of
from afga_jax.typing import Batch, ClientData, Task

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
      bytes: Size of the values that the loss makes on its way and the way back reads.
    """

    operations: float
    bytes: float


def count(task: Task, data: ClientData, *, full_batch: bool = False) -> Work:
    """Counts one gradient of a client; see `of_batch`.

    Args:
      task: Task whose loss is traced, at a part of what tracing a round costs.
      data: Client data, of which only the shapes of batches matter.
      full_batch: Whether a step sees all samples of a client.
    """

    def draw(data: ClientData) -> Batch:
        key, client = jax.random.key(0), jnp.zeros((), jnp.int32)
        return data.full(client) if full_batch else data.batch(key, client)

    return of_batch(task, jax.eval_shape(draw, data))


def of_batch(task: Task, batch: Batch) -> Work:
    """Counts one gradient, by tracing the loss.

    What it ignores: the moves of memory between operations, and how well an operation
    suits the machine; loops whose length only the values decide, which count once; what
    XLA keeps or does not keep against expectation.

    Args:
      task: Task whose loss is traced.
      batch: A batch, or its shapes.
    """
    key = jax.eval_shape(jax.random.key, 0)
    params, stats = jax.eval_shape(task.init, key)
    traced = jax.make_jaxpr(task.loss, static_argnums=4)(
        params, stats, batch, key, True
    )
    operations, bytes_ = _counted(traced.jaxpr)
    return Work(PASSES * operations, bytes_ + _bytes(traced.jaxpr.invars))


def _counted(jaxpr: core.Jaxpr) -> tuple[float, float]:
    """Operations, and bytes of the values made."""
    operations, bytes_ = 0.0, 0.0
    for equation in jaxpr.eqns:
        inside = list(map(_counted, inner_programs(equation.params.values())))
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
    parameters, operands = equation.params, _shapes(equation.invars)
    results = float(sum(map(math.prod, _shapes(equation.outvars))))
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = parameters["dimension_numbers"]
        return 2.0 * results * math.prod(operands[0][axis] for axis in contracted)
    if equation.primitive.name == "conv_general_dilated":
        outputs = operands[1][parameters["dimension_numbers"].rhs_spec[0]]
        return 2.0 * results * math.prod(operands[1]) / outputs
    return results


def _shapes(variables) -> list[tuple[int, ...]]:
    return [variable.aval.shape for variable in variables]


def _bytes(variables) -> int:
    return bytes_of([variable.aval for variable in variables])
