"""What is compiled for a run."""

import functools

import jax
import numpy as np

from afga_jax.recipe import FederatedState
from afga_jax.rounds.execution import Execution
from afga_jax.runs.config import Config, differences
from afga_jax.runs.experiment import Experiment, checksum
from afga_jax.training import client_metrics, inspect, ledger
from afga_jax.training.evaluate import mean_metrics
from afga_jax.training.seeds import Watched, each_seed, watched
from afga_jax.training.trainer import Trainer
from afga_jax.typing import Array, Batch, ClientData, PyTree

#: Rounds in one call at most. Not a setting: the program must be the same in each run.
CAPACITY = 100

# Settings that neither the programs nor the facts about a run depend on.
_NOT_COMPILED = ("seed", "eval_every", "target", "stop_at_target")


class Programs:
    """What is compiled for a run; runs that differ in traced numbers only can share it.

    Args:
      experiment: What is trained.
      execution: How. Where the axis `seeds` of its mesh does not divide the seeds of a
        call, copies of the last one fill it up.
    """

    def __init__(self, experiment: Experiment, execution: Execution):
        self.experiment = experiment
        config = experiment.config
        if config.coordinator is not None:
            raise ValueError(
                f"coordinator = {config.coordinator!r}, but only single runs go over "
                "several processes: leave it out, or take a main such as "
                "experiments.cifar."
            )
        self.trainer = _FillingTrainer(
            experiment.algorithm,
            execution,
            capacity=CAPACITY,
            observe=watched,
            donate=True,
        )
        self.evaluate = jax.jit(functools.partial(_evaluate, experiment))
        self.inspect = jax.jit(functools.partial(_inspect, experiment))
        key = jax.random.key(0)
        shapes = jax.eval_shape(experiment.algorithm.init, key)
        links = ledger.Links(config.server_seconds, config.client_seconds)
        self.costs = ledger.costs(experiment.algorithm, shapes, links)
        self.numbers = tuple(shapes.numbers)
        self.inspects = config.consensus or config.local_global
        if self.inspects and execution.mesh is not None:
            raise ValueError(
                "consensus and local_global need everybody's model on one device, but "
                "a mesh deals them out: leave mesh out, or these two."
            )
        if self.inspects:
            inspect.check_inspectable(experiment.algorithm)

    @functools.cached_property
    def checksum(self) -> int:
        """Checksum of the experiment's data."""
        return checksum(self.experiment.clients, self.experiment.test)

    def accept(self, config: Config) -> bool:
        """Whether a run with this configuration can be run by these programs."""
        differ = differences(self.experiment.config, config)
        return set(differ) <= {*self.numbers, *_NOT_COMPILED}


class _FillingTrainer(Trainer):
    """Fills seeds up to what the mesh divides; nobody sees the copies of the last."""

    def start(self, key: Array, data: ClientData, **numbers: float) -> FederatedState:
        rows = self._rows(len(key))
        if rows is None:
            return super().start(key, data, **numbers)
        return _first(super().start(key[rows], data, **numbers), len(key))

    def run(
        self, key: Array, state: FederatedState, data: ClientData, rounds: int
    ) -> tuple[FederatedState, Watched]:
        rows = self._rows(len(key))
        if rows is None:
            return super().run(key, state, data, rounds)
        # By way of the host: one device may have no room for what all of them share.
        full = jax.tree.map(lambda x: np.asarray(x)[rows], state)
        full, infos = super().run(key[rows], full, data, rounds)
        return _first(full, len(key)), jax.tree.map(lambda x: x[:, : len(key)], infos)

    def _rows(self, count: int) -> np.ndarray | None:
        """Which seed each row computes; None: they fill the devices as they are."""
        mesh = self.execution.mesh
        shares = 1 if mesh is None else dict(mesh.shape).get("seeds", 1)
        if count % shares == 0:
            return None
        return np.minimum(np.arange(-(-count // shares) * shares), count - 1)


def _first(state: PyTree, count: int) -> PyTree:
    return jax.tree.map(lambda x: np.array(x[:count]), jax.device_get(state))


def _evaluate(
    experiment: Experiment, models: PyTree, test: Batch, clients: ClientData
) -> dict[str, PyTree]:
    def per_seed(model):
        metrics = mean_metrics(experiment.task, *model, test)
        metrics = {f"test_{name}": value for name, value in metrics.items()}
        if experiment.config.per_client:
            each = client_metrics.each_client(experiment.task, *model, clients)
            metrics["clients"] = each
        return metrics

    return each_seed(per_seed, models)


def _inspect(
    experiment: Experiment, keys_and_states: PyTree, clients: ClientData
) -> dict[str, jax.Array]:
    local_global = experiment.config.local_global

    def per_seed(row):
        return inspect.inspect_round(
            experiment.algorithm, *row, clients, local_global=local_global
        )

    return each_seed(per_seed, keys_and_states)
