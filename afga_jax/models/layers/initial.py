"""Initial values, as PyTorch draws them: uniform in ±1/√(fan in).

The parameters of a model are cut from one draw. A draw for each of them would be as
good, but XLA on CPU takes a tenth of a second to compile a draw.
"""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import traverse_util

from afga_jax.typing import Array, PyTree


class Drawn(nn.Module):
    """A layer whose parameters start uniform in ±1/√(fan in)."""

    def draw(self, name: str, shape: tuple[int, ...], fan_in: int) -> Array:
        """The parameter of that name; where there is none yet, it is drawn."""
        bound = fan_in**-0.5

        def init(key):
            return jax.random.uniform(key, shape, jnp.float32, -bound, bound)

        return self.param(name, init)


def from_one_draw(
    model: nn.Module, key: Array, inputs: PyTree, **options: Any
) -> PyTree:
    """`model.init(key, inputs)`, with one draw for the parameters of `Drawn` layers.

    Flax lets every layer draw as well. Nobody reads those numbers, nor the outputs, so
    `jax.jit` leaves their computation out.

    Args:
      model: Module that is called as `model(inputs, **options)`.
      key: Random key of the one draw, and of the parameters of other layers.
      inputs: Batch of the shape that the model is for.
      **options: Further arguments of the call.

    Returns:
      The model's variables, by collection.
    """
    drawn: dict[tuple[str, ...], tuple[tuple[int, ...], int]] = {}

    def note(call, args, options, context):
        if isinstance(context.module, Drawn) and context.method_name == "draw":
            name, shape, fan_in = args
            drawn[*context.module.path, name] = shape, fan_in
        return call(*args, **options)

    with nn.intercept_methods(note):
        variables = model.init(key, inputs, **options)
    if not drawn:
        return variables
    total = sum(math.prod(shape) for shape, _ in drawn.values())
    numbers = jax.random.uniform(key, (total,), jnp.float32, -1.0, 1.0)
    params, start = traverse_util.flatten_dict(variables["params"]), 0
    for path, (shape, fan_in) in drawn.items():
        end = start + math.prod(shape)
        params[path] = fan_in**-0.5 * numbers[start:end].reshape(shape)
        start = end
    return {**variables, "params": traverse_util.unflatten_dict(params)}
