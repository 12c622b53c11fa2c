"""How a client steps and how the server steps.

The server's are ordinary optax optimizers: `afga_jax.optimizers.fedamsgrad(0.01)`. So
are the clients', but for `dadam` and `damsgrad`, which share a part of their state.
"""

from afga_jax.optimizers.client import LocalOptimizer, dadam, damsgrad, from_optax
from afga_jax.optimizers.server import (
    average,
    fedadagrad,
    fedadam,
    fedams,
    fedamsgrad,
    fedavgm,
    fedyogi,
    slowmo,
)

__all__ = [
    "LocalOptimizer",
    "average",
    "dadam",
    "damsgrad",
    "fedadagrad",
    "fedadam",
    "fedams",
    "fedamsgrad",
    "fedavgm",
    "fedyogi",
    "from_optax",
    "slowmo",
]
