"""Anybody's plain convolutions, poolings and products at our layers' speed.

XLA on CPU computes the gradients of a plain convolution or pooling in a loop body many
times slower than outside of loops, and a federated round is a loop. So the program that
a model is traced to is read, and where it holds such an operation in a form that a
layer of `afga_jax.models.layers` computes exactly, that layer takes its place. This
works on operations and not on modules, whichever library wrote them: flax's linen and
nnx, or `jax.lax` by hand. Pooling, which flax has as functions, is found as well.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, primitives

from afga_jax.mesh import on_cpu
from afga_jax.models.layers import convolution, depthwise, max_pool
from afga_jax.models.layers.convolution import is_product
from afga_jax.models.layers.windows import LAYOUT
from afga_jax.typing import Array, PyTree

#: Operations that run an inner program, which is read as well. Others, such as a
#: function with a gradient of its own, stay as they are.
_NESTED = {
    primitives.jit_p,
    primitives.scan_p,
    primitives.while_p,
    primitives.cond_p,
    primitives.remat_p,
}
_TYPES = {jnp.dtype(jnp.float32), jnp.dtype(jnp.float64)}
_DEFAULT = {None, lax.Precision.DEFAULT}
#: Of sequences and of images, by the inputs' number of axes.
_LAYOUTS = {3: ("NWC", "WIO", "NWC"), 4: LAYOUT}


def fast_layers(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """The same function, with fast layers in place of plain operations.

    On CPU these are all layers; elsewhere convolutions whose windows are apart, which
    are matmuls: where every client has its own weights, batched matmuls.

    Args:
      function: Function of pytrees of arrays that can be traced.

    Returns:
      Function of the same values to rounding, with the same gradients.

    >>> import flax.linen as nn
    >>> images = jnp.ones((1, 4, 4, 1))
    >>> double = fast_layers(lambda x: nn.max_pool(2 * x, (2, 2), (2, 2)))
    >>> double(images).ravel().tolist()
    [2.0, 2.0, 2.0, 2.0]
    """

    def faster(*args: PyTree) -> PyTree:
        program, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        results = _evaluate(program.jaxpr, program.consts, *jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return faster


def has_plain_layers(function: Callable[..., PyTree], *args: PyTree) -> bool:
    """Whether `fast_layers` would change the function's program for these arguments."""
    return _is_changed(jax.make_jaxpr(function)(*args).jaxpr)


def _evaluate(program: Jaxpr, consts, *args) -> list[Array]:
    """The program's results, operation by operation."""
    values = dict(zip(program.constvars, consts, strict=True))
    values |= zip(program.invars, args, strict=True)

    def value_of(atom):
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in program.eqns:
        operands = [value_of(atom) for atom in equation.invars]
        with equation.ctx.manager:
            results = _apply(equation, operands)
        values |= zip(equation.outvars, results, strict=True)
    return [value_of(atom) for atom in program.outvars]


def _apply(equation, operands) -> list[Array]:
    layer = _layer(equation)
    if layer is not None:
        return [layer(*operands)]
    primitive, params = equation.primitive, equation.params
    if primitive in _NESTED and any(map(_is_changed, inner_programs(params.values()))):
        params = {name: _changed(value) for name, value in params.items()}
    bound = primitive.get_bind_params(params)
    # Older versions of JAX give inner functions apart from the other parameters.
    functions, params = bound if isinstance(bound, tuple) else ((), bound)
    results = primitive.bind(*functions, *operands, **params)
    return results if primitive.multiple_results else [results]


def _is_changed(program: Jaxpr) -> bool:
    return any(
        _layer(equation) is not None
        or (
            equation.primitive in _NESTED
            and any(map(_is_changed, inner_programs(equation.params.values())))
        )
        for equation in program.eqns
    )


def inner_programs(values) -> Iterator[Jaxpr]:
    """The programs among an operation's parameters; of branches, all."""
    for value in values:
        if isinstance(value, ClosedJaxpr):
            yield value.jaxpr
        elif isinstance(value, Jaxpr):
            yield value
        elif isinstance(value, tuple | list):
            yield from inner_programs(value)


def _changed(value: Any) -> Any:
    """A parameter with fast layers in the programs that it holds."""
    if isinstance(value, tuple) and any(True for _ in inner_programs(value)):
        return tuple(map(_changed, value))
    if isinstance(value, ClosedJaxpr):
        function = partial(_evaluate, value.jaxpr, value.consts)
        return jax.make_jaxpr(function)(*value.in_avals)
    if isinstance(value, Jaxpr):
        program = _changed(ClosedJaxpr(value, ()))
        # An open program has no place for constants.
        return value if program.consts else program.jaxpr
    return value


