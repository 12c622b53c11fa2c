"""Convolution over images with a gradient that stays fast inside loops.

XLA rewrites the gradients of a convolution into the layout of its fast kernels only
outside of loops, and a federated round is a loop over clients inside a loop over steps.
So both gradients are written here as convolutions that have that layout to begin with.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from afga_jax.models.layers.boundary import materialise
from afga_jax.models.layers.windows import (
    LAYOUT,
    Pads,
    Pair,
    explicit_padding,
    filtered,
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
      inputs: `[batch, height, width, in]`.
      kernel: `[kernel height, kernel width, in, out]`, as in `flax.linen.Conv`.
      strides: Of both axes.
      padding: "SAME", "VALID", or ((top, bottom), (left, right)).

    Returns:
      `[batch, out height, out width, out]`.
    """
    pads = explicit_padding(inputs.shape[1:3], kernel.shape[:2], strides, padding)
    return _convolution(inputs, kernel, tuple(strides), pads)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolution(inputs, kernel, strides, padding):
    return lax.platform_dependent(
        inputs,
        kernel,
        cpu=partial(_forward_cpu, strides=strides, padding=padding),
        default=partial(_native, strides=strides, padding=padding),
    )


def _forward(inputs, kernel, strides, padding):
    return _convolution(inputs, kernel, strides, padding), (inputs, kernel)


def _backward(strides, padding, saved, gradient):
    return lax.platform_dependent(
        *saved,
        gradient,
        cpu=partial(_backward_cpu, strides=strides, padding=padding),
        default=partial(_backward_native, strides=strides, padding=padding),
    )


_convolution.defvjp(_forward, _backward)


def _native(inputs, kernel, *, strides, padding):
    return lax.conv_general_dilated(
        inputs, kernel, strides, padding, dimension_numbers=LAYOUT
    )


def _backward_native(inputs, kernel, gradient, *, strides, padding):
    function = partial(_native, strides=strides, padding=padding)
    return jax.vjp(function, inputs, kernel)[1](gradient)


@partial(jax.jit, static_argnames=("strides", "padding"))
def _forward_cpu(inputs, kernel, *, strides, padding):
    if _is_pointwise(kernel, padding):
        return _matmul(inputs[:, :: strides[0], :: strides[1]], kernel[0, 0])
    if _is_patches(inputs, kernel, strides, padding):
        return _matmul(_patches(inputs, strides), kernel.reshape(-1, kernel.shape[3]))
    if kernel.shape[2] == 1:
        # The native convolution has nothing to vectorise in one input channel.
        one_channel = partial(filtered, strides=strides)
        return materialise(one_channel, pad(inputs, padding), kernel[:, :, 0])
    return _native(inputs, kernel, strides=strides, padding=padding)


@partial(jax.jit, static_argnames=("strides", "padding"))
def _backward_cpu(inputs, kernel, gradient, *, strides, padding):
    function = partial(_forward_cpu, strides=strides, padding=padding)
    if _is_pointwise(kernel, padding) or _is_patches(inputs, kernel, strides, padding):
        # Matmuls and reshapes: their automatic gradient is the fast one.
        return jax.vjp(function, inputs, kernel)[1](gradient)
    return (
        _input_gradient(inputs, kernel, gradient, strides, padding),
        _kernel_gradient(inputs, kernel, gradient, strides, padding),
    )


def _input_gradient(inputs, kernel, gradient, strides, padding):
    """Spread the gradient by the stride, then convolve with the mirrored kernel."""
    pads = mirrored_padding(
        inputs.shape[1:3], gradient.shape[1:3], kernel.shape[:2], strides, padding
    )
    return lax.conv_general_dilated(
        gradient,
        kernel[::-1, ::-1].swapaxes(2, 3),
        (1, 1),
        pads,
        lhs_dilation=strides,
        dimension_numbers=LAYOUT,
    )


def _kernel_gradient(inputs, kernel, gradient, strides, padding):
    # Few channels make patches that are slow to collect, many make the convolution's
    # kernel, which is the whole gradient image, too large.
    if kernel.shape[2] >= 64:
        return _kernel_gradient_by_patches(inputs, kernel, gradient, strides, padding)
    return _kernel_gradient_by_convolution(inputs, kernel, gradient, strides, padding)


def _kernel_gradient_by_patches(inputs, kernel, gradient, strides, padding):
    """∂K = (∂Yᵀ P)ᵀ, a row of P being what one window sees, a few samples at a time."""
    padded, (batch, *outs, features) = pad(inputs, padding), gradient.shape
    size = math.prod(kernel.shape[:3])
    chunk = _largest_divisor(batch, CACHED // (math.prod(outs) * size))

    def add(total, samples):
        images, grads = samples
        seen = [under(images, tap, outs, strides) for tap in taps(kernel.shape[:2])]
        patches = jnp.concatenate(seen, axis=-1).reshape(-1, size)
        return total + grads.reshape(-1, features).T @ patches, None

    zeros = jnp.zeros((features, size), gradient.dtype)
    chunks = [x.reshape(-1, chunk, *x.shape[1:]) for x in (padded, gradient)]
    return lax.scan(add, zeros, chunks)[0].T.reshape(kernel.shape)


def _kernel_gradient_by_convolution(inputs, kernel, gradient, strides, padding):
    """Convolve with the gradient as the kernel: samples become channels."""
    pads = [
        (low, size - image - low + (out - 1) * stride)
        for size, (low, _), image, out, stride in zip(
            kernel.shape[:2],
            padding,
            inputs.shape[1:3],
            gradient.shape[1:3],
            strides,
            strict=True,
        )
    ]
    by_channel = lax.conv_general_dilated(
        inputs.transpose(3, 1, 2, 0),
        gradient.transpose(1, 2, 0, 3),
        (1, 1),
        pads,
        rhs_dilation=strides,
        dimension_numbers=LAYOUT,
    )
    return by_channel.transpose(1, 2, 0, 3)


def _largest_divisor(number, bound):
    return max(
        d for d in range(1, number + 1) if d <= max(bound, 1) and number % d == 0
    )


def _is_pointwise(kernel, padding):
    return kernel.shape[:2] == (1, 1) and padding == ((0, 0), (0, 0))


def _is_patches(inputs, kernel, strides, padding):
    divisible = all(n % s == 0 for n, s in zip(inputs.shape[1:3], strides, strict=True))
    return kernel.shape[:2] == strides and padding == ((0, 0), (0, 0)) and divisible


def _patches(inputs, size):
    batch, height, width, channels = inputs.shape
    rows, columns = height // size[0], width // size[1]
    tiles = inputs.reshape(batch, rows, size[0], columns, size[1], channels)
    return tiles.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows, columns, -1)


def _matmul(inputs, weights):
    # XLA calls its fast matmul for two-dimensional operands only.
    flat = inputs.reshape(-1, inputs.shape[-1]) @ weights
    return flat.reshape(*inputs.shape[:-1], weights.shape[1])
