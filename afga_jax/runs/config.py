"""What a run is: one frozen value that flags, help, errors and records come from.

A field says its type, its group, what it is for and what it may be. Options of the
algorithms (`afga_jax.Options`) bring their own bounds: a new one is one line here. What
an algorithm has of its own (`afga_jax.algorithm`) is a field as soon as it is declared.
"""

import collections
import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from afga_jax import checks
from afga_jax import mesh as meshes
from afga_jax.algorithms import ALGORITHMS, lookup
from afga_jax.algorithms.registry import own_options
from afga_jax.data.own import BUILT_IN, OWN_DATASETS
from afga_jax.data.partition import SCHEMES
from afga_jax.gossip.kernels import KERNELS
from afga_jax.gossip.robust import DEFENCES
from afga_jax.gossip.sequences import SEQUENCES
from afga_jax.models import MODELS
from afga_jax.models.tasks import DTYPES
from afga_jax.optimizers.aggregators import AGGREGATORS
from afga_jax.optimizers.attacks import ATTACKS
from afga_jax.optimizers.client import LOCAL_OPTIMIZERS
from afga_jax.optimizers.compressors import COMPRESSORS
from afga_jax.rounds.execution import ENGINES
from afga_jax.runs import plugins
from afga_jax.runs.fields import Field, checked, described, described_own
from afga_jax.runs.trackers import TRACKERS

GROUPS = (
    *("algorithm", "data", "model", "participation"),
    *("topology", "optimisation", "conditions", "run"),
)

# Looked at, not copied: a plugin may add names.
DATASETS: Mapping[str, Any] = collections.ChainMap(
    cast(dict[str, Any], OWN_DATASETS), dict.fromkeys(BUILT_IN)
)
#: Partitions by who a sample is from, where the data says so.
NATURAL_SCHEMES = ("natural", "grouped")
SETTINGS = ("1", "2", "3", "4", "hafed", "fedcluster", "demo")
SCALES = ("paper", "small", "smoke")
SCHEDULES = ("constant", "cosine", "linear", "step")

# Names of fields in older runs, and now; None: it is gone, no number depended on it.
_FORMER: dict[str, str | None] = {"balance": None}


def _setting(group: str, help: str, default: Any = None, **about: Any) -> Any:
    """A field of a run.

    Args:
      group: One of `GROUPS`.
      help: What it is, in a line.
      default: None: the table of settings, or the algorithm, decides.
      **about: Bounds, choices, file and neutral, as in `Field`. Whole numbers are at
        least 1; an option of the algorithms brings its own bounds along.
    """
    metadata = {"group": group, "help": help, **about}
    return dataclasses.field(default=default, metadata=metadata)


_algorithm, _data, _model, _participation = (
    functools.partial(_setting, group) for group in GROUPS[:4]
)
_topology, _optimisation, _conditions, _run = (
    functools.partial(_setting, group) for group in GROUPS[4:]
)
_chance = functools.partial(_conditions, default=0.0, at_least=0, at_most=1)
_data_place = functools.partial(_data, neutral=True)
_neutral = functools.partial(_run, neutral=True)
_SEED = {"default": 0, "at_least": 0, "at_most": 2**31 - 1}


