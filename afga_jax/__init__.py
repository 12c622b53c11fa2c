"""Adaptive federated learning with gossip between clients, as one compiled JAX round.

An algorithm is a recipe of four choices: who takes part, how a client steps, who mixes
with whom, and what the server does with the mean change.
"""

from afga_jax import clustering, kernels, mixing, participation, server, topology
from afga_jax.algorithms import (
    ALGORITHMS,
    FederatedAlgorithm,
    Options,
    build,
    compose,
    defaults,
)
from afga_jax.evaluate import evaluate
from afga_jax.execution import Execution
from afga_jax.kernels import gossip
from afga_jax.recipe import FederatedState, Recipe, RoundInfo
from afga_jax.seeds import over_seeds
from afga_jax.server import (
    average,
    fedadagrad,
    fedadam,
    fedams,
    fedamsgrad,
    fedyogi,
)
from afga_jax.train import Trainer, fit
from afga_jax.trained import load
from afga_jax.typing import Batch, ClientData, Task

__version__ = "0.1.0"

__all__ = [
    "ALGORITHMS",
    "Batch",
    "ClientData",
    "Execution",
    "FederatedAlgorithm",
    "FederatedState",
    "Options",
    "Recipe",
    "RoundInfo",
    "Task",
    "Trainer",
    "average",
    "build",
    "clustering",
    "compose",
    "defaults",
    "evaluate",
    "fedadagrad",
    "fedadam",
    "fedams",
    "fedamsgrad",
    "fedyogi",
    "fit",
    "gossip",
    "kernels",
    "load",
    "mixing",
    "over_seeds",
    "participation",
    "server",
    "topology",
]
