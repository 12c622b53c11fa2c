"""Depthwise convolution: every channel has its own filter."""

import jax.numpy as jnp
from jax import lax

from afga_jax.models.layers.windows import (
    LAYOUT,
    Pads,
    Pair,
    by_platform,
    filtered,
    jit_once,
    largest_divisor,
    mirrored_padding,
    pad,
    taps,
)
from afga_jax.typing import Array


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
    return _depthwise(inputs, kernel, strides, padding)


def _native(inputs, kernel, *, strides, padding):
    return lax.conv_general_dilated(
        inputs,
        kernel,
        strides,
        padding,
        dimension_numbers=LAYOUT,
        feature_group_count=inputs.shape[3],
    )


@jit_once
def _forward(inputs, kernel, *, strides, padding):
    return filtered(pad(inputs, padding), kernel[:, :, 0], strides)


@jit_once
def _backward(inputs, kernel, gradient, *, strides, padding):
    window = kernel.shape[:2]
    back = mirrored_padding(
        inputs.shape[1:3], gradient.shape[1:3], window, strides, padding
    )
    spread, mirrored = pad(gradient, back, strides), kernel[::-1, ::-1, 0]
    d_inputs = filtered(spread, mirrored, (1, 1))
    d_mirrored = _kernel_gradient(inputs, spread, window)
    return d_inputs, d_mirrored[::-1, ::-1, None]


_depthwise = by_platform(_native, _forward, _backward)


def _kernel_gradient(inputs, spread, window):
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
