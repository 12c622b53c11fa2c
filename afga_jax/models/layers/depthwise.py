"""Depthwise convolution: every channel has its own filter."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
from jax import lax

from afga_jax.models.layers.boundary import materialise
from afga_jax.models.layers.convolution import LAYOUT, Pair, explicit_padding
from afga_jax.typing import Array


def depthwise(
    inputs: Array, kernel: Array, strides: Pair = (1, 1), padding="SAME"
) -> Array:
    """y[b, h, w, c] = Σ x[b, s·h + i − p, s·w + j − p, c] · k[i, j, 0, c].

    Args:
      inputs: `[batch, height, width, channels]`.
      kernel: `[kernel height, kernel width, 1, channels]`, as in `flax.linen.Conv` with
        `feature_group_count=channels`.
      strides: Of both axes.
      padding: "SAME", "VALID", or ((top, bottom), (left, right)).

    Returns:
      `[batch, out height, out width, channels]`.
    """
    pads = explicit_padding(inputs.shape[1:3], kernel.shape[:2], strides, padding)
    return _depthwise(inputs, kernel, tuple(strides), pads)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _depthwise(inputs, kernel, strides, padding):
    return lax.platform_dependent(
        inputs,
        kernel,
        cpu=partial(_forward_cpu, strides=strides, padding=padding),
        default=partial(_native, strides=strides, padding=padding),
    )


def _forward(inputs, kernel, strides, padding):
    return _depthwise(inputs, kernel, strides, padding), (inputs, kernel)


def _backward(strides, padding, saved, gradient):
    return lax.platform_dependent(
        *saved,
        gradient,
        cpu=partial(_backward_cpu, strides=strides, padding=padding),
        default=partial(_backward_native, strides=strides, padding=padding),
    )


_depthwise.defvjp(_forward, _backward)


def _native(inputs, kernel, *, strides, padding):
    return lax.conv_general_dilated(
        inputs,
        kernel,
        strides,
        padding,
        dimension_numbers=LAYOUT,
        feature_group_count=inputs.shape[3],
    )


def _backward_native(inputs, kernel, gradient, *, strides, padding):
    function = partial(_native, strides=strides, padding=padding)
    return jax.vjp(function, inputs, kernel)[1](gradient)


def _forward_cpu(inputs, kernel, *, strides, padding):
    padded = _pad(inputs, padding)
    return materialise(partial(_filter, strides=strides), padded, kernel[:, :, 0])


def _backward_cpu(inputs, kernel, gradient, *, strides, padding):
    spread = _pad(
        gradient,
        [
            (size - 1 - low, image - 1 - (out - 1) * stride + low)
            for size, (low, _), image, out, stride in zip(
                kernel.shape[:2],
                padding,
                inputs.shape[1:3],
                gradient.shape[1:3],
                strides,
                strict=True,
            )
        ],
        strides,
    )
    mirrored = kernel[::-1, ::-1, 0]
    d_inputs = materialise(partial(_filter, strides=(1, 1)), spread, mirrored)
    d_kernel = _kernel_gradient(
        _pad(inputs, padding), gradient, kernel.shape[:2], strides
    )
    return d_inputs, d_kernel[:, :, None]


def _pad(images, pads, spread=(1, 1)):
    """Add pixels around images, and `spread − 1` between pixels."""
    (top, bottom), (left, right) = pads
    config = (
        (0, 0, 0),
        (top, bottom, spread[0] - 1),
        (left, right, spread[1] - 1),
        (0, 0, 0),
    )
    return lax.pad(images, jnp.zeros((), images.dtype), config)


def _filter(padded, kernel, *, strides):
    """Sum the shifted images, each times its filter tap `[channels]`."""
    taps = product(range(kernel.shape[0]), range(kernel.shape[1]))
    outs = _out_shape(padded.shape[1:3], kernel.shape[:2], strides)
    return sum(
        _shifted(padded, tap, outs, strides) * kernel[tap][None, None, None]
        for tap in taps
    )


def _kernel_gradient(padded, gradient, window, strides):
    """∂k[i, j, c] = Σ x[b, s·h + i, s·w + j, c] · ∂y[b, h, w, c], sample by sample.

    One accumulator per tap and output column; sums over rows are written out, because a
    reduction would first write all products to memory.
    """
    taps = list(product(range(window[0]), range(window[1])))
    outs = gradient.shape[1:3]

    def add(sums, sample):
        image, grad = sample
        rows = [_shifted(image[None], tap, outs, strides)[0] * grad for tap in taps]
        return [
            total + sum(row[h] for h in range(outs[0]))
            for total, row in zip(sums, rows, strict=True)
        ], None

    zeros = jnp.zeros(gradient.shape[2:], gradient.dtype)
    sums, _ = lax.scan(add, [zeros] * len(taps), (padded, gradient))
    return jnp.stack([total.sum(0) for total in sums]).reshape(*window, -1)


def _shifted(padded, tap, outs, strides):
    (i, j), (height, width), (down, right) = tap, outs, strides
    return padded[
        :,
        i : i + (height - 1) * down + 1 : down,
        j : j + (width - 1) * right + 1 : right,
    ]


def _out_shape(image, window, strides):
    return tuple(
        (n - k) // s + 1 for n, k, s in zip(image, window, strides, strict=True)
    )
