"""3×3 convolutions with a quarter of the products: Winograd's F(4×4, 3×3).

For a tile d of 6×6 pixels and a kernel k of 3×3 weights, the 4×4 outputs are

    y = Aᵀ [(G k Gᵀ) ⊙ (Bᵀ d B)] A,

36 products in place of 144; over channels and tiles they are 36 matmuls. (Lavin and
Gray, "Fast algorithms for convolutional neural networks", 2016.) In float32 an output
is off by up to 3e-5 of the largest, ten times as much as with all products.
"""

import math
from functools import partial, reduce

import jax.numpy as jnp

from afga_jax.models.layers.boundary import materialise
from afga_jax.models.layers.windows import Pads, Pair, pad
from afga_jax.typing import Array

WINDOW, OUT, TILE = 3, 4, 6

# Polynomials in the points 0, ±1, ±2 and infinity.
_INPUTS = (  # Bᵀ
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
_KERNEL = (  # G
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
_OUTPUTS = (  # Aᵀ
    (1, 1, 1, 1, 1, 0),
    (0, 1, -1, 2, -2, 0),
    (0, 1, 1, 4, 4, 0),
    (0, 1, -1, 8, -8, 1),
)


def is_faster(inputs: Array, kernel: Array, strides: Pair, padding: Pads) -> bool:
    """Whether a convolution is of this kind, and worth the transforms.

    Args:
      inputs: Images `[batch, height, width, in]`, or the outputs' gradient.
      kernel: Weights `[kernel height, kernel width, in, out]`.
      strides: Steps of the kernel along both axes.
      padding: ((top, bottom), (left, right)).
    """
    outs = _outs(inputs, padding)
    return (
        kernel.shape[:2] == (WINDOW, WINDOW)
        and strides == (1, 1)
        and min(kernel.shape[2:]) >= 64
        and min(outs) >= OUT
        # To transform a kernel takes as long as the products of about 40 tiles.
        and len(inputs) * math.prod(_tiles(outs)) >= 40
        # What the transforms cancel is lost in half precision.
        and jnp.finfo(kernel.dtype).bits >= 32
    )


def convolution(inputs: Array, kernel: Array, padding: Pads) -> Array:
    """y[b, h, w, o] = Σ x[b, h + i − p, w + j − p, c] · k[i, j, c, o].

    Args:
      inputs: Images x, `[batch, height, width, in]`.
      kernel: Weights k, `[3, 3, in, out]`.
      padding: ((top, bottom), (left, right)).
    """
    return _convolved("ptc,pco->pto", inputs, kernel, padding)


def input_gradient(gradient: Array, kernel: Array, padding: Pads) -> Array:
    """∂x, the gradient's convolution with the mirrored kernel.

    Args:
      gradient: Of the outputs, `[batch, height, width, out]`.
      kernel: Weights of the convolution, `[3, 3, in, out]`.
      padding: That takes the gradient back to the images.
    """
    # To read the transformed kernel transposed is cheaper than to transpose it.
    return _convolved("pto,pco->ptc", gradient, kernel[::-1, ::-1], padding)


def kernel_gradient(inputs: Array, gradient: Array, padding: Pads) -> Array:
    """∂k = Gᵀ [Σ over tiles of (Bᵀ d B) ⊙ (A ∂y Aᵀ)] G, `[3, 3, in, out]`.

    Args:
      inputs: Images x, `[batch, height, width, in]`.
      gradient: Of the outputs, `[batch, height, width, out]`.
      padding: ((top, bottom), (left, right)) of the convolution.
    """
    tiles = _tiles(gradient.shape[1:3])
    spread = _transformed_tiles(_columns(_OUTPUTS), gradient, tiles)
    products = jnp.einsum("ptc,pto->pco", _transformed_inputs(inputs, padding), spread)
    return _transformed(
        _columns(_KERNEL), products.reshape(TILE, TILE, *products.shape[1:])
    )


def _convolved(contraction, inputs, kernel, padding):
    weights = _transformed(_KERNEL, kernel).reshape(-1, *kernel.shape[2:])
    products = jnp.einsum(contraction, _transformed_inputs(inputs, padding), weights)
    outs = _outs(inputs, padding)
    rows, columns = _tiles(outs)
    products = products.reshape(TILE, TILE, len(inputs), rows, columns, -1)
    pixels = _transformed(_OUTPUTS, products).transpose(2, 3, 0, 4, 1, 5)
    images = pixels.reshape(len(inputs), rows * OUT, columns * OUT, -1)
    return images[:, : outs[0], : outs[1]]


def _outs(inputs, padding):
    return [
        n + low + high - WINDOW + 1
        for n, (low, high) in zip(inputs.shape[1:3], padding, strict=True)
    ]


def _tiles(outs):
    return [-(-n // OUT) for n in outs]


def _transformed_inputs(inputs, padding):
    tiles = _tiles(_outs(inputs, padding))
    return _transformed_tiles(_INPUTS, inputs, tiles, [low for low, _ in padding])


def _transformed_tiles(matrix, images, tiles, starts=(0, 0)):
    """M d Mᵀ of all tiles d, `[36, tiles, channels]`; zeros lie around the images."""
    side = len(matrix[0])
    around = tuple(
        (start, OUT * (number - 1) + side - start - n)
        for start, number, n in zip(starts, tiles, images.shape[1:3], strict=True)
    )
    # Written down, or each transformed pixel would compute its own anew.
    padded = materialise(partial(pad, pads=around), images)
    down, right = (OUT * (number - 1) + 1 for number in tiles)
    rows = _mixed(matrix, [padded[:, n : n + down : OUT] for n in range(side)])
    both = _mixed(matrix, [rows[:, :, :, n : n + right : OUT] for n in range(side)])
    return both.reshape(TILE * TILE, -1, images.shape[3])


def _transformed(matrix, square):
    """(M X Mᵀ)ᵀ of a square of arrays, `[rows, columns, ...]`."""
    rows = _mixed(matrix, list(square))
    return _mixed(matrix, [rows[:, n] for n in range(square.shape[1])])


def _mixed(matrix, arrays):
    """M x of arrays x, `[rows of M, ...]`, as sums written out: XLA fuses those."""
    return jnp.stack([_sum(weights, arrays) for weights in matrix])


def _sum(weights, arrays):
    terms = (
        array if weight == 1 else weight * array
        for weight, array in zip(weights, arrays, strict=True)
        if weight
    )
    return reduce(jnp.add, terms)


def _columns(matrix):
    return tuple(zip(*matrix, strict=True))
