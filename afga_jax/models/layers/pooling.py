"""Max-pooling that remembers which pixel won."""

from functools import partial

import jax
import jax.numpy as jnp

from afga_jax.models.layers.boundary import materialise
from afga_jax.models.layers.windows import (
    Pads,
    Pair,
    explicit_padding,
    mirrored_padding,
    out_size,
    pad,
    taps,
    under,
)
from afga_jax.typing import Array


def max_pool(
    inputs: Array,
    window: Pair = (2, 2),
    strides: Pair | None = None,
    padding: str | Pads = "VALID",
) -> Array:
    """y[b, h, w, c] = max x[b, s·h + i − p, s·w + j − p, c] over the window (i, j).

    Of equal pixels the first one, row by row, receives the gradient.

    Args:
      inputs: Images x, floating point, `[batch, height, width, channels]`.
      window: Height and width of the window.
      strides: Steps s of the window along both axes; None: its height and width.
      padding: "SAME", "VALID", or ((top, bottom), (left, right)).

    Returns:
      Images y, `[batch, out height, out width, channels]`.
    """
    steps = tuple(window if strides is None else strides)
    pads = explicit_padding(inputs.shape[1:3], window, steps, padding)
    return _max_pool(inputs, tuple(window), steps, pads, inputs.shape[1:3])


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def _max_pool(inputs, window, strides, padding, image):
    return _forward(inputs, window, strides, padding, image)[0]


def _forward(inputs, window, strides, padding, image):
    del image  # of the backward pass
    # Written down, or the ReLU, its gradient and the next layer would each pool again.
    return materialise(partial(_best_and_winner, window, strides, padding), inputs)


def _backward(window, strides, padding, image, winner, gradient):
    if window == strides and padding == ((0, 0), (0, 0)):
        return (_spread_tiles(winner, gradient, window, image),)
    return (_spread_overlapping(winner, gradient, window, strides, padding, image),)


_max_pool.defvjp(_forward, _backward)


def _best_and_winner(window, strides, padding, inputs):
    padded = pad(inputs, padding, value=-jnp.inf)
    outs = out_size(padded.shape[1:3], window, strides)
    best, *others = (under(padded, tap, outs, strides) for tap in taps(window))
    # Of the values' own type: bytes would keep the backward pass from vectorising.
    winner = jnp.zeros(best.shape, best.dtype)
    for number, other in enumerate(others, start=1):
        winner = jnp.where(other > best, number, winner)
        best = jnp.maximum(best, other)
    return best, winner


def _spread_tiles(winner, gradient, window, image):
    """Windows that tile the image: every pixel asks its own window."""
    batch, height, width, channels = gradient.shape
    number = jnp.arange(window[0] * window[1], dtype=winner.dtype)
    number = number.reshape(1, 1, window[0], 1, window[1], 1)
    wins = winner[:, :, None, :, None] == number
    spread = jnp.where(wins, gradient[:, :, None, :, None], 0)
    covered = height * window[0], width * window[1]
    rest = tuple((0, n - have) for n, have in zip(image, covered, strict=True))
    return pad(spread.reshape(batch, *covered, channels), rest)


def _spread_overlapping(winner, gradient, window, strides, padding, image):
    """Windows that overlap: a pixel adds up what its windows send."""
    total = 0
    for number, tap in enumerate(taps(window)):
        # A tap is a window of one pixel, further into the image.
        moved = tuple(
            (low - start, 0) for start, (low, _) in zip(tap, padding, strict=True)
        )
        back = mirrored_padding(image, gradient.shape[1:3], (1, 1), strides, moved)
        total += pad(jnp.where(winner == number, gradient, 0), back, strides)
    return total
