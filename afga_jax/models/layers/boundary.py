"""Where a result has to exist in memory before anybody reads it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from afga_jax.typing import Array


def materialise(function: Callable[..., Array], *operands: Array) -> Array:
    """`function(*operands)`, computed once and written down.

    XLA on CPU computes a cheap producer again inside each of its consumers, and the 25
    products and sums of one depthwise output element count as cheap. Neither
    `optimization_barrier` nor a named call stops that; the edge of a conditional does,
    and what is inside it still runs on all cores. The condition is always true, which
    the compiler is not told until it has laid out its fusions.

    Args:
      function: From arrays to one array; every array it reads must be an operand.
      *operands: Its arguments.

    Returns:
      What the function returns. Under `vmap` the condition is not batched.
    """
    result = jax.eval_shape(function, *operands)
    always = lax.optimization_barrier(jnp.array(True))

    def never(*_):
        return jnp.zeros(result.shape, result.dtype)

    return lax.cond(always, function, never, *operands)
