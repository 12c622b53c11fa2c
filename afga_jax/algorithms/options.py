"""What can be chosen when an algorithm is built: for every algorithm, and its own."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

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

#: How a field may be bounded, as `checks.number` and `checks.integer` take it.
BOUNDS = ("above", "at_least", "below", "at_most", "fix")
_KINDS = (float, bool, int, str)  # a bool is an int, too


def option(
    default: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    fix: str = "",
    choices: Sequence[str] = (),
    kind: type | None = None,
    per_client: bool = False,
    traced: bool | None = None,
    algorithm: bool = False,
    help: str = "",
) -> Any:
    """An option of an algorithm's own, for `afga_jax.algorithm`.

    It is checked when the algorithm is built. Plain ones (numbers, words, true or
    false) are also flags of the commands and part of a run's record.

    Args:
      default: Its value where the user gives none; None: the recipe decides.
      above: A number must be larger.
      at_least: A number must be as large; whole numbers are at least 1 if this is not
        given.
      below: A number must be smaller.
      at_most: A number must not be larger.
      fix: What an error suggests, a few words.
      choices: The words that it may be; empty: any.
      kind: `float`, `int`, `bool` or `str`; None: the default's. What has none of these
        kinds is not checked and has no flag.
      per_client: Whether a number may be an array with one for each client, `[N]`.
      traced: Whether another value does not compile again, and schedules are allowed.
        None: all `float` are. False, where it decides a shape or who takes part.
      algorithm: Whether it names another algorithm, whose own options are then options
        of this one as well.
      help: What it is, one sentence.

    >>> share = option(0.1, above=0, at_most=1, help="Share of the numbers sent.")
    >>> share.default, share.metadata["kind"], share.metadata["traced"]
    (0.1, <class 'float'>, True)
    """
    if type(default).__hash__ is None:
        raise ValueError(
            f"default = {default!r}, but what a default is must not change: take a "
            "tuple, or None."
        )
    if kind is None:
        kind = next((kind for kind in _KINDS if isinstance(default, kind)), None)
    limits = {"above": above, "at_least": at_least, "below": below, "at_most": at_most}
    about: dict[str, Any] = {k: v for k, v in limits.items() if v is not None}
    about |= {"fix": fix} if fix else {}
    about |= {"choices": tuple(choices)} if choices else {}
    about |= {"kind": kind, "traced": kind is float if traced is None else traced}
    about |= {"per_client": per_client, "algorithm": algorithm, "help": help}
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Options:
    """Choices with a default that every algorithm has; None: the algorithm decides.

    Numbers may also be schedules, functions of the round. They are traced: another
    value does not compile again. Those of a client's step (`local_lr`, `momentum`,
    `weight_decay`) may be arrays with one number for each client, `[N]`. What belongs
    to one algorithm is declared with it (`afga_jax.algorithm`) and stands beside these.

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
      mix_times: Q: they then mix so many times in a row, by W^Q.
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
      weighting: How uploads are weighted: `uniform` or by data `size`.
      cluster_weighting: How clusters are weighted: `uniform` or by number of clients,
        `size`.
      broadcast: Who gets the server's new model: `all`; the `sampled`, those that
        uploaded, while the others go on with their own; or all in the `clusters` that
        an upload came from.
      full_batch: Whether a local step sees the client's whole data.
      faults: Which clients, links and uploads fail, `afga_jax.Faults`; None: nothing
        does.
    """

    num_clients: int = option(dataclasses.MISSING, kind=int)
    active: int | None = option(None, kind=int, fix="sample at least one client")
    participation: float = option(0.1, above=0, at_most=1, traced=False)
    num_clusters: int = option(1)
    clustering: str | Sequence | Clustering = "equal"
    clustering_seed: int = option(0, at_least=0, at_most=2**31 - 1)
    local_steps: int = option(24, at_most=MAX_STEPS, fix="take at least one local step")
    client_steps: Sequence[int] | None = None
    resample: bool | None = option(None, kind=bool)
    topology: Any = None
    adapted: str | None = option(None, kind=str, choices=("per_step", "per_round"))
    mixing_order: str | None = option(None, kind=str, choices=("after", "before"))
    mix_every: int = option(1)
    mix_times: int = option(1)
    local_optimizer: Any = None
    local_lr: float = option(0.1, per_client=True, at_least=0)
    momentum: float = option(0.5, per_client=True, at_least=0, below=1)
    weight_decay: float = option(0.0, per_client=True, at_least=0)
    server_optimizer: optax.GradientTransformation | None = None
    aggregator: Aggregator | None = None
    attack: Attack | None = None
    gossip_defence: Defence | None = None
    contain: bool | None = option(None, kind=bool)
    dp_clip: float | None = option(None, kind=float, above=0, traced=False)
    dp_noise: float | None = option(None, kind=float, above=0, traced=False)
    compress_uploads: Compressor | None = None
    compress_gossip: Compressor | None = None
    gossip_step: float | None = option(
        None, kind=float, above=0, at_most=1, traced=False
    )
    server_lr: float = option(1.0, at_least=0)
    eps: float = option(1e-8, above=0, fix="the papers sweep 1e-10 ... 1e-4")
    b1: float = option(0.9, at_least=0, below=1)
    b2: float = option(0.99, at_least=0, below=1)
    weighting: str | None = option(None, kind=str, choices=("uniform", "size"))
    cluster_weighting: str = option("uniform", choices=("uniform", "size"))
    broadcast: str = option("all", choices=("all", "sampled", "clusters"))
    full_batch: bool = option(False)
    faults: Faults | None = None

    def __post_init__(self):
        for known in dataclasses.fields(self):
            value = getattr(self, known.name)
            _check_shape(self.num_clients, known, value)
            _check(known, value)
        if self.client_steps is not None:
            _check_client_steps(self)
        if not isinstance(self.faults, Faults | None):
            raise ValueError(
                f"faults = {self.faults!r}, but it must be a Faults or None: for "
                "example afga_jax.Faults(link_failure=0.1)."
            )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """An option of an algorithm's own."""

    def replace(self, **changes: Any) -> Self:
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


