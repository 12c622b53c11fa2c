"""Small models: the Fashion-MNIST CNN, the small AlexNet, MLPs."""

from collections.abc import Sequence
from functools import partial

import flax.linen as nn
import jax.numpy as jnp
from jax import lax

from afga_jax.models.layers import Conv, Dense, max_pool
from afga_jax.models.layers.modules import check_sizes
from afga_jax.typing import Array


class CNN(nn.Module):
    """Two 5×5 convolutions, each with ReLU and 2×2 max-pool, and one linear layer.

    28,938 parameters for 10 classes of 28×28 grey images.

    Attributes:
      num_classes: Number of outputs.
      features: Number of channels of each convolution.
    """

    num_classes: int
    features: Sequence[int] = (16, 32)

    def __post_init__(self):
        check_sizes(num_classes=self.num_classes, features=self.features)
        super().__post_init__()

    @nn.compact
    def __call__(self, inputs: Array, train: bool = False) -> Array:
        """From images `[batch, height, width, channels]` to `[batch, num_classes]`."""
        x = inputs
        for features in self.features:
            x = nn.relu(Conv(features, (5, 5), pool=max_pool)(x))
        return _linear_layers(x, (), self.num_classes)


class AlexNet(nn.Module):
    """The small AlexNet for CIFAR-10, on the middle 28×28 pixels.

    Twice 5×5 convolution, 3×3 max-pool and local response normalisation, then 384 and
    192 hidden units: 1,387,786 parameters for 10 classes of colour images. (Zhang et
    al., "Understanding deep learning requires rethinking generalization", 2017.)

    Attributes:
      num_classes: Number of outputs.
      features: Number of channels of both convolutions.
      hidden: Sizes of the hidden linear layers.
      crop: Side of the square in the middle that the model sees, in pixels.
    """

    num_classes: int
    features: int = 64
    hidden: Sequence[int] = (384, 192)
    crop: int = 28

    def __post_init__(self):
        check_sizes(num_classes=self.num_classes, features=self.features)
        check_sizes(hidden=self.hidden, crop=self.crop)
        super().__post_init__()

    @nn.compact
    def __call__(self, inputs: Array, train: bool = False) -> Array:
        """From images `[batch, height, width, channels]` to `[batch, num_classes]`."""
        x = _center(inputs, self.crop)
        pool = partial(max_pool, window=(3, 3), strides=(2, 2), padding="SAME")
        for _ in range(2):
            x = nn.relu(Conv(self.features, (5, 5), pool=pool)(x))
            x = local_response_norm(x)
        return _linear_layers(x, self.hidden, self.num_classes)


class MLP(nn.Module):
    """Linear layers with ReLU between them.

    Attributes:
      num_classes: Number of outputs.
      hidden: Sizes of the hidden layers; none of them: a linear model.
    """

    num_classes: int
    hidden: Sequence[int] = (100,)

    def __post_init__(self):
        check_sizes(num_classes=self.num_classes, hidden=self.hidden)
        super().__post_init__()

    @nn.compact
    def __call__(self, inputs: Array, train: bool = False) -> Array:
        """Logits `[batch, num_classes]` of `[batch, ...]`, flattened."""
        return _linear_layers(inputs, self.hidden, self.num_classes)


def local_response_norm(
    inputs: Array,
    radius: int = 4,
    bias: float = 1.0,
    alpha: float = 0.001 / 9,
    beta: float = 0.75,
) -> Array:
    """y_c = x_c / (k + α Σ x_d²)^β over the channels d within the radius of c.

    Args:
      inputs: Values x, `[..., channels]`.
      radius: Number of channels on either side.
      bias: Constant k.
      alpha: Weight α of the squares.
      beta: Exponent β.

    Returns:
      Values y of the same shape. (Krizhevsky et al., 2012; the constants are those of
      the CIFAR-10 network that Zhang et al. adapt.)
    """
    padding = [(0, 0, 0)] * (inputs.ndim - 1) + [(radius, radius, 0)]
    squares = lax.pad(inputs * inputs, jnp.zeros((), inputs.dtype), padding)
    channels = inputs.shape[-1]
    sums = sum(squares[..., d : d + channels] for d in range(2 * radius + 1))
    return inputs * (bias + alpha * sums) ** -beta


def _linear_layers(inputs, hidden, num_classes):
    x = inputs.reshape(len(inputs), -1)
    for features in hidden:
        x = nn.relu(Dense(features)(x))
    return Dense(num_classes, name="head")(x)


def _center(images, side):
    height, width = images.shape[1:3]
    if min(height, width) < side:
        raise ValueError(
            f"an image of {height}×{width} pixels is smaller than crop={side}; give "
            "larger images or a smaller crop"
        )
    top, left = (height - side) // 2, (width - side) // 2
    return images[:, top : top + side, left : left + side]
