"""ConvMixer (Trockman and Kolter, "Patches Are All You Need?", 2022)."""

import flax.linen as nn
import jax.numpy as jnp

from afga_jax import checks
from afga_jax.models.layers import Conv, Dense, DepthwiseConv, Norm
from afga_jax.models.layers.modules import NORMS, check_sizes
from afga_jax.typing import Array


class ConvMixer(nn.Module):
    """Patches, then blocks that mix space and channels in turn.

    x ← norm(gelu(patches)), then per block
    x ← x + norm(gelu(depthwise(x))),  x ← norm(gelu(pointwise(x)))

    The default is the papers' ConvMixer-256-8: 594,186 parameters for 10 classes of
    colour images.

    Attributes:
      num_classes: Number of outputs.
      width: Number of channels.
      depth: Number of blocks.
      patch: Side of a patch in pixels; divides the sides of the image.
      kernel: Side of the depthwise kernel in pixels, odd.
      norm: Kind of normalisation, "batch" or "group".
    """

    num_classes: int
    width: int = 256
    depth: int = 8
    patch: int = 2
    kernel: int = 5
    norm: str = "batch"

    def __post_init__(self):
        checks.choice("norm", self.norm, NORMS)
        check_sizes(num_classes=self.num_classes, width=self.width, depth=self.depth)
        check_sizes(patch=self.patch, kernel=self.kernel)
        if self.kernel % 2 == 0:
            raise ValueError(
                f"kernel={self.kernel} must be odd, or a block would shift the image; "
                f"use {self.kernel + 1}"
            )
        super().__post_init__()

    @nn.compact
    def __call__(self, inputs: Array, train: bool = False) -> Array:
        """From images `[batch, height, width, channels]` to `[batch, num_classes]`."""
        height, width = inputs.shape[1:3]
        if height % self.patch or width % self.patch:
            raise ValueError(
                f"patch={self.patch} does not divide an image of {height}×{width} "
                "pixels; choose a patch that divides both sides"
            )
        side = (self.patch, self.patch)
        x = Conv(self.width, side, strides=side, padding="VALID", name="stem")(inputs)
        x = Norm(self.norm, gelu=True, name="stem_norm")(x, train)
        for _ in range(self.depth):
            y = DepthwiseConv((self.kernel, self.kernel))(x)
            x = x + Norm(self.norm, gelu=True)(y, train)
            y = Conv(self.width, (1, 1))(x)
            x = Norm(self.norm, gelu=True)(y, train)
        return Dense(self.num_classes, name="head")(jnp.mean(x, (1, 2)))
