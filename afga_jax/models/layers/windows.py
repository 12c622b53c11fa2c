"""How a window moves over an image: padding, strides, and the pixels under one tap."""

import functools
from collections.abc import Iterable
from itertools import product

import jax.numpy as jnp
from jax import lax

from afga_jax.typing import Array

# Of an image's two axes; of the ends of each.
Pair = tuple[int, ...]
Pads = tuple[Pair, ...]
LAYOUT = ("NHWC", "HWIO", "NHWC")


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
    """The places of a window, row by row."""
    return product(range(window[0]), range(window[1]))


def out_size(padded: Pair, window: Pair, strides: Pair) -> Pair:
    """How often a window fits."""
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


def filtered(padded: Array, kernel: Array, *, strides: Pair) -> Array:
    """Σ pixels under a tap · the tap's weights `[channels]`, over all taps."""
    window = kernel.shape[:2]
    outs = out_size(padded.shape[1:3], window, strides)
    parts = (
        under(padded, tap, outs, strides) * kernel[tap][None, None, None]
        for tap in taps(window)
    )
    return functools.reduce(jnp.add, parts)
