"""The character model for Shakespeare's plays."""

import flax.linen as nn
import jax.numpy as jnp

from afga_jax import checks
from afga_jax.models.layers import Dense, lstm
from afga_jax.models.layers.initial import Drawn
from afga_jax.models.layers.modules import check_sizes
from afga_jax.typing import Array


class LSTM(nn.Module):
    """Predict the character that follows a text.

    Embedding, LSTM layers with dropout between them, and a linear layer that reads the
    last state. 897,360 parameters with the defaults.

    Attributes:
      num_classes: Number of characters in the alphabet of inputs and outputs.
      embedding: Size of a character's vector.
      hidden: Size of a layer's state.
      layers: Number of layers.
      dropout: Fraction of a layer's outputs that training hides from the next layer.
    """

    num_classes: int = 80
    embedding: int = 80
    hidden: int = 256
    layers: int = 2
    dropout: float = 0.05

    def __post_init__(self):
        check_sizes(num_classes=self.num_classes, embedding=self.embedding)
        check_sizes(hidden=self.hidden, layers=self.layers)
        checks.number("dropout", self.dropout, at_least=0, below=1)
        super().__post_init__()

    @nn.compact
    def __call__(self, inputs: Array, train: bool = False) -> Array:
        """Logits `[batch, num_classes]` of texts `[batch, time]` of integers."""
        if not jnp.issubdtype(inputs.dtype, jnp.integer):
            raise ValueError(
                f"a text of {inputs.dtype} was given; characters are integers below "
                f"{self.num_classes}"
            )
        normal = nn.initializers.normal(1.0)
        embed = nn.Embed(self.num_classes, self.embedding, embedding_init=normal)
        x = embed(inputs.T)
        for layer in range(self.layers):
            if layer > 0:
                x = nn.Dropout(self.dropout, deterministic=not train)(x)
            x = LSTMLayer(self.hidden)(x)
        return Dense(self.num_classes, name="head")(x[-1])


class LSTMLayer(Drawn):
    """One LSTM layer over `[time, batch, features]`; the gates are i, f, g, o."""

    hidden: int

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        features, gates = inputs.shape[-1], 4 * self.hidden
        kernel = self.draw("kernel", (features, gates), self.hidden)
        recurrent = self.draw("recurrent_kernel", (self.hidden, gates), self.hidden)
        bias = self.draw("bias", (gates,), self.hidden)
        return lstm(inputs, kernel, recurrent, bias)
