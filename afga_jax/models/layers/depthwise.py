"""Depthwise convolution: every channel has its own filter."""

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


def depthwise(
    inputs: Array, kernel: Array, strides: Pair = (1, 1), padding: str | Pads = "SAME"
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
    padded = pad(inputs, padding)
    return materialise(partial(filtered, strides=strides), padded, kernel[:, :, 0])


def _backward_cpu(inputs, kernel, gradient, *, strides, padding):
    window = kernel.shape[:2]
    pads = mirrored_padding(
        inputs.shape[1:3], gradient.shape[1:3], window, strides, padding
    )
    spread, mirrored = pad(gradient, pads, strides), kernel[::-1, ::-1, 0]
    d_inputs = materialise(partial(filtered, strides=(1, 1)), spread, mirrored)
    d_kernel = _kernel_gradient(pad(inputs, padding), gradient, window, strides)
    return d_inputs, d_kernel[:, :, None]


def _kernel_gradient(padded, gradient, window, strides):
    """∂k[i, j, c] = Σ x[b, s·h + i, s·w + j, c] · ∂y[b, h, w, c], sample by sample.

    One accumulator per tap and output column; sums over rows are written out, because a
    reduction would first write all products to memory.
    """
    places, outs = list(taps(window)), gradient.shape[1:3]

    def add(sums, sample):
        image, grad = sample
        products = [under(image[None], tap, outs, strides)[0] * grad for tap in places]
        return [
            total + sum(rows[h] for h in range(outs[0]))
            for total, rows in zip(sums, products, strict=True)
        ], None

    zeros = jnp.zeros(gradient.shape[2:], gradient.dtype)
    sums, _ = lax.scan(add, [zeros] * len(places), (padded, gradient))
    return jnp.stack([total.sum(0) for total in sums]).reshape(*window, -1)
