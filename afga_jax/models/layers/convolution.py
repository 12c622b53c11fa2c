"""Convolution over images, of all channels or of each by its own filter, fast in loops.

XLA rewrites the gradients of a convolution into the layout of its fast kernels only
outside of loops, and a federated round is a loop over clients inside a loop over steps.
So the gradients are written here as convolutions that have that layout to begin with,
and those of depthwise convolutions as sums.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from afga_jax.models.layers import winograd
from afga_jax.models.layers.windows import (
    LAYOUT,
    Bodies,
    Pads,
    Pair,
    by_platform,
    filtered,
    jit_once,
    largest_divisor,
    mirrored_padding,
    pad,
    taps,
    under,
)
from afga_jax.typing import Array

CACHED = 600_000  # Numbers that are written and read again before they leave the cache.


def convolution(
    inputs: Array, kernel: Array, strides: Pair = (1, 1), padding: str | Pads = "SAME"
) -> Array:
    """y[b, h, w, o] = Σ x[b, s·h + i − p, s·w + j − p, c] · k[i, j, c, o].

    Args:
      inputs: Images x, `[batch, height, width, in]`.
      kernel: Weights k, `[kernel height, kernel width, in, out]`, as in
        `flax.linen.Conv`.
      strides: Steps s of the kernel along both axes.
      padding: "SAME", "VALID", or ((top, bottom), (left, right)).

    Returns:
      Images y, `[batch, out height, out width, out]`.
    """
    return by_platform(_FULL, inputs, kernel, strides, padding)


def is_product(
    inputs: tuple[int, ...], kernel: tuple[int, ...], strides: Pair, padding: Pads
) -> bool:
    """Whether each pixel is in one window at most, so that `convolution` is a matmul.

    Args:
      inputs: Shape of the images.
      kernel: Shape of the weights.
      strides: Steps of the kernel along both axes.
      padding: ((top, bottom), (left, right)).

    >>> is_product((50, 32, 32, 3), (2, 2, 3, 256), (2, 2), ((0, 0), (0, 0)))
    True
    """
    if padding != ((0, 0), (0, 0)):
        return False
    whole = all(n % s == 0 for n, s in zip(inputs[1:3], strides, strict=True))
    return kernel[:2] == (1, 1) or (kernel[:2] == tuple(strides) and whole)


def depthwise(
    inputs: Array, kernel: Array, strides: Pair = (1, 1), padding: str | Pads = "SAME"
) -> Array:
    """y[b, h, w, c] = Σ x[b, s·h + i − p, s·w + j − p, c] · k[i, j, 0, c].

    Args:
      inputs: Images x, `[batch, height, width, channels]`.
      kernel: Weights k, `[kernel height, kernel width, 1, channels]`, as in
        `flax.linen.Conv` with `feature_group_count=channels`.
      strides: Steps s of the kernel along both axes.
      padding: "SAME", "VALID", or ((top, bottom), (left, right)).

    Returns:
      Images y, `[batch, out height, out width, channels]`.
    """
    return by_platform(_DEPTHWISE, inputs, kernel, strides, padding)


def _full(inputs, kernel, *, strides, padding):
    product = _product(inputs, kernel, strides, padding)
    if product is not None:
        return product
    return _native(inputs, kernel, strides=strides, padding=padding)


def _native(inputs, kernel, *, strides, padding):
    groups = inputs.shape[3] // kernel.shape[2]
    return lax.conv_general_dilated(
        inputs,
        kernel,
        strides,
        padding,
        dimension_numbers=LAYOUT,
        feature_group_count=groups,
    )


@jit_once
def _forward(inputs, kernel, *, strides, padding):
    product = _product(inputs, kernel, strides, padding)
    if product is not None:
        return product
    if kernel.shape[2] == 1:
        # The native convolution has nothing to vectorise in one input channel.
        return filtered(pad(inputs, padding), kernel[:, :, 0], strides)
    if winograd.is_faster(inputs, kernel, strides, padding):
        return winograd.convolution(inputs, kernel, padding)
    return _native(inputs, kernel, strides=strides, padding=padding)


@jit_once
def _backward(inputs, kernel, gradient, *, strides, padding):
    if is_product(inputs.shape, kernel.shape, strides, padding):
        # Matmuls and reshapes: their automatic gradient is the fast one.
        function = partial(_forward, strides=strides, padding=padding)
        return jax.vjp(function, inputs, kernel)[1](gradient)
    back = mirrored_padding(
        inputs.shape[1:3], gradient.shape[1:3], kernel.shape[:2], strides, padding
    )
    d_inputs = _input_gradient(kernel, gradient, strides, back)
    if winograd.is_faster(inputs, kernel, strides, padding):
        return d_inputs, winograd.kernel_gradient(inputs, gradient, padding)
    # Few channels make patches that are slow to collect, many make the convolution's
    # kernel, which is the whole gradient image, too large.
    if kernel.shape[2] >= 64:
        padded = pad(inputs, padding)
        return d_inputs, _patches_gradient(padded, kernel.shape, gradient, strides)
    seen = tuple(
        (low, size - 1 - high)
        for size, (low, _), (_, high) in zip(
            kernel.shape[:2], padding, back, strict=True
        )
    )
    return d_inputs, _image_gradient(inputs, gradient, strides, seen)


@jit_once
def _depthwise_forward(inputs, kernel, *, strides, padding):
    return filtered(pad(inputs, padding), kernel[:, :, 0], strides)


@jit_once
def _depthwise_backward(inputs, kernel, gradient, *, strides, padding):
    window = kernel.shape[:2]
    back = mirrored_padding(
        inputs.shape[1:3], gradient.shape[1:3], window, strides, padding
    )
    spread, mirrored = pad(gradient, back, strides), kernel[::-1, ::-1, 0]
    d_inputs = filtered(spread, mirrored, (1, 1))
    d_mirrored = _depthwise_gradient(inputs, spread, window)
    return d_inputs, d_mirrored[::-1, ::-1, None]


_FULL = Bodies(_full, _forward, _backward)
_DEPTHWISE = Bodies(_native, _depthwise_forward, _depthwise_backward)


def _input_gradient(kernel, gradient, strides, padding):
    """Spread the gradient by the stride, then convolve with the mirrored kernel."""
    if winograd.is_faster(gradient, kernel, strides, padding):
        return winograd.input_gradient(gradient, kernel, padding)
    return lax.conv_general_dilated(
        gradient,
        kernel[::-1, ::-1].swapaxes(2, 3),
        (1, 1),
        padding,
        lhs_dilation=strides,
        dimension_numbers=LAYOUT,
    )


def _patches_gradient(padded, shape, gradient, strides):
    """∂K = (∂Yᵀ P)ᵀ, a row of P being what one window sees, a few samples at a time."""
    (batch, *outs, features), size = gradient.shape, math.prod(shape[:3])
    chunk = largest_divisor(batch, CACHED // (math.prod(outs) * size))

    def add(total, samples):
        images, grads = samples
        seen = [under(images, tap, outs, strides) for tap in taps(shape[:2])]
        patches = jnp.concatenate(seen, axis=-1).reshape(-1, size)
        return total + grads.reshape(-1, features).T @ patches, None

    zeros = jnp.zeros((features, size), gradient.dtype)
    chunks = [x.reshape(-1, chunk, *x.shape[1:]) for x in (padded, gradient)]
    return lax.scan(add, zeros, chunks)[0].T.reshape(shape)


def _image_gradient(inputs, gradient, strides, padding):
    """∂K = x ∗ ∂Y, the gradient being the kernel: samples become channels."""
    by_channel = lax.conv_general_dilated(
        inputs.transpose(3, 1, 2, 0),
        gradient.transpose(1, 2, 0, 3),
        (1, 1),
        padding,
        rhs_dilation=strides,
        dimension_numbers=LAYOUT,
    )
    return by_channel.transpose(1, 2, 0, 3)


def _product(inputs, kernel, strides, padding):
    """A pointwise convolution or one of patches, as a matmul; None: it is neither.

    Where every client has its own weights, that is a batched matmul and no grouped
    convolution, on any platform.
    """
    if not is_product(inputs.shape, kernel.shape, strides, padding):
        return None
    if kernel.shape[:2] == (1, 1):
        return _matmul(inputs[:, :: strides[0], :: strides[1]], kernel[0, 0])
    return _matmul(_patches(inputs, strides), kernel.reshape(-1, kernel.shape[3]))


def _patches(inputs, size):
    batch, height, width, channels = inputs.shape
    rows, columns = height // size[0], width // size[1]
    tiles = inputs.reshape(batch, rows, size[0], columns, size[1], channels)
    return tiles.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows, columns, -1)


def _matmul(inputs, weights):
    # XLA calls its fast matmul for two-dimensional operands only.
    flat = inputs.reshape(-1, inputs.shape[-1]) @ weights
    return flat.reshape(*inputs.shape[:-1], weights.shape[1])


def _depthwise_gradient(inputs, spread, window):
    """∂k[−i, −j, c] = Σ x[b, h, w, c] · s[b, h + i, w + j, c], a few rows at a time.

    s is the gradient that the mirrored kernel k[−i, −j] takes back to the inputs. All
    taps are one kernel to compile: a pixel meets the whole window around it at once.
    The sum over pixels is written out, because a reduction would first write all
    products to memory.
    """
    batch, height, width, channels = inputs.shape
    # So many rows that a loop's step is worth it and its pixels stay in cache.
    rows = largest_divisor(height, min(32, 4096 // channels) // width)
    (tall, wide), strips = window, height // rows

    def add(number, total):
        start = number // strips, (number % strips) * rows, 0, 0
        around = rows + tall - 1, width + wide - 1, channels
        pixels = lax.dynamic_slice(inputs, start, (1, rows, width, channels))[0]
        near = lax.dynamic_slice(spread, start, (1, *around))[0]
        return total + sum(
            near[h : h + tall, w : w + wide] * pixels[h, w][None, None]
            for h, w in taps((rows, width))
        )

    zeros = jnp.zeros((*window, channels), inputs.dtype)
    return lax.fori_loop(0, batch * strips, add, zeros)
