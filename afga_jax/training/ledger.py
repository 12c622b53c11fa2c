"""What a round costs: messages, bytes and simulated hours.

Counted from the recipe, so an algorithm of your own has a ledger too:

- The server sends x_r to the clients that upload, who pass it on to the others that
  hold a model over local links (AFGA, Algorithm 1, line 4): the *broadcast*, counted
  apart. Without mixing there are no local links, and the server serves all of them.
- A mixing step sends one message for each weight Wᵢⱼ ≠ 0, i ≠ j: the model, its
  BatchNorm statistics, and what the local optimizer shares (D-AMSGrad's ũ).
- SCAFFOLD's control variates travel beside the model, both ways. FedDyn's do not: the
  server knows them from the models.

Hours follow from two link costs. Server messages wait for each other, clusters and
clients mix side by side, cycles come one after another:

    hours = factor·(server messages·server_seconds
                    + (Σ over mixing steps of the largest degree)·client_seconds)/3600

AFGA's Table 7 fits this with 18 s, 1.8 s, no broadcast, and `factor` = 10, for which
the paper gives no reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from afga_jax import checks, traffic
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.memory import bytes_of
from afga_jax.mixing import AmongSelected, NoMixing, WithinClusters
from afga_jax.participation import Plan
from afga_jax.recipe import FederatedState, Model, Recipe, RoundInfo
from afga_jax.traffic import Schedule, Traffic
from afga_jax.typing import PyTree


@dataclass(frozen=True)
class Links:
    """What a message costs.

    Attributes:
      server_seconds: Between a client and the server; 18 in AFGA, §6.
      client_seconds: Between two clients; 1.8 there.
      broadcast: Count the passing on of x_r; AFGA's Table 7 leaves it out.
      factor: Of the hours; 10 gives those of Table 7.
    """

    server_seconds: float = 18.0
    client_seconds: float = 1.8
    broadcast: bool = True
    factor: float = 1.0

    def __post_init__(self):
        for name in ("server_seconds", "client_seconds", "factor"):
            checks.number(name, getattr(self, name), at_least=0)


@dataclass(frozen=True)
class Costs:
    """The price list of one algorithm; see `costs`.

    Attributes:
      links: What a message costs.
      upload_size: Bytes of one upload.
      download_size: Bytes of one download, or of passing it on.
      gossip_size: Bytes of one gossip message.
      needs_plan: `per_round` must be given the round's plan, because who mixes is
        drawn.
    """

    links: Links
    upload_size: int
    download_size: int
    gossip_size: int
    needs_plan: bool
    _turns: "_Turns"
    _gossip: Schedule

    def per_round(
        self, info: RoundInfo, round: int, plan: Plan | None = None
    ) -> dict[str, Any]:
        """What one round sends and how long that takes.

        Args:
          info: Of that round, on the host; its `uploads` are read.
          round: Counts from 0.
          plan: Of that round; only if `needs_plan`.
        """
        if self.needs_plan and plan is None:
            raise ValueError(
                "plan = None, but who mixes is drawn anew in each round here: pass "
                "plan=algorithm.plan(key, round)."
            )
        uploads = int(info.uploads) if self._turns.served else 0
        downloads, passed_on = self._turns.start(uploads, self.links.broadcast)
        steps = [self._gossip(round, t, plan) for t in range(self._turns.steps)]
        messages = sum(step.messages for step in steps)
        serial = sum(step.serial for step in steps) + passed_on.serial
        sizes = {
            "upload_bytes": uploads * self.upload_size,
            "download_bytes": downloads * self.download_size,
            "broadcast_bytes": passed_on.messages * self.download_size,
            "gossip_bytes": messages * self.gossip_size,
        }
        seconds = (uploads + downloads) * self.links.server_seconds
        seconds += serial * self.links.client_seconds
        return {
            "server_uploads": uploads,
            "server_downloads": downloads,
            "broadcasts": passed_on.messages,
            "gossip_messages": messages,
            **sizes,
            "bytes": sum(sizes.values()),
            "hours": self.links.factor * seconds / 3600,
        }


def costs(
    algorithm: FederatedAlgorithm, state: FederatedState, links: Links | None = None
) -> Costs:
    """The price list of an algorithm.

    Args:
      algorithm: From `build`.
      state: For the sizes of what is sent; shapes are enough,
        `jax.eval_shape(algorithm.init, key)`.
      links: What a message costs.

    Returns:
      Its `per_round` takes microseconds and builds no array of clients by clients,
      except for mixing that is given by matrices.
    """
    recipe = algorithm.recipe
    turns = _turns(algorithm)
    gossip, needs_plan = traffic.of_mixing(
        recipe.mixing,
        clusters=turns.clusters,
        active=turns.active,
        steps=turns.steps,
        num_clients=recipe.clustering.num_clients,
    )
    _, shared = jax.eval_shape(recipe.optimizer.init, state.params)
    model = bytes_of((state.params, state.stats))
    control = bytes_of(state.control)
    return Costs(
        links=links or Links(),
        upload_size=model + control * _sends_control(recipe, state),
        download_size=model + control * _reads_mean_control(recipe, state),
        gossip_size=bytes_of(Model(state.params, state.stats, shared)),
        needs_plan=needs_plan,
        _turns=turns,
        _gossip=gossip,
    )


class _Turns(NamedTuple):
    """Who starts, uploads and steps; arrays are `[cycles, groups]`."""

    clusters: np.ndarray
    holders: np.ndarray
    uploads: np.ndarray
    active: int | None  # in each group and step; None: drawn, or not the same
    steps: int
    served: bool
    relayed: bool

    def start(self, uploads: int, broadcast: bool) -> tuple[int, Traffic]:
        """Downloads from the server, and what is then passed on."""
        holders = int(self.holders.sum())
        if not self.served:
            return 0, Traffic()
        if not self.relayed:
            return holders, Traffic()
        if not broadcast:
            return uploads, Traffic()
        # Those who upload share the work of their cluster.
        rest = np.maximum(self.holders - self.uploads, 0)
        waits = -(-rest // np.maximum(self.uploads, 1))
        return uploads, Traffic(max(holders - uploads, 0), int(waits.max(1).sum()))


def _turns(algorithm: FederatedAlgorithm) -> _Turns:
    """From the plan of round 0: in all rounds the same clusters take part."""
    recipe, key = algorithm.recipe, jax.random.key(0)
    plan = jax.eval_shape(algorithm.plan, key, 0)
    clusters = np.asarray(recipe.order(key, 0))
    part = plan.cycles
    mixing = traffic.innermost(recipe.mixing)
    if part.upload_count is None:
        uploads = np.full(clusters.shape, part.upload.shape[-1])
    else:
        uploads = np.asarray(algorithm.plan(key, 0).cycles.upload_count)
    holders = recipe.clustering.sizes[clusters]
    if isinstance(mixing, NoMixing | AmongSelected):
        if part.members is not None:
            holders = uploads
    elif not isinstance(mixing, WithinClusters):
        # Everybody holds a model; those outside the cycle's clusters come on top.
        holders[:, 0] += recipe.clustering.num_clients - holders.sum(1)
    return _Turns(
        clusters=clusters,
        holders=holders,
        uploads=uploads,
        active=None if part.active_count is not None else part.active.shape[-1],
        steps=part.active.shape[1],
        served=recipe.server is not None and not recipe.pooled,
        relayed=not isinstance(mixing, NoMixing),
    )


def _sends_control(recipe: Recipe, state: FederatedState) -> bool:
    """Whether a new control needs what only the client knows: what it did."""
    steps = jax.eval_shape(recipe.correction.begin, state.params)
    own = (state.control, steps, state.params, state.params)
    return _reads(recipe.correction.finish, own, 1)


def _reads_mean_control(recipe: Recipe, state: FederatedState) -> bool:
    params, control = state.params, state.control
    given = (params, params, params, control, control)
    return _reads(recipe.correction.gradient, given, 4)


def _reads(function: Callable, arguments: Sequence[PyTree], position: int) -> bool:
    """Whether a function looks at one of its arguments."""
    flat = [len(jax.tree.leaves(argument)) for argument in arguments]
    first = sum(flat[:position])
    program = jax.make_jaxpr(function)(*arguments).jaxpr
    asked = program.invars[first : first + flat[position]]
    read = {id(v) for equation in program.eqns for v in equation.invars}
    read |= {id(v) for v in program.outvars}
    return any(id(v) in read for v in asked)
