"""The layers as flax modules; parameters have the names and shapes of `flax.linen`.

Initial values are those of PyTorch, since that is what the papers' models start from:
uniform in ±1/√(fan in), weights and biases alike.
"""

import math
from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from afga_jax import checks
from afga_jax.models.layers.convolution import convolution, depthwise
from afga_jax.models.layers.initial import Drawn
from afga_jax.models.layers.norm import batch_norm, gelu_norm
from afga_jax.models.layers.windows import largest_divisor
from afga_jax.typing import Array

NORMS = ("batch", "group")


class Dense(Drawn):
    """`flax.linen.Dense` for `[batch, features]`."""

    features: int

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        fan_in = inputs.shape[-1]
        kernel = self.draw("kernel", (fan_in, self.features), fan_in)
        return inputs @ kernel + self.draw("bias", (self.features,), fan_in)[None]


class Conv(Drawn):
    """`flax.linen.Conv` for images, `[batch, height, width, channels]`.

    Attributes:
      features: Number of output channels.
      kernel_size: Height and width of the kernel.
      strides: Steps of the kernel along both axes.
      padding: "SAME", "VALID", or ((top, bottom), (left, right)).
      use_bias: Whether to add a bias.
      pool: Max-pool of the outputs; None: none. It comes before the bias, which is the
        same and leaves less to add; a ReLU after the layer is as good as one before the
        pool.
    """

    features: int
    kernel_size: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: str | tuple = "SAME"
    use_bias: bool = True
    pool: Callable[[Array], Array] | None = None

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        window = (*self.kernel_size, inputs.shape[-1])
        fan_in = math.prod(window)
        kernel = self.draw("kernel", (*window, self.features), fan_in)
        outputs = convolution(inputs, kernel, self.strides, self.padding)
        if self.pool is not None:
            outputs = self.pool(outputs)
        if self.use_bias:
            outputs += self.draw("bias", (self.features,), fan_in)[None, None, None]
        return outputs


class DepthwiseConv(Drawn):
    """`flax.linen.Conv` with one group per channel.

    Attributes:
      kernel_size: Height and width of the kernel.
      strides: Steps of the kernel along both axes.
      padding: "SAME", "VALID", or ((top, bottom), (left, right)).
    """

    kernel_size: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: str | tuple = "SAME"

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        channels, fan_in = inputs.shape[-1], math.prod(self.kernel_size)
        kernel = self.draw("kernel", (*self.kernel_size, 1, channels), fan_in)
        outputs = depthwise(inputs, kernel, self.strides, self.padding)
        return outputs + self.draw("bias", (channels,), fan_in)[None, None, None]


class Norm(nn.Module):
    """Batch or group normalisation, of the input or of its GELU.

    Batch normalisation keeps running statistics in the collection `batch_stats`, as
    `flax.linen.BatchNorm` does, and moves them by a tenth per step, as PyTorch does.

    Attributes:
      kind: Kind of normalisation, "batch" or "group".
      gelu: Whether the exact GELU comes first.
      groups: Number of channel groups of the group norm; fewer where they do not
        divide the channels.
      momentum: Weight of the running statistics' old values in a step.
      epsilon: Number that is added to the variance.
    """

    kind: str = "batch"
    gelu: bool = False
    groups: int = 32
    momentum: float = 0.9
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, inputs: Array, train: bool) -> Array:
        channels = inputs.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, channels, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, channels, jnp.float32)
        if self.kind == "group":
            groups = largest_divisor(inputs.shape[-1], self.groups)
            return group_norm(self._hidden(inputs), scale, bias, groups, self.epsilon)
        mean = self.variable("batch_stats", "mean", jnp.zeros, channels, jnp.float32)
        variance = self.variable("batch_stats", "var", jnp.ones, channels, jnp.float32)
        if not train:
            hidden = self._hidden(inputs)
            slope = scale * jax.lax.rsqrt(variance.value + self.epsilon)
            shift = bias - mean.value * slope
            shape = (1,) * (inputs.ndim - 1) + slope.shape
            outputs = hidden * slope.reshape(shape) + shift.reshape(shape)
            return outputs.astype(inputs.dtype)
        normalise = gelu_norm if self.gelu else batch_norm
        outputs, *batch = normalise(inputs, scale, bias, self.epsilon)
        if not self.is_initializing():
            keep = self.momentum
            for running, current in zip((mean, variance), batch, strict=True):
                running.value = keep * running.value + (1 - keep) * current
        return outputs

    def _hidden(self, inputs):
        return jax.nn.gelu(inputs, approximate=False) if self.gelu else inputs


def group_norm(
    inputs: Array, scale: Array, bias: Array, groups: int, epsilon: float = 1e-5
) -> Array:
    """Normalise each sample over its pixels and the channels of a group.

    Args:
      inputs: Values to normalise, `[batch, ..., channels]`.
      scale: Factors γ, `[channels]`.
      bias: Summands β, `[channels]`.
      groups: Number of groups; divides the channels.
      epsilon: Number ε that is added to the variance.

    Returns:
      Normalised values of the same shape.
    """
    wide = inputs.astype(jnp.promote_types(inputs.dtype, jnp.float32))
    grouped = wide.reshape(len(inputs), -1, groups, inputs.shape[-1] // groups)
    mean = grouped.mean((1, 3), keepdims=True)
    variance = ((grouped - mean) ** 2).mean((1, 3), keepdims=True)
    normed = (grouped - mean) * jax.lax.rsqrt(variance + epsilon)
    flat = normed.reshape(-1, inputs.shape[-1]) * scale[None] + bias[None]
    return flat.reshape(inputs.shape).astype(inputs.dtype)


def check_sizes(**sizes: int | Sequence[int]) -> None:
    """Refuse sizes, or sequences of sizes, that are not whole and at least 1."""
    for name, value in sizes.items():
        for size in value if isinstance(value, Sequence) else (value,):
            checks.integer(name, size)
