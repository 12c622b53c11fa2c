"""What the contestants work on, built from a few words, the same way for all."""

import functools
from typing import NamedTuple

import numpy as np

import afga_jax
from afga_jax import data, models
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.data import Clients, Dataset
from afga_jax.rounds.execution import Execution
from afga_jax.typing import Task

BATCH = 50
# Kind, options and data set, by the names that tables use.
MODELS = {
    "cnn": ("cnn", {}, "fashion_mnist"),
    "mlp-25": ("mlp", {"hidden": (25,)}, "fashion_mnist"),
    "mlp-100": ("mlp", {}, "fashion_mnist"),
    "mlp-400": ("mlp", {"hidden": (400,)}, "fashion_mnist"),
    "mlp-1600": ("mlp", {"hidden": (1600,)}, "fashion_mnist"),
    "convmixer-64-4": ("convmixer", {"width": 64, "depth": 4, "patch": 4}, "cifar10"),
    "convmixer-256-8": ("convmixer", {}, "cifar10"),
}
# Small rates keep rounding apart from real differences; time does not depend on them.
RATES = {
    "fedavg": {"local_lr": 0.05, "server_lr": 1.0},
    "fedamsgrad": {"local_lr": 0.02, "server_lr": 0.001, "eps": 1e-4},
    "afga": {"local_lr": 0.02, "server_lr": 0.001, "eps": 1e-4},
}


class Problem(NamedTuple):
    """A benchmark's work.

    Attributes:
      algorithm: Built.
      task: Its loss.
      clients: Its data.
      dataset: Where that is from.
      execution: How it runs.
    """

    algorithm: FederatedAlgorithm
    task: Task
    clients: Clients
    dataset: Dataset
    execution: Execution


def problem(
    *,
    algorithm: str,
    model: str,
    num_clients: int,
    active: int,
    local_steps: int = 24,
    partition: str = "iid",
    engine: str = "auto",
    **options,
) -> Problem:
    """The work by name.

    Args:
      algorithm: A name; with the rates of `RATES`, or its own.
      model: A name of `MODELS`.
      num_clients: N.
      active: M.
      local_steps: 𝓘.
      partition: Of the training samples.
      engine: As for `Execution`.
      **options: Of `afga_jax.build`.
    """
    task, clients, dataset = task_and_data(model, num_clients, partition)
    built = afga_jax.build(
        algorithm,
        task,
        num_clients=num_clients,
        active=active,
        local_steps=local_steps,
        weighting="uniform",
        **(RATES.get(algorithm, {}) | options),
    )
    return Problem(built, task, clients, dataset, Execution(engine))


def task_and_data(
    model: str, num_clients: int, partition: str
) -> tuple[Task, Clients, Dataset]:
    """A model's task, and the data of its clients.

    Args:
      model: A name of `MODELS`.
      num_clients: N.
      partition: Of the training samples.
    """
    kind, settings, name = MODELS[model]
    dataset = _dataset(name)
    held = data.partition.build(partition, dataset.train_targets, num_clients)
    clients = data.from_dataset(dataset, held, batch_size=BATCH)
    shape = dataset.train_inputs.shape[1:]
    task = models.classifier(models.create(kind, 10, **settings), shape)
    return task, clients, dataset


def torch_layout(model: str, params: dict) -> list[np.ndarray]:
    """A model's parameters in the order and the layout of its PyTorch twin.

    Args:
      model: A name of `MODELS`.
      params: Of the flax module.
    """
    depth = sum(name.startswith("DepthwiseConv") for name in params)
    names = {
        "cnn": ["Conv_0", "Conv_1", "head"],
        "mlp": ["Dense_0", "head"],
        "convmixer": ["stem", "stem_norm", *_blocks(depth), "head"],
    }[MODELS[model][0]]
    arrays = []
    for name in names:
        layer = {key: np.asarray(value) for key, value in params[name].items()}
        if "scale" in layer:
            arrays += [layer["scale"], layer["bias"]]
            continue
        kernel = layer["kernel"]
        if model == "cnn" and name == "head":
            # PyTorch flattens channels first.
            kernel = kernel.reshape(7, 7, -1, 10).transpose(2, 0, 1, 3).reshape(-1, 10)
        arrays += [kernel.transpose(3, 2, 0, 1) if kernel.ndim == 4 else kernel.T]
        arrays += [layer["bias"]]
    return [np.ascontiguousarray(array, np.float32) for array in arrays]


def _blocks(depth: int) -> list[str]:
    return [
        name
        for block in range(depth)
        for name in (
            f"DepthwiseConv_{block}",
            f"Norm_{2 * block}",
            f"Conv_{block}",
            f"Norm_{2 * block + 1}",
        )
    ]


@functools.cache
def _dataset(name: str) -> Dataset:
    return data.load(name)
