"""How a window moves over an image: padding, strides, and the pixels under one tap."""

from collections.abc import Callable, Iterable
from functools import partial, reduce
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from afga_jax.models.layers.boundary import materialise
from afga_jax.typing import Array

# A number for each of an image's two axes; for both ends of each axis.
Pair = tuple[int, ...]
Pads = tuple[Pair, ...]
LAYOUT = ("NHWC", "HWIO", "NHWC")

# For a layer's body: layers of one shape are traced and lowered once.
jit_once = partial(jax.jit, static_argnames=("strides", "padding"))


class Bodies(NamedTuple):
    """How a layer with a kernel is computed: as it is, and written by hand for CPU.

    Attributes:
      native: Function of inputs and kernel, with `strides` and explicit `padding` by
        name. Accelerators use it with its automatic gradient.
      forward: Function that computes the same on CPU.
      backward: Function that computes on CPU, from inputs, kernel and the outputs'
        gradient, the gradients of inputs and kernel.
    """

    native: Callable[..., Array]
    forward: Callable[..., Array]
    backward: Callable[..., tuple[Array, Array]]


def by_platform(
    bodies: Bodies, inputs: Array, kernel: Array, strides: Pair, padding: str | Pads
) -> Array:
    """The outputs of a layer, by the body that is fast on the platform."""
    pads = explicit_padding(inputs.shape[1:3], kernel.shape[:2], strides, padding)
    return _layer(bodies, tuple(strides), pads, inputs, kernel)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _layer(bodies, strides, padding, inputs, kernel):
    native, forward, _ = _bound(bodies, strides, padding)
    return lax.platform_dependent(inputs, kernel, cpu=forward, default=native)


def _layer_forward(bodies, strides, padding, inputs, kernel):
    return _layer(bodies, strides, padding, inputs, kernel), (inputs, kernel)


def _layer_backward(bodies, strides, padding, saved, gradient):
    native, _, backward = _bound(bodies, strides, padding)

    def native_backward(inputs, kernel, gradient):
        return jax.vjp(native, inputs, kernel)[1](gradient)

    return lax.platform_dependent(
        *saved, gradient, cpu=backward, default=native_backward
    )


_layer.defvjp(_layer_forward, _layer_backward)


def _bound(bodies, strides, padding):
    return [partial(body, strides=strides, padding=padding) for body in bodies]


def explicit_padding(
    image: Pair, window: Pair, strides: Pair, padding: str | Pads
) -> Pads:
    """The padding in pixels, ((top, bottom), (left, right)), of a named padding."""
    if isinstance(padding, str):
        padding = tuple(lax.padtype_to_pads(image, window, strides, padding.upper()))
    pads = tuple((int(low), int(high)) for low, high in padding)
    for axis, (low, high) in enumerate(pads):
        if image[axis] + low + high < window[axis]:
            raise ValueError(
                f"a window of {window[axis]} pixels does not fit into an image of "
                f"{image[axis]} pixels padded by {low} and {high}; use a smaller "
                "window or more padding"
            )
    return pads


def mirrored_padding(
    image: Pair, outs: Pair, window: Pair, strides: Pair, padding: Pads
) -> Pads:
    """The padding that takes a gradient, spread by the strides, back to the image."""
    return tuple(
        (size - 1 - low, pixels - 1 - (out - 1) * stride + low)
        for pixels, out, size, stride, (low, _) in zip(
            image, outs, window, strides, padding, strict=True
        )
    )


def pad(images: Array, pads: Pads, spread: Pair = (1, 1), value: float = 0) -> Array:
    """Add pixels around images, and `spread − 1` between pixels."""
    rows, columns = (
        (low, high, step - 1) for (low, high), step in zip(pads, spread, strict=True)
    )
    none, fill = (0, 0, 0), jnp.array(value, images.dtype)
    return lax.pad(images, fill, (none, rows, columns, none))


def taps(window: Pair) -> Iterable[Pair]:
    """The positions in a window, row by row."""
    return product(range(window[0]), range(window[1]))


def out_size(padded: Pair, window: Pair, strides: Pair) -> Pair:
    """Number of windows that fit along each axis."""
    return tuple(
        (n - k) // s + 1 for n, k, s in zip(padded, window, strides, strict=True)
    )


def under(padded: Array, tap: Pair, outs: Pair, strides: Pair) -> Array:
    """The pixels that one tap sees while the window moves."""
    rows, columns = (
        slice(start, start + (out - 1) * stride + 1, stride)
        for start, out, stride in zip(tap, outs, strides, strict=True)
    )
    return padded[:, rows, columns]


def filtered(padded: Array, kernel: Array, strides: Pair) -> Array:
    """Σ pixels under a tap · the tap's weights `[channels]`, over all taps."""

    def sum_over_taps(padded, kernel):
        window = kernel.shape[:2]
        outs = out_size(padded.shape[1:3], window, strides)
        parts = (
            under(padded, tap, outs, strides) * kernel[tap][None, None, None]
            for tap in taps(window)
        )
        return reduce(jnp.add, parts)

    return materialise(sum_over_taps, padded, kernel)


def largest_divisor(number: int, bound: int) -> int:
    """The largest divisor of a number up to a bound, 1 if the bound is below that."""
    return next(d for d in range(max(bound, 1), 0, -1) if number % d == 0)
