"""What a run is: one frozen value that flags, help, errors and records come from.

A field says its type, its group, what it is for and what it may be. Options of the
algorithms (`afga_jax.Options`) bring their own bounds: a new one is one line here.
"""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from afga_jax import checks
from afga_jax import mesh as meshes
from afga_jax.algorithms import ALGORITHMS
from afga_jax.config.fields import (
    GROUPS,
    Field,
    checked,
    describe,
    option,
    own,
)
from afga_jax.data.partition import SCHEMES
from afga_jax.execution import ENGINES
from afga_jax.kernels import KERNELS
from afga_jax.local import LOCAL_OPTIMIZERS
from afga_jax.models import MODELS

__all__ = ["GROUPS", "Config", "Field", "differences", "fields"]

IMAGES = ("cifar10", "cifar100", "fashion_mnist", "mnist")
DATASETS = (*IMAGES, "digits", "shakespeare", "quadratic", "logistic", "gaussians")
TEXT_SCHEMES = ("natural", "grouped")
SETTINGS = ("1", "2", "3", "4", "hafed", "fedcluster")
SCALES = ("paper", "small", "smoke")
SCHEDULES = ("constant", "cosine", "linear", "step")

_LARGEST_SEED = 2**31 - 1
# Names of fields in older runs, and now; None: it is gone, no number depended on it.
_FORMER: dict[str, str | None] = {"balance": None}


