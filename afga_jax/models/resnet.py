"""ResNet-18 for 32×32 images (He et al., "Deep Residual Learning", 2016)."""

import flax.linen as nn
import jax.numpy as jnp

from afga_jax import checks
from afga_jax.models.layers import Conv, Dense, Norm
from afga_jax.models.layers.modules import NORMS, check_sizes
from afga_jax.typing import Array

# Explicit, because "SAME" pads a strided convolution of an even image on one side only.
AROUND = ((1, 1), (1, 1))


class ResNet18(nn.Module):
    """Four stages of two residual blocks behind a 3×3 stem, without max-pooling.

    11,173,962 parameters for 10 classes of colour images.

    Attributes:
      num_classes: Number of outputs.
      norm: Kind of normalisation, "batch" or "group".
      width: Number of channels of the first stage; every later one has twice as many.
    """

    num_classes: int
    norm: str = "batch"
    width: int = 64

    def __post_init__(self):
        checks.choice("norm", self.norm, NORMS)
        check_sizes(num_classes=self.num_classes, width=self.width)
        super().__post_init__()

    @nn.compact
    def __call__(self, inputs: Array, train: bool = False) -> Array:
        """From images `[batch, height, width, channels]` to `[batch, num_classes]`."""
        x = Conv(self.width, (3, 3), padding=AROUND, use_bias=False, name="stem")(
            inputs
        )
        x = nn.relu(Norm(self.norm, name="stem_norm")(x, train))
        for stage in range(4):
            for block in range(2):
                stride = 2 if stage > 0 and block == 0 else 1
                x = ResidualBlock(self.width * 2**stage, stride, self.norm)(x, train)
        return Dense(self.num_classes, name="head")(jnp.mean(x, (1, 2)))


class ResidualBlock(nn.Module):
    """relu(shortcut(x) + norm(conv(relu(norm(conv(x)))))), both kernels 3×3."""

    features: int
    stride: int
    norm: str

    @nn.compact
    def __call__(self, inputs: Array, train: bool) -> Array:
        strides = (self.stride, self.stride)
        x = Conv(self.features, (3, 3), strides, AROUND, use_bias=False)(inputs)
        x = nn.relu(Norm(self.norm)(x, train))
        x = Conv(self.features, (3, 3), padding=AROUND, use_bias=False)(x)
        x = Norm(self.norm)(x, train)
        if inputs.shape != x.shape:
            inputs = Conv(
                self.features, (1, 1), strides, "VALID", use_bias=False, name="shortcut"
            )(inputs)
            inputs = Norm(self.norm, name="shortcut_norm")(inputs, train)
        return nn.relu(x + inputs)
