"""The five layers that models are built from, each with its own gradient.

`convolution`, `depthwise`, `max_pool`, `gelu_norm` and `lstm` compute what their plain
forms compute. What they change is how: on CPU they are written the way XLA turns into
fast code inside loops, with every client's own weights; on other platforms they call
the native operations.

Their bodies are jitted: layers of one shape are traced and lowered once, however
often a model repeats them; the compiler then inlines them.
"""

from afga_jax.models.layers.convolution import convolution, depthwise
from afga_jax.models.layers.lstm import lstm
from afga_jax.models.layers.modules import Conv, Dense, DepthwiseConv, Norm
from afga_jax.models.layers.norm import batch_norm, gelu_norm
from afga_jax.models.layers.pooling import max_pool

__all__ = [
    "Conv",
    "Dense",
    "DepthwiseConv",
    "Norm",
    "batch_norm",
    "convolution",
    "depthwise",
    "gelu_norm",
    "lstm",
    "max_pool",
]