def _layer(equation) -> Callable[..., Array] | None:
    """The layer that computes exactly what an operation computes; None: none does."""
    find = (_LAYERS if on_cpu() else _ELSEWHERE).get(equation.primitive)
    if find is None:
        return None
    params = dict(equation.params)
    shapes = [atom.aval for atom in equation.invars]
    # What is asked for in another type or at a higher precision is not ours.
    precision = params.pop("precision", None)
    levels = precision if isinstance(precision, tuple) else (precision,)
    types = {x.dtype for x in (*shapes, equation.outvars[0].aval)}
    if len(types) > 1 or not types <= _TYPES or set(levels) - _DEFAULT:
        return None
    params.pop("preferred_element_type", None)  # It is the results'.
    if params.pop("out_sharding", None) is not None:
        return None
    return find(*shapes, **params)


def _convolution(
    inputs,
    kernel,
    *,
    window_strides,
    padding,
    lhs_dilation,
    rhs_dilation,
    dimension_numbers,
    feature_group_count,
    batch_group_count,
):
    layout = _LAYOUTS.get(inputs.ndim)
    if layout is None or dimension_numbers != lax.conv_dimension_numbers(
        inputs.shape, kernel.shape, layout
    ):
        return None
    dilated = any(n != 1 for n in (*lhs_dilation, *rhs_dilation))
    fits = _fits(inputs.shape[1:-1], kernel.shape[:-2], padding)
    if dilated or batch_group_count != 1 or not fits:
        return None
    if feature_group_count == 1:
        layer = convolution
    elif feature_group_count == inputs.shape[-1] == kernel.shape[-1]:
        layer = depthwise
    else:
        return None
    return _over_images(layer, window_strides, padding)


def _apart(inputs, kernel, **params):
    """`_convolution` if no pixel is in two windows."""
    layer = _convolution(inputs, kernel, **params)
    padding = tuple((int(low), int(high)) for low, high in params["padding"])
    if layer is None or params["feature_group_count"] > 1:
        return None
    images, window = inputs.shape, kernel.shape
    strides = tuple(params["window_strides"])
    if inputs.ndim == 3:  # sequences are images of one row
        images, window = (images[0], 1, *images[1:]), (1, *window)
        strides, padding = (1, *strides), ((0, 0), *padding)
    return layer if is_product(images, window, strides, padding) else None


def _max_pool(
    inputs,
    *,
    window_dimensions,
    window_strides,
    padding,
    base_dilation,
    window_dilation,
):
    outer = {0, inputs.ndim - 1}
    images = inputs.ndim in _LAYOUTS and all(
        window_dimensions[axis] == window_strides[axis] == 1
        and tuple(padding[axis]) == (0, 0)
        for axis in outer
    )
    dilated = any(n != 1 for n in (*base_dilation, *window_dilation))
    window, padding = window_dimensions[1:-1], padding[1:-1]
    if not images or dilated or not _fits(inputs.shape[1:-1], window, padding):
        return None
    window = (1, *window)[-2:]
    return _over_images(
        lambda x, strides, padding: max_pool(x, window, strides, padding),
        window_strides[1:-1],
        padding,
    )


def _product(inputs, kernel, *, dimension_numbers):
    last_with_first = ((inputs.ndim - 1,), (0,)), ((), ())
    if inputs.ndim < 3 or kernel.ndim != 2 or dimension_numbers != last_with_first:
        return None

    def product(inputs, kernel):
        # XLA calls its fast matmul for two-dimensional operands only.
        flat = inputs.reshape(math.prod(inputs.shape[:-1]), inputs.shape[-1]) @ kernel
        return flat.reshape(*inputs.shape[:-1], kernel.shape[1])

    return product


def _over_images(layer, strides, padding):
    """A layer over images, or over sequences as images of one row."""
    pads = tuple((int(low), int(high)) for low, high in padding)
    if len(pads) == 2:
        return partial(layer, strides=tuple(strides), padding=pads)

    def over_sequences(inputs, *kernel):
        images, kernels = inputs[:, None], (k[None] for k in kernel)
        outputs = layer(
            images, *kernels, strides=(1, *strides), padding=((0, 0), *pads)
        )
        return outputs[:, 0]

    return over_sequences


def _fits(image, window, padding):
    return all(
        low >= 0 and high >= 0 and pixels + low + high >= size
        for pixels, size, (low, high) in zip(image, window, padding, strict=True)
    )


_LAYERS: dict[Any, Callable] = {
    primitives.conv_general_dilated_p: _convolution,
    primitives.reduce_window_max_p: _max_pool,
    primitives.dot_general_p: _product,
}
_ELSEWHERE: dict[Any, Callable] = {primitives.conv_general_dilated_p: _apart}
