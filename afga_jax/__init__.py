"""Adaptive federated learning with gossip between clients, as one compiled JAX round.

An algorithm is a recipe of a few choices: who takes part, how a client steps, who mixes
with whom, what the server makes of the uploaded deltas, and how it steps.
"""

from afga_jax import algorithms, optimizers
from afga_jax.algorithms import (
    ALGORITHMS,
    Algorithm,
    FederatedAlgorithm,
    Options,
    algorithm,
    build,
    compose,
    option,
)
from afga_jax.gossip import designed, kernels, mixing, robust, sequences, topology
from afga_jax.gossip.kernels import gossip
from afga_jax.models.tasks import task
from afga_jax.optimizers import aggregators, attacks, compressors, corrections, server
from afga_jax.optimizers.aggregators import Aggregator, AggregatorState
from afga_jax.optimizers.server import (
    average,
    fedadagrad,
    fedadam,
    fedams,
    fedamsgrad,
    fedyogi,
)
from afga_jax.population import availability, clustering
from afga_jax.population import sampling as participation
from afga_jax.population.faults import Faults
from afga_jax.recipe import FederatedState, Recipe, RoundInfo
from afga_jax.rounds.execution import Execution
from afga_jax.runs.load import load
from afga_jax.runs.own import run, sweep
from afga_jax.runs.pages.explorer import explore
from afga_jax.runs.result import RunResult, SweepResult
from afga_jax.training import ledger
from afga_jax.training.client_metrics import ClientMetrics, evaluate_clients
from afga_jax.training.evaluate import evaluate
from afga_jax.training.fit import Result, fit
from afga_jax.training.history import History
from afga_jax.training.seeds import over_seeds
from afga_jax.training.trainer import Trainer
from afga_jax.typing import Batch, ClientData, Task

__version__ = "0.2.0"

__all__ = [
    "ALGORITHMS",
    "Aggregator",
    "AggregatorState",
    "Algorithm",
    "Batch",
    "ClientData",
    "ClientMetrics",
    "Execution",
    "Faults",
    "FederatedAlgorithm",
    "FederatedState",
    "History",
    "Options",
    "Recipe",
    "Result",
    "RoundInfo",
    "RunResult",
    "SweepResult",
    "Task",
    "Trainer",
    "aggregators",
    "algorithm",
    "algorithms",
    "attacks",
    "availability",
    "average",
    "build",
    "clustering",
    "compose",
    "compressors",
    "corrections",
    "designed",
    "evaluate",
    "evaluate_clients",
    "explore",
    "fedadagrad",
    "fedadam",
    "fedams",
    "fedamsgrad",
    "fedyogi",
    "fit",
    "gossip",
    "kernels",
    "ledger",
    "load",
    "mixing",
    "optimizers",
    "option",
    "over_seeds",
    "participation",
    "robust",
    "run",
    "sequences",
    "server",
    "sweep",
    "task",
    "topology",
]
