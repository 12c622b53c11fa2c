"""Max-pooling that remembers which pixel won."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
from jax import lax

from afga_jax.models.layers.convolution import Pair, explicit_padding
from afga_jax.typing import Array


def max_pool(
    inputs: Array,
    window: Pair = (2, 2),
    strides: Pair | None = None,
    padding="VALID",
) -> Array:
    """y[b, h, w, c] = max x[b, s·h + i − p, s·w + j − p, c] over the window (i, j).

    Of equal pixels the first one, row by row, receives the gradient.

    Args:
      inputs: `[batch, height, width, channels]`, floating point.
      window: Height and width of the window.
      strides: Of both axes; None: the window.
      padding: "SAME", "VALID", or ((top, bottom), (left, right)).

    Returns:
      `[batch, out height, out width, channels]`.
    """
    strides = tuple(window if strides is None else strides)
    pads = explicit_padding(inputs.shape[1:3], window, strides, padding)
    return _max_pool(inputs, tuple(window), strides, pads, inputs.shape[1:3])


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def _max_pool(inputs, window, strides, padding, image):
    return _forward(inputs, window, strides, padding, image)[0]


def _forward(inputs, window, strides, padding, image):
    del image  # of the backward pass
    candidates = _candidates(inputs, window, strides, padding)
    best, winner = candidates[0], jnp.zeros(candidates[0].shape, jnp.int32)
    for number, candidate in enumerate(candidates[1:], start=1):
        winner = jnp.where(candidate > best, number, winner)
        best = jnp.maximum(best, candidate)
    small = jnp.uint8 if len(candidates) <= 256 else jnp.int32
    return best, winner.astype(small)


def _backward(window, strides, padding, image, winner, gradient):
    if window == strides and padding == ((0, 0), (0, 0)):
        spread = _spread_tiles(winner, gradient, window)
    else:
        spread = _spread_overlapping(winner, gradient, window, strides, padding, image)
    edges = [(0, n - have, 0) for n, have in zip(image, spread.shape[1:3], strict=True)]
    zero = jnp.zeros((), gradient.dtype)
    return (lax.pad(spread, zero, [(0, 0, 0), *edges, (0, 0, 0)]),)


_max_pool.defvjp(_forward, _backward)


def _candidates(inputs, window, strides, padding):
    low = jnp.array(-jnp.inf, inputs.dtype)
    padded = lax.pad(
        inputs, low, [(0, 0, 0), *((*pads, 0) for pads in padding), (0, 0, 0)]
    )
    outs = [
        (n - k) // s + 1
        for n, k, s in zip(padded.shape[1:3], window, strides, strict=True)
    ]
    return [
        padded[
            :,
            i : i + (outs[0] - 1) * strides[0] + 1 : strides[0],
            j : j + (outs[1] - 1) * strides[1] + 1 : strides[1],
        ]
        for i, j in product(range(window[0]), range(window[1]))
    ]


def _spread_tiles(winner, gradient, window):
    """Windows that tile the image: every pixel asks its own window."""
    batch, height, width, channels = gradient.shape
    number = jnp.arange(window[0] * window[1], dtype=winner.dtype)
    number = number.reshape(1, 1, window[0], 1, window[1], 1)
    wins = winner[:, :, None, :, None] == number
    spread = jnp.where(wins, gradient[:, :, None, :, None], 0)
    return spread.reshape(batch, height * window[0], width * window[1], channels)


def _spread_overlapping(winner, gradient, window, strides, padding, image):
    """Windows that overlap: a pixel adds up what its windows send."""
    zero = jnp.zeros((), gradient.dtype)
    total = 0
    for number, tap in enumerate(product(range(window[0]), range(window[1]))):
        sent = jnp.where(winner == number, gradient, 0)
        edges = [
            (i - low, n - 1 - (out - 1) * stride - i + low, stride - 1)
            for i, (low, _), n, out, stride in zip(
                tap, padding, image, gradient.shape[1:3], strides, strict=True
            )
        ]
        total += lax.pad(sent, zero, [(0, 0, 0), *edges, (0, 0, 0)])
    return total