@dataclass(frozen=True)
class Config:
    """A run, in plain values that a JSON file can hold; `fields` has what they mean.

    >>> Config(algo="afga", local_lr=-1.0)
    Traceback (most recent call last):
    ...
    ValueError: local_lr = -1.0, but it must be >= 0.
    """

    # algorithm
    algo: str = own("algorithm", "Algorithm.", "afga", choices=ALGORITHMS)
    setting: str | None = own(
        "algorithm", "A paper's setting; else by data set.", choices=SETTINGS
    )
    scale: str | None = own(
        "algorithm",
        "The setting's size; else paper on an accelerator, small without.",
        choices=SCALES,
    )
    mu: float | None = option("algorithm", "μ of FedProx.")
    feddyn_alpha: float | None = option("algorithm", "α of FedDyn.")
    b3: float | None = option("algorithm", "β₃ of DAdam.")
    inner: str | None = option(
        "algorithm", "Algorithm inside FedCluster's cycle.", choices=ALGORITHMS
    )
    shuffle: bool | None = option("algorithm", "FedCluster reorders its clusters.")

    # data
    dataset: str | None = own("data", "Data set.", choices=DATASETS)
    stand_in: bool | None = own(
        "data", "Digits stand in for a missing data set; else if none is named."
    )
    data_dir: str | None = own(
        "data", "Folder of TFDS's sets; or TFDS_DATA_DIR.", neutral=True
    )
    cache_dir: str | None = own(
        "data", "Folder of decoded sets; or AFGA_CACHE_DIR.", neutral=True
    )
    offline: bool | None = own(
        "data", "Leave the network alone; or AFGA_OFFLINE.", neutral=True
    )
    partition: str | None = own(
        "data", "How samples are dealt to clients.", choices=(*SCHEMES, *TEXT_SCHEMES)
    )
    alpha: float | None = own("data", "Dirichlet's concentration α.", above=0)
    num_shards: int | None = own("data", "Shards in all.", at_least=1)
    shard_size: int | None = own("data", "Samples per shard.", at_least=1)
    shards_per_client: int | None = own("data", "Shards per client.", at_least=1)
    client_size: int | None = own(
        "data", "Samples per client, where they overlap or are drawn.", at_least=1
    )
    rho_device: float | None = own(
        "data", "ρ_device: share of the major class.", above=0, at_most=1
    )
    partition_seed: int = own(
        "data", "Seed of the partition.", 0, at_least=0, at_most=_LARGEST_SEED
    )
    augment: bool | None = own("data", "Crop and flip training images.")
    test_samples: int | None = own("data", "Test samples; else all.", at_least=1)
    dimension: int | None = own("data", "Of a synthetic problem.", at_least=1)
    sigma_g: float | None = own("data", "σ_g: synthetic heterogeneity.", at_least=0)
    sigma: float | None = own("data", "σ: synthetic gradient noise.", at_least=0)
    variance: float | None = own("data", "Of HA-Fed's two Gaussians.", above=0)

    # model
    model: str | None = own("model", "Model.", choices=MODELS)
    norm: str | None = own(
        "model", "Normalisation, where the model has one.", choices=("batch", "group")
    )
    width: int | None = own("model", "Channels (convmixer, resnet18).", at_least=1)
    depth: int | None = own("model", "Blocks (convmixer).", at_least=1)
    patch: int | None = own("model", "Side of a patch (convmixer).", at_least=1)
    kernel: int | None = own("model", "Side of a kernel (convmixer).", at_least=1)
    features: tuple[int, ...] | None = own(
        "model", "Channels of the convolutions (cnn, alexnet).", at_least=1
    )
    hidden: tuple[int, ...] | None = own(
        "model", "Hidden units (mlp, alexnet, lstm).", at_least=1
    )
    embedding: int | None = own("model", "Of a character (lstm).", at_least=1)
    layers: int | None = own("model", "Layers (lstm).", at_least=1)
    dropout: float | None = own("model", "Between layers (lstm).", at_least=0, below=1)

    # participation
    num_clients: int | None = option("participation", "N, clients.")
    participation: float | None = option("participation", "M/N, share that is active.")
    active: int | None = option("participation", "M, in place of --participation.")
    num_clusters: int | None = option("participation", "K, clusters.")
    clustering: str | None = option(
        "participation",
        "Who belongs together.",
        choices=("equal", "similar", "major_class"),
        file=True,
    )
    clustering_seed: int | None = option("participation", "Seed of the clustering.")
    rho_cluster: float | None = own(
        "participation", "ρ_cluster of major_class clusters.", at_least=0, at_most=1
    )
    resample: bool | None = option("participation", "New clients at every step.")
    active_prob: float | None = option("participation", "p_c of hafed_active.")
    weighting: str | None = option("participation", "Of uploads.")
    cluster_weighting: str | None = option("participation", "Of clusters.")

    # topology
    topology: str | None = option(
        "topology", "Who mixes with whom.", choices=(*KERNELS, "none"), file=True
    )
    topology_rho: float | None = own(
        "topology", "ρ to reach (random, unbalanced_complete).", above=0, below=1
    )
    topology_seed: int = own(
        "topology", "Seed of a random graph.", 0, at_least=0, at_most=_LARGEST_SEED
    )
    adapted: str | None = option("topology", "Mix among the active only.")
    mixing_order: str | None = option("topology", "Mix after or before the step.")
    mix_every: int | None = option("topology", "q: mix after every q-th step.")
    pga_period: int | None = option("topology", "H of PGA; else the local steps.")

    # optimisation
    local_steps: int | None = option("optimisation", "Local steps per round.")
    batch_size: int | None = own("optimisation", "Samples per step.", at_least=1)
    full_batch: bool | None = option("optimisation", "A step sees all own samples.")
    local_lr: float | None = option("optimisation", "η_l, local learning rate.")
    server_lr: float | None = option("optimisation", "η, server learning rate.")
    lr_schedule: str = own(
        "optimisation", "Of both rates over rounds.", "constant", choices=SCHEDULES
    )
    lr_decay: float = own(
        "optimisation", "Factor of schedule `step`.", 0.1, above=0, at_most=1
    )
    lr_decay_every: int | None = own(
        "optimisation", "Its period in rounds; else a third of all.", at_least=1
    )
    local_optimizer: str | None = option(
        "optimisation", "How a client steps.", choices=LOCAL_OPTIMIZERS
    )
    momentum: float | None = option("optimisation", "Of the local momentum.")
    weight_decay: float | None = option("optimisation", "Of the local optimizer.")
    eps: float | None = option("optimisation", "ε of the adaptive server.")
    b1: float | None = option("optimisation", "β₁.")
    b2: float | None = option("optimisation", "β₂.")

    # run
    rounds: int | None = own("run", "Rounds, R.", at_least=1)
    eval_every: int | None = own("run", "Rounds between evaluations.", at_least=1)
    seed: int = own(
        "run", "Seed of all but the data.", 0, at_least=0, at_most=_LARGEST_SEED
    )
    num_seeds: int = own("run", "Seeds that run in one program.", 1, at_least=1)
    out: str | None = own("run", "Folder of the run.", neutral=True)
    resume: bool = own("run", "Go on with a stopped run.", False, neutral=True)
    checkpoint_every: int | None = own(
        "run", "Rounds between checkpoints.", at_least=1, neutral=True
    )
    init_from: str | None = own("run", "Folder of the run to start from.")
    target: float | None = own(
        "run", "Accuracy to reach.", above=0, at_most=1, fix="0.78 is 78 %"
    )
    stop_at_target: bool = own("run", "Stop when it is reached.", False)
    consensus: bool = own("run", "Log the distance between all clients.", False)
    per_client: bool = own("run", "Log each client's accuracy.", False)
    local_global: bool = own("run", "Log HA-Fed's f_local and f_global.", False)
    client_chunk: int | None = own(
        "run", "Clients that run side by side; else by platform.", at_least=1
    )
    engine: str | None = own(
        "run", "How rounds are computed; else auto, by rule.", choices=ENGINES
    )
    wave_width: int | None = own(
        "run", "Gradients in a slot of engine span; else by platform.", at_least=1
    )
    cpu_devices: int | None = own(
        "run", "Devices that a CPU is split into; else one per core.", at_least=1
    )
    mesh: str | None = own(
        "run",
        "Devices that share clients and seeds, e.g. clients:8 or seeds:2,clients:4.",
        neutral=True,
    )
    coordinator: str | None = own(
        "run", "HOST:PORT of process 0 of several, or auto.", neutral=True
    )
    num_processes: int | None = own(
        "run", "Processes of the run.", at_least=1, neutral=True
    )
    process_id: int | None = own(
        "run", "Number of this one, from 0.", at_least=0, neutral=True
    )
    precision: str | None = own(
        "run", "Of matrix products; else JAX's.", choices=("default", "high", "highest")
    )
    server_seconds: float = own(
        "run", "Of a message to or from the server, for hours.", 18.0, at_least=0
    )
    client_seconds: float = own(
        "run", "Of a message between clients, for hours.", 1.8, at_least=0
    )
    compile_cache: bool = own("run", "Keep compiled programs.", True, neutral=True)

    def __post_init__(self):
        for one in fields():
            value = checked(one, getattr(self, one.name))
            object.__setattr__(self, one.name, value)
        if self.active is not None and self.participation is not None:
            raise ValueError(
                f"active = {self.active} and participation = {self.participation}, but "
                "both set the number of active clients: leave one out."
            )
        if self.mesh is not None:
            meshes.parse(self.mesh)
        if self.stop_at_target and self.target is None:
            raise ValueError("stop_at_target needs a target: set target, e.g. 0.78.")

    def replace(self, **changes: Any) -> "Config":
        """A copy with other values."""
        checks.names(changes, _known())
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """All values, as JSON has them."""
        values = {one.name: getattr(self, one.name) for one in fields()}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Config":
        """The inverse of `to_dict`, also of older runs; unknown names are refused.

        >>> Config.from_dict({"lokal_lr": 0.1})
        Traceback (most recent call last):
        ...
        ValueError: 'lokal_lr' is not known; did you mean 'local_lr'?
        """
        given = {
            now: value
            for name, value in values.items()
            if (now := _FORMER.get(name, name)) is not None
        }
        checks.names(given, _known())
        return cls(**given)


def fields(group: str | None = None) -> tuple[Field, ...]:
    """What is known of the fields, of one group or all.

    >>> [one.name for one in fields("topology")][:2]
    ['topology', 'topology_rho']
    """
    return tuple(one for one in _described() if group in (None, one.group))


def differences(first: Config, second: Config) -> dict[str, tuple[Any, Any]]:
    """Fields in which two runs differ, but for those that do not change the numbers.

    >>> differences(Config(seed=1, out="here"), Config(seed=2, out="there"))
    {'seed': (1, 2)}
    """
    pairs = {
        one.name: (getattr(first, one.name), getattr(second, one.name))
        for one in fields()
        if not one.neutral
    }
    return {name: (old, new) for name, (old, new) in pairs.items() if old != new}


@functools.cache
def _described() -> tuple[Field, ...]:
    return tuple(describe(one) for one in dataclasses.fields(Config))


def _known() -> list[str]:
    return [one.name for one in _described()]
