"""Where a result has to exist in memory before anybody reads it."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from afga_jax.typing import Array, PyTree


def materialise(function: Callable[..., PyTree], *operands: Array) -> PyTree:
    """`function(*operands)`, computed once and written down.

    XLA on CPU computes a cheap producer again inside each of its consumers, and the 25
    products and sums of one depthwise output element count as cheap. Neither
    `optimization_barrier` nor a named call stops that; the edge of a conditional does,
    and what is inside it still runs on all cores. The condition is always true, which
    the compiler is not told until it has laid out its fusions.

    Args:
      function: Function of arrays; every array that it reads must be an operand.
      *operands: Arguments of the function.

    Returns:
      What the function returns; on other platforms than CPU, nothing else happens.
    """
    behind_condition = partial(_behind_condition, function)
    return lax.platform_dependent(*operands, cpu=behind_condition, default=function)


def transposed(matrix: Array) -> Array:
    """The transpose of a matrix, laid out in memory.

    XLA's matmul on CPU reads a transposed left operand at two thirds of its speed where
    the matrix is tall.
    """
    return materialise(jnp.transpose, matrix)


def _behind_condition(function, *operands):
    result = jax.eval_shape(function, *operands)
    # Without operands, so that `vmap` finds nothing to batch and keeps the condition.
    always = lax.optimization_barrier(jnp.array(True))

    def never(*_):
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), result)

    return lax.cond(always, function, never, *operands)
