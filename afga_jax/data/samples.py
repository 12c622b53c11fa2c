"""What a sample looks like to the model: arrays as they are, pixels, windows of a text.

A source turns indices of samples into a `Batch`, inside compiled code. The data stays
on the device as it was given, images as uint8 and a text as one string of codes; what
the model sees is computed for the batch alone.
"""

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from afga_jax import checks
from afga_jax.typing import Array, Batch, PyTree

# Images whose sums are taken at a time: few enough for 32-bit sums of squares.
_IMAGES = 512


class Source(Protocol):
    """Samples by their index; a pytree."""

    @property
    def num_samples(self) -> int:
        """Number of samples."""

    def take(self, samples: Array, key: Array | None = None) -> Batch:
        """The samples of those indices; with a key, augmented at random."""


@struct.dataclass
class Arrays:
    """Samples given as they are.

    Attributes:
      inputs: What the model sees, a tree of arrays `[samples, ...]`.
      targets: What it should answer, a tree of arrays `[samples, ...]`.
    """

    inputs: PyTree
    targets: PyTree

    @property
    def num_samples(self) -> int:
        return min(len(leaf) for leaf in jax.tree.leaves((self.inputs, self.targets)))

    def in_blocks(self, samples: np.ndarray) -> "Arrays":
        """The samples `[devices, samples]` of the devices, one device after another."""
        flat = samples.reshape(-1)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[flat], self)

    def take(self, samples: Array, key: Array | None = None) -> Batch:
        """The samples of those indices; there is nothing to augment."""
        return Batch(
            *jax.tree.map(lambda leaf: leaf[samples], (self.inputs, self.targets))
        )


@struct.dataclass
class Images:
    """Images of bytes, normalised and, with a key, cropped and flipped at random.

    Symbols: x = (pixel / 255 − mean) / std, per channel. A crop takes the window of the
    image's own size from the image with `pad` black pixels on every side, as the
    reference code of the papers does, that is before normalisation.

    Attributes:
      inputs: Pixels, uint8 `[samples, height, width, channels]`.
      targets: Labels, int32 `[samples]`.
      mean: Mean of each channel in units of the full range, `[channels]`.
      std: Standard deviation of each channel in the same units, `[channels]`.
      pad: Number of pixels by which a random crop may move; 0: no crop.
      flip: Whether half of the images are mirrored left to right.
    """

    inputs: Any
    targets: Any
    mean: Any
    std: Any
    pad: int = struct.field(pytree_node=False, default=0)
    flip: bool = struct.field(pytree_node=False, default=False)

    @property
    def num_samples(self) -> int:
        return len(self.targets)

    def in_blocks(self, samples: np.ndarray) -> "Images":
        """The images `[devices, samples]` of the devices, one device after another."""
        flat, devices = samples.reshape(-1), len(samples)
        return dataclasses.replace(
            self,
            inputs=np.asarray(self.inputs)[flat],
            targets=np.asarray(self.targets)[flat],
            mean=np.tile(self.mean, devices),
            std=np.tile(self.std, devices),
        )

    def take(self, samples: Array, key: Array | None = None) -> Batch:
        """The images of those indices; with a key, cropped and flipped."""
        images = self.inputs[samples]
        if key is not None:
            images = self.augment(key, images)
        return Batch(self.normalise(images), self.targets[samples])

    def augment(self, key: Array, images: Array) -> Array:
        """Crops and flips each image by its own random numbers."""
        bits = jax.random.bits(key, (len(images), 3), jnp.uint32)
        if self.pad:
            offsets = below(bits[:, :2], 2 * self.pad + 1)
            images = cropped(images, offsets, self.pad)
        if self.flip:
            images = flipped(images, bits[:, 2] >> 31 == 1)
        return images

    def normalise(self, images: Array) -> Array:
        """Bytes to numbers with the given mean and standard deviation undone."""
        scale, shift = self.scale_and_shift
        return images.astype(scale.dtype) * scale - shift

    @property
    def scale_and_shift(self) -> tuple[Array, Array]:
        """Scale and shift of x = scale·pixel − shift, both `[1, 1, 1, channels]`."""
        scale = (1 / (255 * self.std)).reshape(1, 1, 1, -1)
        return scale, (self.mean / self.std).reshape(1, 1, 1, -1)


@struct.dataclass
class Windows:
    """Windows of a text with the character that follows, cut where they are needed.

    Sample s is `text[s : s + length]` with target `text[s + length]`.

    Attributes:
      text: Codes of all characters, uint8 `[characters]`.
      length: Number of characters per window.
    """

    text: Any
    length: int = struct.field(pytree_node=False)

    @property
    def num_samples(self) -> int:
        return len(self.text) - self.length

    def take(self, samples: Array, key: Array | None = None) -> Batch:
        """The windows that start at those indices; there is nothing to augment."""
        positions = samples[:, None] + jnp.arange(self.length + 1)[None]
        codes = self.text[positions].astype(jnp.int32)
        return Batch(codes[:, :-1], codes[:, -1])


