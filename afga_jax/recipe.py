"""The values that a round works on: the recipe, the state, and what a client holds."""

from typing import NamedTuple

import optax
from flax import struct

from afga_jax.gossip.mixing import Mixing
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
      correction: What it adds to its gradient.
      mixing: Who mixes with whom, when.
      server: What is done with the mean change; None: no server, models persist.
      mix_first: x ← Wx + step instead of x ← W(x + step).
      weighting: Of the uploads of a cluster, `uniform` or by data `size`.
      cluster_weighting: Of the clusters' means, `uniform` or by clients, `size`.
      pooled: One client holds the data of all.
      full_batch: A step sees a client's whole data.
    """

    clustering: Clustering
    participation: Participation
    order: Order
    optimizer: LocalOptimizer
    correction: Correction
    mixing: Mixing
    server: optax.GradientTransformation | None
    mix_first: bool = False
    weighting: str = "uniform"
    cluster_weighting: str = "uniform"
    pooled: bool = False
    full_batch: bool = False


class Model(NamedTuple):
    """What a client holds and mixes.

    Attributes:
      params: Trained by gradients.
      stats: Model state that is not (BatchNorm statistics).
      shared: What the local optimizer declares mixed.
    """

    params: PyTree
    stats: PyTree
    shared: PyTree


class Memory(NamedTuple):
    """What a client keeps to itself.

    Attributes:
      optimizer: The local optimizer's state.
      control: The correction's vector, which outlives the round.
      steps: What the client has done in this round.
    """

    optimizer: PyTree
    control: PyTree
    steps: Steps


@struct.dataclass
class FederatedState:
    """What the next round needs.

    Attributes:
      round: Rounds done.
      params: The server's model; without a server, the mean of the clients'.
      stats: Its BatchNorm statistics.
      server: The server optimizer's state.
      control: The mean of the clients' controls.
      controls: Each client's control, `[N, ...]`.
      clients: Models and memories that persist, `[N, ...]`; () with a server.
      numbers: Learning rates and the like: traced, so that a sweep compiles once.
    """

    round: Array
    params: PyTree
    stats: PyTree
    server: PyTree
    control: PyTree
    controls: PyTree
    clients: PyTree
    numbers: dict[str, Array]


class RoundInfo(NamedTuple):
    """Diagnostics of a round; counts are summed over its cycles, norms averaged.

    Attributes:
      loss: Mean training loss over the needed gradients, before each step.
      metrics: The task's metrics, likewise.
      delta_norm: ‖Δ‖₂ of the mean change (without a server: of the mean model).
      spread: Weighted mean of ‖Δᵢ − Δ‖² over the uploads.
      gradients: Gradients that a deployment would compute.
      needed: Those of them that reach the server; only these are computed here.
      uploads: Changes uploaded.
      idle_uploads: Uploads that no gradient has reached: zero but for rounding.
    """

    loss: Array
    metrics: dict[str, Array]
    delta_norm: Array
    spread: Array
    gradients: Array
    needed: Array
    uploads: Array
    idle_uploads: Array