@dataclass(frozen=True, init=False, eq=False)
class Config:
    """A run, in plain values that a JSON file can hold; `fields` has what they mean.

    Values without a default are None until `settings.resolve` fills them in; those that
    every complete run has are typed as such. An algorithm's own options are attributes
    like the others, None where the algorithm is another.

    >>> Config(algo="afga", local_lr=-1.0)
    Traceback (most recent call last):
    ...
    ValueError: local_lr = -1.0, but it must be >= 0.
    >>> Config(algo="fedprox", mu=0.1).mu
    0.1
    """

    algo: str = _algorithm("Algorithm.", "afga", choices=ALGORITHMS)
    setting: str = _algorithm(
        "A paper's setting, or the demo's; else by data set.", choices=SETTINGS
    )
    scale: str = _algorithm(
        "The setting's size; else paper on an accelerator, small without.",
        choices=SCALES,
    )

    dataset: str = _data("Data set.", choices=DATASETS)
    stand_in: bool | None = _data(
        "Digits stand in for a missing data set; else if none is named."
    )
    data_dir: str | None = _data_place(
        "Folder of TFDS's sets, or of Parquet files; or TFDS_DATA_DIR."
    )
    cache_dir: str | None = _data_place("Folder of decoded sets; or AFGA_CACHE_DIR.")
    offline: bool | None = _data_place("Leave the network alone; or AFGA_OFFLINE.")
    partition: str | None = _data(
        "How samples are dealt to clients.", choices=(*SCHEMES, *NATURAL_SCHEMES)
    )
    alpha: float | None = _data("Dirichlet's concentration α.", above=0)
    num_shards: int | None = _data("Shards in all.")
    shard_size: int | None = _data("Samples per shard.")
    shards_per_client: int | None = _data("Shards per client.")
    client_size: int | None = _data("Samples per client, if they overlap or are drawn.")
    rho_device: float | None = _data(
        "ρ_device: share of the major class.", above=0, at_most=1
    )
    partition_seed: int = _data("Seed of the partition.", **_SEED)
    augment: bool | None = _data("Crop and flip training images.")
    test_samples: int | None = _data("Test samples; else all.")
    dimension: int | None = _data("Of a synthetic problem.")
    sigma_g: float | None = _data("σ_g: synthetic heterogeneity.", at_least=0)
    sigma: float | None = _data("σ: synthetic gradient noise.", at_least=0)
    variance: float | None = _data("Of HA-Fed's two Gaussians.", above=0)

    model: str | None = _model("Model.", choices=MODELS)
    norm: str | None = _model(
        "Normalisation, where the model has one.", choices=("batch", "group")
    )
    width: int | None = _model("Channels (convmixer, resnet18).")
    depth: int | None = _model("Blocks (convmixer).")
    patch: int | None = _model("Side of a patch (convmixer).")
    kernel: int | None = _model("Side of a kernel (convmixer).")
    features: tuple[int, ...] | None = _model(
        "Channels of the convolutions (cnn, alexnet)."
    )
    hidden: tuple[int, ...] | None = _model("Hidden units (mlp, alexnet, lstm).")
    embedding: int | None = _model("Of a character (lstm).")
    layers: int | None = _model("Layers (lstm).")
    dropout: float | None = _model("Between layers (lstm).", at_least=0, below=1)

    num_clients: int = _participation("N, clients.")
    participation: float | None = _participation("M/N, share that is active.")
    active: int | None = _participation("M, in place of --participation.")
    num_clusters: int = _participation("K, clusters.")
    clustering: str | None = _participation(
        "Who belongs together.", choices=("equal", "similar", "major_class"), file=True
    )
    clustering_seed: int | None = _participation("Seed of the clustering.")
    rho_cluster: float | None = _participation(
        "ρ_cluster of major_class clusters.", at_least=0, at_most=1
    )
    resample: bool | None = _participation("New clients at every step.")
    weighting: str | None = _participation("Of uploads.")
    cluster_weighting: str | None = _participation("Of clusters.")
    broadcast: str | None = _participation("Who gets the server's new model.")

    topology: str | None = _topology(
        "Who mixes with whom.",
        # Looked at, not copied: a plugin may add names.
        choices=collections.ChainMap({"none": 0, "label_aware": 0}, SEQUENCES, KERNELS),
        file=True,
    )
    topology_rho: float | None = _topology(
        "ρ to reach (random, unbalanced_complete).", above=0, below=1
    )
    topology_seed: int = _topology("Seed of a random graph.", **_SEED)
    topology_weights: str | None = _topology(
        "Of a graph's edges: as named, or fastest, with the smallest ρ.",
        choices=("named", "fastest"),
    )
    adapted: str | None = _topology("Mix among the active only.")
    mixing_order: str | None = _topology("Mix after or before the step.")
    mix_every: int | None = _topology("q: mix after every q-th step.")
    mix_times: int | None = _topology("Q: mix so many times in a row.")

    local_steps: int = _optimisation("Local steps per round.")
    batch_size: int = _optimisation("Samples per step.")
    full_batch: bool | None = _optimisation("A step sees all own samples.")
    local_lr: float = _optimisation("η_l, local learning rate.")
    server_lr: float = _optimisation("η, server learning rate.")
    lr_schedule: str = _optimisation(
        "Of both rates over rounds.", "constant", choices=SCHEDULES
    )
    lr_decay: float = _optimisation("Factor of `step`.", 0.1, above=0, at_most=1)
    lr_decay_every: int | None = _optimisation(
        "Its period in rounds; else a third of all."
    )
    local_optimizer: str | None = _optimisation(
        "How a client steps.", choices=LOCAL_OPTIMIZERS
    )
    momentum: float | None = _optimisation("Of the local momentum.")
    weight_decay: float | None = _optimisation("Of the local optimizer.")
    eps: float = _optimisation("ε of the adaptive server.")
    b1: float | None = _optimisation("β₁.")
    b2: float | None = _optimisation("β₂.")

    client_dropout: float = _chance("Probability that a client leaves in a round.")
    link_failure: float = _chance("Probability that a link is down at a step.")
    straggler: float = _chance("Probability that a client takes fewer steps.")
    upload_loss: float = _chance("Probability that an upload is lost.")
    availability: str | None = _conditions(
        "CSV file of who is there: by client and round, or by cluster and hour."
    )
    hours_per_round: float | None = _conditions(
        "Hours that a round takes, for a file of hours; else 1.", above=0
    )
    attack: str | None = _conditions("What liars do.", choices=ATTACKS)
    liars: float | None = _conditions(
        "Share of the clients that lie.", at_least=0, below=1
    )
    attack_scale: float | None = _conditions(
        "How much they lie; else by attack.", above=0
    )
    contain: bool | None = _conditions(
        "Leave out uploads that are not finite; else with an attack."
    )
    aggregator: str | None = _conditions(
        "How the server joins uploads; else their mean.", choices=AGGREGATORS
    )
    assumed_liars: int | None = _conditions(
        "Liars that a defence is built for: among uploads, or among neighbours.",
        at_least=0,
    )
    gossip_defence: str | None = _conditions(
        "How a client joins its neighbours' messages.", choices=DEFENCES
    )
    krum_multi: int | None = _conditions("Uploads that krum averages; else 1.")
    clip_radius: float | None = _conditions(
        "τ of centred_clipping and norm_clipping.", above=0
    )
    clip_iterations: int | None = _conditions(
        "Of centred_clipping; else 1.", at_most=100
    )
    dp_clip: float | None = _conditions("C: norm that uploads are clipped to.")
    dp_noise: float | None = _conditions(
        "σ: noise on uploads, in units of what one can bring in."
    )
    dp_delta: float | None = _conditions(
        "δ of the guarantee; else 1e-5.", above=0, below=1
    )
    compress_uploads: str | None = _conditions(
        "How uploads are compressed, with error feedback.", choices=COMPRESSORS
    )
    compress_gossip: str | None = _conditions(
        "How gossip is compressed, by CHOCO.", choices=COMPRESSORS
    )
    compress_ratio: float | None = _conditions(
        "Share of the numbers that top_k and random_k send.", above=0, at_most=1
    )
    bits: int | None = _conditions(
        "Bits of a number with qsgd, its sign among them.", at_least=2, at_most=16
    )
    gossip_step: float | None = _conditions("γ of CHOCO; else 0.3.")

    rounds: int = _run("Rounds, R.")
    eval_every: int = _run("Rounds between evaluations.")
    seed: int = _run("Seed of all but the data.", **_SEED)
    num_seeds: int = _run("Seeds that run in one program.", 1)
    out: str | None = _neutral("Folder of the run.")
    resume: bool = _neutral("Go on with a stopped run.", False)
    checkpoint_every: int = _neutral("Rounds between checkpoints.")
    init_from: str | None = _run("Folder of the run to start from.")
    live: bool = _neutral(
        "Rewrite report.html in the folder as the run goes on.", False
    )
    tracker: str = _neutral("Who is told how it goes.", "tensorboard", choices=TRACKERS)
    target: float | None = _run(
        "Accuracy to reach.", above=0, at_most=1, fix="0.78 is 78 %"
    )
    stop_at_target: bool = _run("Stop when it is reached.", False)
    consensus: bool = _run("Log the distance between all clients.", False)
    per_client: bool = _run("Log quantiles of the clients' accuracy and loss.", False)
    local_global: bool = _run("Log HA-Fed's f_local and f_global.", False)
    client_chunk: int | None = _run("Clients that run side by side; else by platform.")
    engine: str | None = _run(
        "How rounds are computed; else auto, by rule.", choices=ENGINES
    )
    wave_width: int | None = _run(
        "Gradients in a slot of engine span; else by platform."
    )
    cpu_devices: int | None = _run(
        "Devices that a CPU is split into; else one per core."
    )
    mesh: str | None = _neutral(
        "Devices that share clients and seeds, e.g. clients:8 or seeds:2,clients:4."
    )
    coordinator: str | None = _neutral("HOST:PORT of process 0 of several, or auto.")
    num_processes: int | None = _neutral("Processes of the run.")
    process_id: int | None = _neutral("Number of this one, from 0.", at_least=0)
    precision: str | None = _run(
        "Of matrix products; else JAX's.", choices=("default", "high", "highest")
    )
    dtype: str | None = _run(
        "Type that layers compute in; parameters stay float32.", choices=DTYPES
    )
    server_seconds: float = _run(
        "Of a message to or from the server, for hours.", 18.0, at_least=0
    )
    client_seconds: float = _run(
        "Of a message between clients, for hours.", 1.8, at_least=0
    )
    compile_cache: bool = _neutral("Keep compiled programs.", True)
    plugin: str | None = _neutral("Modules to import, which register what is your own.")

    #: What `afga_jax.run` was given and no other field can hold, in plain values by
    #: name; None: a command's run, which its fields describe in full.
    parts: Mapping[str, Any] | None = None

    def __init__(self, *, parts: Mapping[str, Any] | None = None, **values: Any):
        if isinstance(values.get("plugin"), str):
            plugins.load(values["plugin"])
        if "algo" in values:  # where it is not known, its options are not either
            checked(_fixed()["algo"], values["algo"], parts is None)
        checks.names(values, [field.name for field in fields()])
        object.__setattr__(self, "parts", parts)
        for field in fields():
            value = checked(field, values.get(field.name, field.default), parts is None)
            if value is not None or field.name in _fixed():
                object.__setattr__(self, field.name, value)
        kept = self.own_options()
        for name in kept:
            if name in _fixed():
                raise ValueError(
                    f"algo = {self.algo!r} has an option {name!r} of its own, but a "
                    "run has a setting of that name: rename the option."
                )
        # What belongs to other algorithms changes no number.
        for name in set(vars(self)) - {*_fixed(), "parts", *kept}:
            object.__delattr__(self, name)
        if self.active is not None and self.participation is not None:
            raise ValueError(
                f"active = {self.active} and participation = {self.participation}, but "
                "both set the number of active clients: leave one out."
            )
        if self.mesh is not None:
            meshes.parse(self.mesh)
        if self.stop_at_target and self.target is None:
            raise ValueError("stop_at_target needs a target: set target, e.g. 0.78.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self.to_dict()))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Own options that are not set, or those of a run of one's own."""
            parts = vars(self).get("parts") or {}
            if name in parts or name in own_options():
                return parts.get(name)
            raise AttributeError(f"a run has no {name!r}")

    def replace(self, **changes: Any) -> "Config":
        """A copy with other values."""
        return Config(**{**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """All values, as JSON has them; of own options those that are set.

        So it is the same, whatever else is registered.
        """
        own = set(vars(self)) & set(own_options())
        values = {name: vars(self)[name] for name in (*_fixed(), *sorted(own))}
        more = {} if self.parts is None else {"parts": dict(self.parts)}
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
        return plain | more

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
        return cls(**given)

    def own_options(self) -> list[str]:
        """Names of the options that its algorithm has beside the common ones.

        Those of a run of one's own are among its parts.
        """
        if self.parts is not None:
            return []
        given = {name: value for name, value in vars(self).items() if value is not None}
        return list(lookup(self.algo).own_options(given))


def fields(group: str | None = None) -> tuple[Field, ...]:
    """What is known of the fields, of one group or all.

    >>> [field.name for field in fields("topology")][:2]
    ['topology', 'topology_rho']
    """
    known = list(_fixed().values())
    for name, own in own_options().items():  # those that a flag can set
        if own.metadata["kind"] is not None and name not in _fixed():
            known.append(described_own(name, own))
    return tuple(field for field in known if group in (None, field.group))


def neutral() -> tuple[str, ...]:
    """Names of the fields that do not change a run's numbers."""
    return tuple(field.name for field in fields() if field.neutral)


def differences(first: Config, second: Config) -> dict[str, tuple[Any, Any]]:
    """Fields in which two runs differ, but for those that do not change the numbers.

    >>> differences(Config(seed=1, out="here"), Config(seed=2, out="there"))
    {'seed': (1, 2)}
    """
    pairs = {
        field.name: (getattr(first, field.name), getattr(second, field.name))
        for field in fields()
        if not field.neutral
    }
    own, other = first.parts or {}, second.parts or {}
    pairs |= {name: (own.get(name), other.get(name)) for name in {**own, **other}}
    return {name: (old, new) for name, (old, new) in pairs.items() if old != new}


@functools.cache
def _fixed() -> dict[str, Field]:
    """The fields of every run, whatever algorithms there are."""
    settings = [field for field in dataclasses.fields(Config) if field.metadata]
    return {field.name: described(field) for field in settings}