def images(
    inputs: np.ndarray,
    targets: np.ndarray,
    *,
    mean: np.ndarray | None = None,
    std: np.ndarray | None = None,
    augment: bool = False,
) -> Images:
    """Images on the device, normalised per channel.

    Args:
      inputs: Pixels, uint8 `[samples, height, width, channels]`.
      targets: Labels, `[samples]`.
      mean: Mean of each channel, `[channels]`; None: that of these images. Test images
        need the training images' own.
      std: Standard deviation of each channel, `[channels]`; None: that of these images.
      augment: Whether images are cropped with a pad of 4 and flipped, as for CIFAR.

    Returns:
      The source.
    """
    if inputs.dtype != np.uint8 or inputs.ndim != 4:
        raise ValueError(
            f"images are {inputs.dtype} of shape {inputs.shape}; give uint8 [samples, "
            "height, width, channels], or use Arrays for what is no image."
        )
    if mean is None or std is None:
        own_mean, own_std = channel_statistics(inputs)
        mean = own_mean if mean is None else mean
        std = own_std if std is None else std
    std = np.asarray(std)
    checks.number("std", std.min(), above=0, fix="give a std for constant channels")
    return Images(
        inputs=jnp.asarray(inputs),
        targets=jnp.asarray(targets),
        mean=jnp.asarray(mean, float),
        std=jnp.asarray(std, float),
        pad=4 if augment else 0,
        flip=augment,
    )


def channel_statistics(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each channel, in units of the full range.

    From sums of whole numbers, so they are exact and need no wider copy of the images.

    Args:
      inputs: Pixels, uint8 `[samples, height, width, channels]`.

    Returns:
      Means and standard deviations, both float64 `[channels]`.
    """
    pixels = inputs[0].size
    total, squares = np.zeros(pixels, np.uint64), np.zeros(pixels, np.uint64)
    for start in range(0, len(inputs), _IMAGES):
        chunk = inputs[start : start + _IMAGES].reshape(-1, pixels).astype(np.uint32)
        total += chunk.sum(0, dtype=np.uint32)
        squares += np.einsum("ij,ij->j", chunk, chunk)
    count = inputs.size // inputs.shape[-1]
    total, squares = (x.reshape(-1, inputs.shape[-1]).sum(0) for x in (total, squares))
    mean = total / (255 * count)
    # Multiplied out in whole numbers: no digits cancel.
    spread = [count * int(q) - int(t) ** 2 for q, t in zip(squares, total, strict=True)]
    return mean, np.sqrt(np.array(spread, float)) / (255 * count)


def cropped(images: Array, offsets: Array, pad: int) -> Array:
    """Moves each image within a black frame.

    Args:
      images: Images to move, `[samples, height, width, channels]`.
      offsets: Top left corner in the padded image, 0 to 2·pad, `[samples, 2]`.
      pad: Width of the frame in pixels.

    Returns:
      Images of the same shape.
    """
    framed = jnp.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))

    def window(image, offset):
        return jax.lax.dynamic_slice(image, (*offset, 0), images.shape[1:])

    return jax.vmap(window)(framed, offsets)


def flipped(images: Array, mirror: Array) -> Array:
    """Mirrors the marked images left to right.

    Args:
      images: Images to mirror, `[samples, height, width, channels]`.
      mirror: Which images are mirrored, bool `[samples]`.

    Returns:
      Images of the same shape.
    """
    return jnp.where(jnp.expand_dims(mirror, (1, 2, 3)), images[:, :, ::-1], images)


def below(bits: Array, bound: Array | int) -> Array:
    """⌊bits · bound / 2³²⌋: random numbers from 0 up to, and without, `bound`.

    As even as 2³² values can be divided by `bound`: some numbers get one more. One set
    of bits is enough, where `jax.random.randint` splits a key and draws two: on CPU
    each of these takes a tenth of a second to compile.

    Args:
      bits: Random bits, uint32, all values equally likely.
      bound: Number that no result reaches, up to 2³¹; broadcast against `bits`.

    Returns:
      Random numbers, int32, of the shape of `bits`.

    Example:
      >>> below(jnp.array([0, 2**31, 2**32 - 1], jnp.uint32), 10).tolist()
      [0, 5, 9]
    """
    bound = jnp.asarray(bound).astype(jnp.uint32)
    # The upper half of the 64-bit product, from products of 16-bit halves.
    high, low = bits >> 16, bits & 0xFFFF
    bound_high, bound_low = bound >> 16, bound & 0xFFFF
    first = high * bound_low + (low * bound_low >> 16)
    second = low * bound_high + (first & 0xFFFF)
    return (high * bound_high + (first >> 16) + (second >> 16)).astype(jnp.int32)
