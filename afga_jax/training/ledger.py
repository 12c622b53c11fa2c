"""What a round costs: messages, bytes and simulated hours.

Counted from the recipe, so an algorithm of your own has a ledger too:

- The server sends x_r to the clients that upload, who pass it on to the others that
  hold a model over local links (AFGA, Algorithm 1, line 4): the *broadcast*, counted
  apart. Without mixing there are no local links, and the server serves all of them.
- Where only some get its model (`broadcast`), it is sent when it is new: to those that
  uploaded, and with `clusters` passed on in the same way.
- A mixing step sends one message for each weight Wᵢⱼ ≠ 0, i ≠ j: the model, its
  BatchNorm statistics, and what the local optimizer shares (D-AMSGrad's ũ).
- An aggregator may say that uploads are smaller than the parameters, a mixing that
  messages are (compression).
- Where things fail (`afga_jax.Faults`) what was sent counts: an upload that is lost on
  its way, no message over a link that is down, and x_r only to who is there.
- SCAFFOLD's control variates travel beside the model, both ways. FedDyn's do not: the
  server knows them from the models.

Hours follow from two link costs. Server messages wait for each other, clusters and
clients mix side by side, cycles come one after another:

    hours = factor·(server messages·server_seconds
                    + (Σ over mixing steps of the largest degree)·client_seconds)/3600

AFGA's Table 7 fits this with 18 s, 1.8 s, no broadcast, and `factor` = 10, for which
the paper gives no reason.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from afga_jax import checks
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.gossip.base import Mixing
from afga_jax.gossip.messages import StepMessages, Traffic
from afga_jax.population.faults import planned
from afga_jax.population.sampling import Participants, Plan, make_plan
from afga_jax.recipe import FederatedState, Model, Recipe, RoundInfo
from afga_jax.rounds.broadcast import receivers
from afga_jax.training.memory import bytes_of
from afga_jax.typing import PyTree


@dataclass(frozen=True)
class Links:
    """What a message costs.

    Attributes:
      server_seconds: Seconds of a message between a client and the server; 18 in AFGA,
        §6.
      client_seconds: Seconds of a message between two clients; 1.8 there.
      broadcast: Whether the passing on of x_r counts; AFGA's Table 7 leaves it out.
      factor: Factor of the hours; 10 gives those of Table 7.
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
      needs_plan: Whether `per_round` must be given the round's plan, because who mixes
        is drawn.
    """

    links: Links
    upload_size: int
    download_size: int
    gossip_size: int
    needs_plan: bool
    _start: "_Start"
    _gossip: StepMessages
    _participants: Participants

    def per_round(
        self, info: RoundInfo, round: int, plan: Plan | None = None
    ) -> dict[str, Any]:
        """What one round sends and how long that takes.

        Args:
          info: The round's diagnostics, on the host; its `uploads`, `faults` and
            `receivers` are read.
          round: Number of the round, from 0.
          plan: The round's plan; only if `needs_plan`.
        """
        if self.needs_plan and plan is None:
            raise ValueError(
                "plan = None, but who mixes is drawn anew in each round here: pass "
                "plan=algorithm.plan(key, round)."
            )
        uploads = int(info.uploads) if self._start.served else 0
        toll = {name: int(count) for name, count in info.faults.items()}
        if self._start.broadcast == "all":
            invited = toll.get("invited", uploads)
            holders = int(self._start.holders.sum()) - toll.get("away", 0)
        else:
            invited, holders = uploads, int(info.receivers)
        downloads, passed_on = self._start.sent(invited, holders, self.links.broadcast)
        uploads += toll.get("lost", 0) if self._start.served else 0
        steps = [
            self._gossip.at(round, t, plan) for t in range(self._participants.steps)
        ]
        messages = sum(step.messages for step in steps)
        serial = sum(step.serial for step in steps) + passed_on.serial
        return self._spent(uploads, downloads, passed_on.messages, messages, serial)

    def with_mixing(self, mixing: Mixing) -> "Costs":
        """The price list where clients mix otherwise, with messages of the same size.

        Args:
          mixing: A mixing of the same clients and clusters.
        """
        gossip = mixing.messages(self._participants)
        holders = mixing.holders(self._participants)
        start = self._start._replace(holders=holders, mixes=mixing.mixes)
        return dataclasses.replace(
            self, needs_plan=gossip.needs_plan, _start=start, _gossip=gossip
        )

    def _spent(
        self, uploads: int, downloads: int, broadcasts: int, gossip: int, serial: int
    ) -> dict[str, Any]:
        """The entry of some messages, of which `serial` wait for each other."""
        sizes = {
            "upload_bytes": uploads * self.upload_size,
            "download_bytes": downloads * self.download_size,
            "broadcast_bytes": broadcasts * self.download_size,
            "gossip_bytes": gossip * self.gossip_size,
        }
        seconds = (uploads + downloads) * self.links.server_seconds
        seconds += serial * self.links.client_seconds
        return {
            "server_uploads": uploads,
            "server_downloads": downloads,
            "broadcasts": broadcasts,
            "gossip_messages": gossip,
            **sizes,
            "bytes": sum(sizes.values()),
            "hours": self.links.factor * seconds / 3600,
        }


def timeline(
    algorithm: FederatedAlgorithm, costs: Costs, plan: Plan
) -> list[dict[str, Any]]:
    """What a round has sent by each of its moments; the last entry is `per_round`'s.

    Args:
      algorithm: From `build`.
      costs: Its price list.
      plan: The round's plan, on the host.

    Returns:
      Sums since the round's beginning. For each cycle there is one for the moment when
      x_r has arrived, one after each local step and its mixing, and one for the moment
      when the uploads have arrived and those that alone get the new model have it.
    """
    participants, start = _participants(algorithm), costs._start
    moments = []  # what each adds, in the order of `Costs._spent`
    for cycle in range(len(plan.clusters)):
        own = slice(cycle, cycle + 1)
        fields = ("clusters", "sizes", "members", "uploads")
        part = {name: getattr(participants, name)[own] for name in fields}
        mixing = algorithm.recipe.mixing.messages(participants._replace(**part))
        one = plan._replace(
            clusters=plan.clusters[own],
            cycles=jax.tree.map(lambda x: x[own], plan.cycles),  # noqa: B023
        )
        here = start._replace(holders=start.holders[own], uploads=start.uploads[own])
        uploads, invited, holders = _taking_part(algorithm.recipe, one, here)
        sent, passed_on = here.sent(invited, holders, costs.links.broadcast)
        told = np.array([0, sent, passed_on.messages, 0, passed_on.serial])
        # What everybody begins with is there before; what some get, when it is new.
        before, after = (
            (told, 0 * told) if start.broadcast == "all" else (0 * told, told)
        )
        moments.append(before)
        for step in range(participants.steps):
            traffic = mixing.at(int(plan.round), step, one)
            moments.append(np.array([0, 0, 0, *traffic]))
        moments.append(after + np.array([uploads, 0, 0, 0, 0]))
    return [costs._spent(*sums) for sums in np.cumsum(moments, 0).tolist()]


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
    recipe, participants = algorithm.recipe, _participants(algorithm)
    gossip = recipe.mixing.messages(participants)
    _, shared = jax.eval_shape(recipe.optimizer.init, state.params)
    model = bytes_of((state.params, state.stats))
    upload, compressed = model, recipe.aggregator.upload_bytes
    if compressed is not None:
        size = sum(x.size for x in jax.tree.leaves(state.params))
        upload = round(compressed(size)) + bytes_of(state.stats)
    control = bytes_of(state.control)
    # A new control may need what only the client knows: what it did.
    steps = jax.eval_shape(recipe.correction.begin, state.params)
    own = (state.control, steps, state.params, state.params)
    sends_control = _reads(recipe.correction.finish, own, 1)
    given = (*[state.params] * 3, *[state.control] * 2)
    reads_mean_control = _reads(recipe.correction.gradient, given, 4)
    message = Model(state.params, state.stats, shared)
    gossip_size, numbers = bytes_of(message), jax.tree.leaves(message)
    bits = recipe.mixing.message_bits(sum(x.size for x in numbers))
    if bits is not None:
        gossip_size = math.ceil(bits / 8)
    return Costs(
        links=links or Links(),
        upload_size=upload + control * sends_control,
        download_size=model + control * reads_mean_control,
        gossip_size=gossip_size,
        needs_plan=gossip.needs_plan,
        _start=_Start(
            recipe.mixing.holders(participants),
            participants.uploads,
            served=recipe.server is not None and not recipe.pooled,
            mixes=recipe.mixing.mixes,
            broadcast=recipe.broadcast,
        ),
        _gossip=gossip,
        _participants=participants,
    )


class _Start(NamedTuple):
    """How x_r gets to the clients; how many hold a model and upload in each group."""

    holders: np.ndarray
    uploads: np.ndarray
    served: bool  # by a server
    mixes: bool  # so that there are local links
    broadcast: str

    def sent(self, uploads: int, holders: int, broadcast: bool) -> tuple[int, Traffic]:
        """Downloads from the server, and what is then passed on.

        Args:
          uploads: Number of clients that are to upload, or did.
          holders: Number of clients that get the model.
          broadcast: Whether what is passed on counts.
        """
        if not self.served:
            return 0, Traffic()
        if not self.mixes or self.broadcast == "sampled":
            return holders, Traffic()
        if not broadcast:
            return uploads, Traffic()
        # Those who upload share the work of their cluster.
        rest = np.maximum(self.holders - self.uploads, 0)
        waits = -(-rest // np.maximum(self.uploads, 1))
        return uploads, Traffic(max(holders - uploads, 0), int(waits.max(1).sum()))


def _taking_part(recipe: Recipe, plan: Plan, start: _Start) -> tuple[int, int, int]:
    """Uploads that are sent in a round of one cycle, and what `_Start.sent` asks."""
    part = plan.cycle(0)
    arrive = int((np.asarray(part.upload) < recipe.clustering.num_clients).sum())
    uploads, invited, holders = arrive, arrive, int(start.holders.sum())
    if part.toll is not None:
        uploads, invited = arrive + int(part.toll.lost), int(part.toll.invited)
        holders -= int(part.toll.away)
    if start.broadcast != "all":
        invited, holders = arrive, int(receivers(recipe, plan).sum())
    return uploads if start.served else 0, invited, holders


def _participants(algorithm: FederatedAlgorithm) -> Participants:
    """From the plan of round 0: in all rounds the same clusters are to take part."""
    recipe, key = algorithm.recipe, jax.random.key(0)
    part = jax.eval_shape(algorithm.plan, key, 0).cycles
    clusters = np.asarray(recipe.order(key, 0))
    plan = functools.partial(make_plan, planned(recipe.participation), recipe.order)
    if jax.eval_shape(plan, key, 0).cycles.upload_count is None:
        uploads = np.full(clusters.shape, part.upload.shape[-1])
    else:
        uploads = np.asarray(plan(key, 0).cycles.upload_count)
    sizes = recipe.clustering.sizes[clusters]
    return Participants(
        num_clients=recipe.clustering.num_clients,
        steps=part.active.shape[1],
        active=None if part.active_count is not None else part.active.shape[-1],
        clusters=clusters,
        sizes=sizes,
        members=sizes if part.members is None else uploads,
        uploads=uploads,
    )


def _reads(function: Callable, arguments: Sequence[PyTree], position: int) -> bool:
    """Whether a function looks at one of its arguments."""
    flat = [len(jax.tree.leaves(argument)) for argument in arguments]
    first = sum(flat[:position])
    program = jax.make_jaxpr(function)(*arguments).jaxpr
    asked = program.invars[first : first + flat[position]]
    read = {id(v) for equation in program.eqns for v in equation.invars}
    read |= {id(v) for v in program.outvars}
    return any(id(v) in read for v in asked)
