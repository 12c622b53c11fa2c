"""The values that a round works on: the recipe, the state, and what a client holds."""

from typing import NamedTuple

import optax
from flax import struct

from afga_jax.gossip.base import Mixing
from afga_jax.optimizers import aggregators
from afga_jax.optimizers.aggregators import Aggregator, AggregatorState
from afga_jax.optimizers.attacks import Attack
from afga_jax.optimizers.client import LocalOptimizer
from afga_jax.optimizers.corrections import Correction, Steps
from afga_jax.population.clustering import Clustering
from afga_jax.population.sampling import Order, Participation
from afga_jax.typing import Array, PyTree


class Recipe(NamedTuple):
    """An algorithm: a row of choices.

    Attributes:
      clustering: Who belongs together.
      participation: Who computes at each local step and who uploads.
      order: Which clusters take part in which cycle.
      optimizer: How a client steps.
      correction: What a client adds to its gradient.
      mixing: Who mixes with whom, when.
      server: The server's optimizer, which is given the pseudo-gradient −Δ; None: there
        is no server, and models persist.
      aggregator: How the uploaded deltas become one, Δ.
      broadcast: Who gets the server's new model: `all`, so that everybody starts a
        round from it; only the `sampled`, those that uploaded; or the `clusters`, all
        clients of those from which an upload came.
      keep_optimizer: Whether a client's local optimizer keeps its state from round to
        round; otherwise it starts anew in each.
      mix_first: Whether x ← Wx + step instead of x ← W(x + step).
      weighting: How uploads of a cluster are weighted, `uniform` or by data `size`.
      cluster_weighting: How clusters are weighted, `uniform` or by number of clients,
        `size`.
      pooled: Whether one client holds the data of all.
      full_batch: Whether a step sees a client's whole data.
      attack: What liars do; None: everybody is honest.
      contain: Whether uploads that are not finite are left out.
    """

    clustering: Clustering
    participation: Participation
    order: Order
    optimizer: LocalOptimizer
    correction: Correction
    mixing: Mixing
    server: optax.GradientTransformation | None
    aggregator: Aggregator = aggregators.mean()
    broadcast: str = "all"
    keep_optimizer: bool = False
    mix_first: bool = False
    weighting: str = "uniform"
    cluster_weighting: str = "uniform"
    pooled: bool = False
    full_batch: bool = False
    attack: Attack | None = None
    contain: bool = False

    @property
    def models_persist(self) -> bool:
        """Whether clients start a round from models of their own."""
        return self.server is None or self.broadcast != "all"


class Model(NamedTuple):
    """What a client holds and mixes.

    Attributes:
      params: Parameters, which gradients train.
      stats: Model state that gradients do not train (BatchNorm statistics).
      shared: The part of the local optimizer's state that is mixed.
    """

    params: PyTree
    stats: PyTree
    shared: PyTree


class Memory(NamedTuple):
    """What a client keeps to itself.

    Attributes:
      optimizer: The local optimizer's state; it outlives the round where the recipe
        says so.
      control: The correction's vector, which outlives the round.
      steps: What the client has done in this round.
      public: What its neighbours know of its model, as one vector, where mixing
        remembers that; () otherwise.
    """

    optimizer: PyTree
    control: PyTree
    steps: Steps
    public: PyTree = ()


@struct.dataclass
class FederatedState:
    """What the next round needs.

    Attributes:
      round: Rounds done.
      params: The server's model; without a server, the mean of the clients'.
      stats: BatchNorm statistics of the server's model.
      server: The server optimizer's state.
      control: The mean of the clients' controls.
      controls: Each client's control, `[N, ...]`.
      optimizers: Each client's local optimizer state, `[N, ...]`, where the recipe
        keeps it; () otherwise.
      aggregator: What the aggregator remembers; its clients' part is `[N, ...]`.
      clients: Models and memories that persist, `[N, ...]`; with a server whose model
        not everybody gets, models alone; () where everybody does.
      numbers: Learning rates and the like: traced, so that a sweep compiles once. A
        number for each client is `[N]`.
    """

    round: Array
    params: PyTree
    stats: PyTree
    server: PyTree
    control: PyTree
    controls: PyTree
    optimizers: PyTree
    aggregator: AggregatorState
    clients: PyTree
    numbers: dict[str, Array]


class RoundInfo(NamedTuple):
    """Diagnostics of a round; counts are summed over its cycles, norms averaged.

    Attributes:
      loss: Mean training loss over the needed gradients, before each step.
      metrics: The task's metrics, likewise.
      delta_norm: ‖Δ‖₂ of the aggregated delta; without a server, of the mean model's.
      spread: Weighted mean of ‖Δᵢ − Δ‖² over the uploads.
      gradients: Number of gradients that a deployment would compute.
      needed: Number of those that reach the server; only these are computed here.
      uploads: Number of deltas that were uploaded.
      idle_uploads: Number of uploads that no gradient has reached: zero but for
        rounding.
      aggregation: What the aggregator says of the round, by name.
      faults: What faults took of the round, as `sampling.Toll` counts it: `away`,
        `invited` and `lost`; empty where nothing can fail.
      contained: Ids of the clients whose uploads were not finite and left out; the
        number of clients stands for nobody. () where the recipe does not contain them.
      receivers: Number of clients that got the server's new model; () where a round
        begins with it for everybody, and without a server.
    """

    loss: Array
    metrics: dict[str, Array]
    delta_norm: Array
    spread: Array
    gradients: Array
    needed: Array
    uploads: Array
    idle_uploads: Array
    aggregation: dict[str, Array]
    faults: dict[str, Array]
    contained: PyTree = ()
    receivers: PyTree = ()
