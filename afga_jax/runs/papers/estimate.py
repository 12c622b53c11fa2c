"""How long runs will take: floating-point operations over an assumed rate.

Nothing is loaded and nothing is compiled; operations are counted in the traced loss
(`afga_jax.training.flops`). The rates are assumptions: on a GPU a tenth
of an RTX A6000's peak (the papers' machine; small models do not fill it, and we have
not measured one), on a CPU what a small ConvMixer gets from a core here.
"""

import functools
import math
import os

import jax
import jax.numpy as jnp

from afga_jax import models
from afga_jax.algorithms import FederatedAlgorithm, build
from afga_jax.data.synthetic import quadratic
from afga_jax.runs.config import Config, fields
from afga_jax.runs.experiment import model_of, most_active
from afga_jax.runs.experiment.choices import options_of
from afga_jax.runs.experiment.workload import Workload
from afga_jax.training import flops, ledger
from afga_jax.typing import Batch, Task

GPU_RATE = 4e12
CORE_RATE = 15e9

# Shape of an input, classes, test samples.
_DATA = {
    "cifar10": ((32, 32, 3), 10, 10_000),
    "cifar100": ((32, 32, 3), 100, 10_000),
    "fashion_mnist": ((28, 28, 1), 10, 10_000),
    "mnist": ((28, 28, 1), 10, 10_000),
    "digits": ((8, 8, 1), 10, 360),
    "gaussians": ((2,), 2, 20),
    "shakespeare": ((80,), 80, 10_000),
}


def operations(config: Config) -> float:
    """Floating-point operations of a run, evaluations included."""
    shape, classes, tested = _DATA[config.dataset]
    each = _forward(_model_only(config), shape, classes)
    samples = gradients_per_round(config) * (config.batch_size or 1) * config.rounds
    tests = min(tested, config.test_samples or tested)
    evaluated = tests * math.ceil(config.rounds / config.eval_every)
    return config.num_seeds * each * (flops.PASSES * samples + evaluated)


def sentence(total: float, *, accelerator: bool) -> str:
    """The estimate with what it assumes: hours of one GPU, or of this machine's CPU."""
    cores = os.cpu_count() or 1
    spent = total / (GPU_RATE if accelerator else CORE_RATE * cores) / 3600
    shown = f"{spent:,.1f}" if spent >= 1 else f"{spent:.2g}"
    assumed = f"{CORE_RATE / 1e9:g} GFLOP/s on each of {cores} cores"
    if accelerator:
        assumed = (
            f"{GPU_RATE / 1e12:g} TFLOP/s, a tenth of an RTX A6000's peak: an "
            "assumption, not a measurement"
        )
    kind = "GPU" if accelerator else "CPU"
    return f"estimated {kind} hours: {shown} ({total:.2g} operations at {assumed})"


def gradients_per_round(config: Config) -> int:
    """How many a round computes, at most."""
    every = math.prod(most_active(algorithm_of(config)))
    share = config.active_prob if config.algo == "hafed_active" else 1
    return round(every * share)


def costs_of(config: Config) -> ledger.Costs:
    """The run's price list: what messages of its model's size cost."""
    algorithm = algorithm_of(config, _task(config, *_DATA[config.dataset][:2]))
    return ledger.costs(algorithm, jax.eval_shape(algorithm.init, jax.random.key(0)))


def algorithm_of(config: Config, task: Task | None = None) -> FederatedAlgorithm:
    """The run's algorithm on a toy problem: who computes and sends is the same.

    Clusters are equal ones here, whoever is in them.

    Args:
      config: The run's configuration.
      task: What is trained, where its size matters; None: two numbers.
    """
    toy = quadratic(2, 1)
    workload = Workload(task or toy.task, toy.data, None)
    changes = {"clustering": "equal", "lr_schedule": "constant", "topology_rho": None}
    changes["topology_weights"] = None
    if config.topology not in (None, "none", "complete"):
        changes["topology"] = None
    options = options_of(config.replace(**changes), workload)
    return build(config.algo, workload.task, num_clients=config.num_clients, **options)


def _model_only(config: Config) -> Config:
    """All that a forward pass depends on, so that runs share their count."""
    names = ["dataset", "batch_size", *(field.name for field in fields("model"))]
    return Config(**{name: getattr(config, name) for name in names})


@functools.lru_cache(maxsize=256)
def _forward(config: Config, shape: tuple[int, ...], classes: int) -> float:
    """Operations of a forward pass with one sample."""
    size, task = config.batch_size or 1, _task(config, shape, classes)
    inputs = jax.ShapeDtypeStruct((size, *shape), _dtype(config))
    batch = Batch(inputs, jax.ShapeDtypeStruct((size,), jnp.int32))
    return flops.of_batch(task, batch).operations / flops.PASSES / size


def _task(config: Config, shape: tuple[int, ...], classes: int) -> Task:
    return models.classifier(model_of(config, classes), shape, _dtype(config))


def _dtype(config: Config) -> jnp.dtype:
    return jnp.dtype("int32" if config.dataset == "shakespeare" else "float32")