COMMON = tuple(known.name for known in dataclasses.fields(Options))


def numbers(options: Options | type[Options]) -> tuple[str, ...]:
    """Names of the traced numbers among the options."""
    known = dataclasses.fields(options)
    return tuple(field.name for field in known if field.metadata.get("traced"))


def options_class(name: str, own: Mapping[str, dataclasses.Field]) -> type[Options]:
    """`Options` with further ones.

    Args:
      name: The algorithm's name.
      own: Declarations by name, from `option`.
    """
    if not own:
        return Options
    declared = [
        (key, Any, field(default=one.default, metadata=one.metadata))
        for key, one in own.items()
    ]
    return dataclasses.make_dataclass(
        f"{name}_options", declared, bases=(Options,), frozen=True
    )


def _check(known: dataclasses.Field, value: Any) -> None:
    name, kind = known.name, known.metadata.get("kind")
    bounds = {key: known.metadata[key] for key in BOUNDS if key in known.metadata}
    if kind is None or (value is None and known.default is None):
        return
    if kind is int:
        checks.integer(name, value, **bounds)
    elif kind is float:
        if value is None or isinstance(value, str | bool):
            raise ValueError(f"{name} = {value!r}, but it must be a number.")
        checks.number(name, value, **bounds)
    elif kind is bool:
        checks.boolean(name, value)
    elif "choices" in known.metadata:
        checks.choice(name, value, known.metadata["choices"])
    elif not (isinstance(value, str) or known.metadata.get("algorithm")):
        raise ValueError(f"{name} = {value!r}, but it must be a word.")


def _check_shape(num_clients: int, known: dataclasses.Field, value: Any) -> None:
    """A number may be an array only if it is a client's, and then one for each."""
    name = known.name
    if not known.metadata.get("traced") or callable(value) or not np.ndim(value):
        return
    if not known.metadata.get("per_client"):
        raise ValueError(
            f"{name} has shape {np.shape(value)}, but it is one number for all: only "
            "numbers of a client's step, such as local_lr, may be given for each."
        )
    if np.shape(value) != (num_clients,):
        raise ValueError(
            f"{name} has shape {np.shape(value)}, but num_clients = {num_clients}: "
            "give one number, or one for each client."
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
