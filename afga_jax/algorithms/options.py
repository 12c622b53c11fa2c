"""What can be chosen when an algorithm is built; the same names for every algorithm."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optax

from afga_jax import checks
from afga_jax.gossip.robust import Defence
from afga_jax.keys import MAX_STEPS
from afga_jax.optimizers.aggregators import Aggregator
from afga_jax.optimizers.attacks import Attack
from afga_jax.optimizers.compressors import Compressor
from afga_jax.population import clustering as clusterings
from afga_jax.population.clustering import Clustering
from afga_jax.population.faults import Faults


def _number(default: float, **bounds) -> Any:
    return field(default=default, metadata={"number": True, **bounds})


def _whole(default: Any, **bounds) -> Any:
    return field(default=default, metadata={"whole": True, **bounds})


def _one_of(default: Any, *options: str) -> Any:
    return field(default=default, metadata={"options": options})


@dataclass(frozen=True)
class Options:
    """Choices with a default; None means that the algorithm decides.

    Numbers may also be schedules, functions of the round. They are traced: another
    value does not compile again. Those of a client's step (`local_lr`, `momentum`,
    `weight_decay`, `mu`) may be arrays with one number for each client, `[N]`.

    Attributes:
      num_clients: N, the number of clients.
      active: M, the number of clients of all clusters that compute at a step and upload
        in a round.
      participation: M/N, if `active` is not given; rounded in each cluster.
      num_clusters: K, the number of clusters.
      clustering: Who belongs together: `equal` (random), one label per client, or a
        `Clustering`.
      clustering_seed: Seed of the equal clustering.
      local_steps: 𝓘 (τ, E), the number of local steps in a round.
      client_steps: τᵢ, one for each client and at most `local_steps`: it computes only
        in the first τᵢ steps of a round; None: in all.
      resample: Whether new clients compute at every step.
      topology: A name of `kernels.KERNELS` (such as `ring`, `torus`, `complete`) or of
        `sequences.SEQUENCES` (such as `matchings`), `none`, a matrix, a networkx graph,
        a function of the number of clients, a list of one per cluster, or a `Mixing`.
      adapted: Mix only among the clients that compute: a new ring `per_step` over those
        of the step, or `per_round` over those of the round.
      mixing_order: `after` the step, W(x + step), or `before`, Wx + step.
      mix_every: q: clients mix only after every q-th local step.
      active_prob: p_c, the probability with which a client computes in HA-Fed's
        partial-active variant.
      pga_period: H, the number of steps from one exact average of PGA to the next;
        None: `local_steps`.
      local_optimizer: `sgd`, `momentum`, `adam`, an optax transformation, or a function
        from the learning rate to one.
      local_lr: η_l, the clients' learning rate.
      momentum: Decay of the local optimizer `momentum`.
      weight_decay: L2 penalty that named local optimizers add to the gradient.
      server_optimizer: Any optax optimizer, such as `optax.adam(1e-2)`, in place of the
        algorithm's own; it is given the pseudo-gradient −Δ.
      aggregator: How uploaded deltas become one, an `Aggregator`, in place of the
        algorithm's own; see `afga_jax.aggregators`.
      attack: What some clients do in place of what they should, an `Attack`; see
        `afga_jax.attacks`.
      gossip_defence: How a client joins what its neighbours send, a `robust.Defence`;
        None: by the topology's weights.
      contain: Whether uploads that are not finite are left out; None: where there is an
        attack.
      compress_uploads: How uploads are compressed, with error feedback, a `Compressor`;
        see `afga_jax.compressors`.
      compress_gossip: How gossip is compressed, by CHOCO, a `Compressor`.
      gossip_step: γ of CHOCO, the share of the way to its neighbours that a client
        goes; None: 0.3.
      dp_clip: C, the norm that uploads are clipped to before noise is added.
      dp_noise: σ, the noise on the mean of uploads, in units of the most that one can
        bring in; see `afga_jax.training.privacy` for what it says.
      server_lr: η, the server's learning rate.
      eps: ε of an adaptive server (τ of FedAdam and its like).
      b1: β₁, decay of the first moment.
      b2: β₂, decay of the second moment.
      b3: β₃ of DAdam, decay of the maximum.
      mu: μ of FedProx, the weight of its proximal term.
      feddyn_alpha: α of FedDyn, the weight of its regularisation.
      weighting: How uploads are weighted: `uniform` or by data `size`.
      cluster_weighting: How clusters are weighted: `uniform` or by number of clients,
        `size`.
      inner: The algorithm inside FedCluster's cycle.
      shuffle: Whether FedCluster takes its clusters in a new order in each round.
      full_batch: Whether a local step sees the client's whole data.
      faults: Which clients, links and uploads fail, `afga_jax.Faults`; None: nothing
        does.
    """

    num_clients: int = _whole(dataclasses.MISSING)
    active: int | None = _whole(None, fix="sample at least one client")
    participation: float = field(default=0.1, metadata={"above": 0, "at_most": 1})
    num_clusters: int = _whole(1)
    clustering: str | Sequence | Clustering = "equal"
    clustering_seed: int = _whole(0, at_least=0, at_most=2**31 - 1)
    local_steps: int = _whole(24, at_most=MAX_STEPS, fix="take at least one local step")
    client_steps: Sequence[int] | None = None
    resample: bool | None = None
    topology: Any = None
    adapted: str | None = _one_of(None, "per_step", "per_round")
    mixing_order: str | None = _one_of(None, "after", "before")
    mix_every: int = _whole(1)
    active_prob: float = _number(0.5, above=0, at_most=1)
    pga_period: int | None = _whole(None)
    local_optimizer: Any = None
    local_lr: float = _number(0.1, per_client=True, at_least=0)
    momentum: float = _number(0.5, per_client=True, at_least=0, below=1)
    weight_decay: float = _number(0.0, per_client=True, at_least=0)
    server_optimizer: optax.GradientTransformation | None = None
    aggregator: Aggregator | None = None
    attack: Attack | None = None
    gossip_defence: Defence | None = None
    contain: bool | None = None
    dp_clip: float | None = field(default=None, metadata={"above": 0})
    dp_noise: float | None = field(default=None, metadata={"above": 0})
    compress_uploads: Compressor | None = None
    compress_gossip: Compressor | None = None
    gossip_step: float | None = field(default=None, metadata={"above": 0, "at_most": 1})
    server_lr: float = _number(1.0, at_least=0)
    eps: float = _number(1e-8, above=0, fix="the papers sweep 1e-10 ... 1e-4")
    b1: float = _number(0.9, at_least=0, below=1)
    b2: float = _number(0.99, at_least=0, below=1)
    b3: float = _number(0.0, at_least=0, below=1)
    mu: float = _number(0.01, per_client=True, at_least=0, fix="0 is FedAvg")
    feddyn_alpha: float = _number(0.01, above=0, fix="its limit is FedAvg")
    weighting: str | None = _one_of(None, "uniform", "size")
    cluster_weighting: str = _one_of("uniform", "uniform", "size")
    inner: str | Callable = "fedavg"
    shuffle: bool = True
    full_batch: bool = False
    faults: Faults | None = None

    def __post_init__(self):
        for option in dataclasses.fields(self):
            value, about = getattr(self, option.name), dict(option.metadata)
            _check_shape(self, option.name, value, about.pop("per_client", False))
            _check(option.name, value, about)
        if self.client_steps is not None:
            _check_client_steps(self)
        if not isinstance(self.faults, Faults | None):
            raise ValueError(
                f"faults = {self.faults!r}, but it must be a Faults or None: for "
                "example afga_jax.Faults(link_failure=0.1)."
            )

    def replace(self, **changes: Any) -> "Options":
        """A copy with other values."""
        return dataclasses.replace(self, **changes)

    def clusters(self) -> Clustering:
        """The clustering that is meant."""
        given = self.clustering
        if isinstance(given, str):
            checks.choice("clustering", given, ("equal",))
            given = clusterings.equal(
                self.num_clients, self.num_clusters, seed=self.clustering_seed
            )
        elif not isinstance(given, Clustering):
            given = clusterings.from_labels(given)
        if given.num_clients != self.num_clients:
            raise ValueError(
                f"clustering is of {given.num_clients} clients, but num_clients = "
                f"{self.num_clients}: give one label for each client."
            )
        return given

    def chosen(self, clustering: Clustering) -> np.ndarray:
        """m: how many are sampled from each cluster, `[K]`."""
        sizes, clusters = clustering.sizes, clustering.num_clusters
        if self.active is None:
            chosen = np.rint(self.participation * sizes).astype(int)
            if (chosen < 1).any():
                raise ValueError(
                    f"participation = {self.participation} samples 0 clients of a "
                    f"cluster of {sizes[np.argmin(chosen)]}, but it must be >= 1: "
                    "raise participation, or lower num_clusters."
                )
            return chosen
        if self.active > self.num_clients:
            raise ValueError(
                f"active = {self.active}, but it must be <= num_clients = "
                f"{self.num_clients}: lower active."
            )
        if self.active % clusters:
            raise ValueError(
                f"active = {self.active} is not divisible by num_clusters = "
                f"{clusters}, but the same number, at least 1, is sampled from each: "
                f"take active = {clusters * max(1, round(self.active / clusters))}, or "
                "set participation."
            )
        chosen = np.full(clusters, self.active // clusters)
        if (chosen > sizes).any():
            raise ValueError(
                f"active = {self.active} samples {chosen[0]} from each cluster, but "
                f"the smallest has {sizes.min()} clients: lower active, or set "
                "participation."
            )
        return chosen


NUMBERS = tuple(
    option.name
    for option in dataclasses.fields(Options)
    if option.metadata.get("number")
)


def make_options(defaults: dict[str, Any], given: dict[str, Any]) -> Options:
    """Options from an algorithm's defaults and a user's choices."""
    known = [option.name for option in dataclasses.fields(Options)]
    checks.names(given, known, "option")
    return Options(**{**defaults, **given})


def _check(name: str, value: Any, metadata: dict[str, Any]) -> None:
    metadata.pop("number", None)
    if metadata.pop("whole", False):
        if value is not None:
            checks.integer(name, value, **metadata)
    elif "options" in metadata:
        if value is not None:
            checks.choice(name, value, metadata["options"])
    elif metadata:
        checks.number(name, value, **metadata)


def _check_shape(options: Options, name: str, value: Any, per_client: bool) -> None:
    """A number may be an array only if it is a client's, and then one for each."""
    if name not in NUMBERS or callable(value) or not np.ndim(value):
        return
    if not per_client:
        raise ValueError(
            f"{name} has shape {np.shape(value)}, but it is one number for all: only "
            "numbers of a client's step, such as local_lr, may be given for each."
        )
    if np.shape(value) != (options.num_clients,):
        raise ValueError(
            f"{name} has shape {np.shape(value)}, but num_clients = "
            f"{options.num_clients}: give one number, or one for each client."
        )


def _check_client_steps(options: Options) -> None:
    given = np.asarray(options.client_steps)
    if given.shape != (options.num_clients,):
        raise ValueError(
            f"client_steps has shape {given.shape}, but num_clients = "
            f"{options.num_clients}: give one number for each client."
        )
    if not np.issubdtype(given.dtype, np.integer):
        raise ValueError(
            f"client_steps is of type {given.dtype}, but steps are whole numbers: "
            "round them, for example np.ceil(steps).astype(int)."
        )
    wrong = (given < 1) | (given > options.local_steps)
    if wrong.any():
        client = int(np.argmax(wrong))
        raise ValueError(
            f"client_steps[{client}] = {given[client]}, but it must be >= 1 and <= "
            f"local_steps = {options.local_steps}: set local_steps to the largest."
        )
