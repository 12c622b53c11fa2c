"""Which graph, how many clusters, how often to mix: by arithmetic, without training.

For each choice the gossip classes give ρ, the papers' theory its conditions, and the
ledger messages, bytes and simulated hours of a round. How many rounds a choice takes
nobody knows without training. What theory has of it is D = min{steps/(1 − ρ), 𝓘}, the
local steps that a client's drift lasts at most (`Contraction.drift`): in the rates'
bounds the topology enters through it, in terms that fall with the rounds. So

- *best first* is by hours a round × D: the time until the drift's term of a bound is
  down to some size, if it is the one that decides;
- if rounds grow with Dʰ, h between 0 (data so alike that drift does not matter) and 1,
  who is first is the least hours × Dʰ. `ranges` says who that is for which h;
- a choice for which another has both fewer hours and a smaller D is never first.

It is an order, not a forecast. ρ and D are those of a cluster, as in the papers: what
differs between clusters only the server evens out, once a round. With links that fail,
ρ is in mean square; messages and hours are counted as if every link were tried. Where
graphs are drawn at random, messages are those of one round's draws.
"""

import dataclasses
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import checks
from afga_jax.algorithms import FederatedAlgorithm, build
from afga_jax.gossip.base import Contraction
from afga_jax.gossip.kernels import KERNELS
from afga_jax.gossip.periods import every
from afga_jax.gossip.sequences import SEQUENCES
from afga_jax.mesh import quick_to_compile
from afga_jax.population.sampling import Plan
from afga_jax.runs.experiment import theory
from afga_jax.runs.report.prices import Load, Share, cheapest
from afga_jax.training import ledger
from afga_jax.training.ledger import Links
from afga_jax.typing import Task

#: No gossip: the server's optimizer of AFGA, over those who upload.
NONE = "none"
# W is looked at as a dense matrix.
_MOST_CLIENTS = 1000
_MOST_CLUSTERS = 4
_PERIODS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Asked:
    """What advice is wanted for.

    Attributes:
      num_clients: N.
      active: M, clients that compute at a step, and that upload.
      local_steps: 𝓘.
      rounds: R, for the theory's conditions.
      parameters: Numbers of the model, of four bytes each.
      links: What a message costs.
      link_failure: Probability with which a link between clients is down at a step.
      topologies: Names of the graphs to try; empty: all that have one.
      clusters: Numbers of clusters to try; empty: some that divide N and M.
      periods: Local steps from one mixing to the next to try; empty: 1, 2, 4 and 8.
    """

    num_clients: int
    active: int
    local_steps: int = 24
    rounds: int = 500
    parameters: int = 1_000_000
    links: Links = dataclasses.field(default_factory=Links)
    link_failure: float = 0.0
    topologies: tuple[str, ...] = ()
    clusters: tuple[int, ...] = ()
    periods: tuple[int, ...] = ()

    def __post_init__(self):
        most, reason = _MOST_CLIENTS, "ρ is computed from whole matrices"
        number = self.num_clients
        checks.integer("num_clients", number, at_least=2, at_most=most, fix=reason)
        checks.integer("active", self.active, at_most=self.num_clients)
        for name in ("local_steps", "rounds", "parameters"):
            checks.integer(name, getattr(self, name))
        checks.number("link_failure", self.link_failure, at_least=0, at_most=1)
        seconds = self.links.server_seconds
        checks.number("server_seconds", seconds, above=0, fix="else nothing takes time")
        for name in self.topologies:
            checks.choice("topologies", name, names())
        for number in self.clusters:
            checks.integer("clusters", number, at_most=self.num_clients // 2)
            for name in ("num_clients", "active"):
                total = getattr(self, name)
                if total % number:
                    raise ValueError(
                        f"clusters = {number}, but clusters have as many clients and "
                        f"uploads each, so it must divide {name} = {total}: change one "
                        "of the two."
                    )
        for number in self.periods:
            checks.integer("periods", number, at_most=self.local_steps)

    def numbers_of_clusters(self) -> tuple[int, ...]:
        """Numbers of clusters to try."""
        if self.clusters:
            return self.clusters
        most, both = self.num_clients // 2, math.gcd(self.num_clients, self.active)
        numbers = [k for k in range(1, most + 1) if both % k == 0]
        few = min(len(numbers), _MOST_CLUSTERS)
        # The first, the last and some in between.
        places = np.linspace(0, len(numbers) - 1, few).round().astype(int)
        return tuple(numbers[place] for place in places)


class Advice(NamedTuple):
    """A choice, with what is known of it.

    Attributes:
      topology: Name of the graph; `none`: no gossip.
      clusters: K.
      period: q, local steps from one mixing to the next.
      contraction: ρ, and the local steps that it is of.
      drift: D, local steps that drift lasts at most.
      conditions: What the theory asks for (`experiment.theory`), by name; empty: it
        says nothing of the choice.
      spent: The ledger's entry of a round.
    """

    topology: str
    clusters: int
    period: int
    contraction: Contraction
    drift: float
    conditions: Mapping[str, Mapping[str, Any]]
    spent: Mapping[str, Any]

    @property
    def hours(self) -> float:
        """Simulated hours of a round."""
        return self.spent["hours"]

    @property
    def messages(self) -> int:
        """All messages of a round."""
        kinds = ("server_uploads", "server_downloads", "broadcasts", "gossip_messages")
        return sum(self.spent[kind] for kind in kinds)

    @property
    def score(self) -> float:
        """Hours of a round × D: the smaller the better."""
        return self.hours * self.drift


class Advices(NamedTuple):
    """All choices.

    Attributes:
      best_first: The choices, in the order of hours × D.
      left_out: What cannot be, with the reason, a line each.
    """

    best_first: list[Advice]
    left_out: list[str]


def names() -> tuple[str, ...]:
    """Topologies that need no data."""
    return (*KERNELS, *SEQUENCES)


def advise(asked: Asked) -> Advices:
    """All choices, best first; see the module for what that means."""
    choices = _of_graph(asked, _clustered(asked, "fedamsgrad", 1), NONE)
    left_out = dict[tuple[str, str], list[int]]()
    for clusters in asked.numbers_of_clusters():
        within = _clustered(asked, "afga" if clusters == 1 else "cafga", clusters)
        for topology in asked.topologies or names():
            try:
                choices += _of_graph(asked, within, topology)
            except ValueError as error:
                left_out.setdefault((topology, str(error)), []).append(clusters)
    order = sorted(
        choices, key=lambda advice: (advice.score, advice.hours, advice.messages)
    )
    lines = [
        f"{topology}, K = {', '.join(map(str, clusters))}: {reason}"
        for (topology, reason), clusters in left_out.items()
    ]
    return Advices(order, lines)


def undominated(choices: Sequence[Advice]) -> list[bool]:
    """Whether no other has fewer hours and a smaller D, or one of them and the same."""

    def better(advice: Advice, other: Advice) -> bool:
        # To nine digits: sums in another order are no difference.
        ours, theirs = (
            (round(each.hours, 9), round(each.drift, 9)) for each in (advice, other)
        )
        return ours != theirs and ours[0] <= theirs[0] and ours[1] <= theirs[1]

    return [not any(better(advice, other) for advice in choices) for other in choices]


def ranges(choices: Sequence[Advice]) -> list[Share]:
    """Which choice is first if rounds grow with Dʰ, for h from 0 to 1.

    ln(hours·Dʰ) = ln hours + h·ln D is a line in h, as the price of a load is in the
    ratio of prices: who is cheapest is the lower envelope of such lines.

    >>> fast, steady = (
    ...     Advice(name, 1, 1, Contraction(0.0, 1), drift, {}, {"hours": hours})
    ...     for name, drift, hours in (("none", 16.0, 1.0), ("ring", 4.0, 2.0))
    ... )
    >>> ranges([fast, steady])  # 16ʰ = 2·4ʰ at h = 1/2
    [Share(method=0, low=0.0, high=0.5), Share(method=1, low=0.5, high=1.0)]
    """
    lines = [Load(math.log(advice.hours), math.log(advice.drift)) for advice in choices]
    return cheapest(lines, 0.0, 1.0)


class _Clustered(NamedTuple):
    """What all graphs share that clients in so many clusters mix over."""

    algorithm: FederatedAlgorithm
    costs: ledger.Costs
    plan: Plan


def _clustered(asked: Asked, algo: str, clusters: int) -> _Clustered:
    algorithm = _built(asked, algo, clusters)
    key = jax.random.key(0)
    shapes = jax.eval_shape(algorithm.init, key)
    costs = ledger.costs(algorithm, shapes, asked.links)
    draw = jax.jit(algorithm.plan, compiler_options=quick_to_compile())
    return _Clustered(algorithm, costs, jax.device_get(draw(key, 0)))


def _built(asked: Asked, algo: str, clusters: int, **more: Any) -> FederatedAlgorithm:
    return build(
        *(algo, _task(asked.parameters)),
        num_clients=asked.num_clients,
        num_clusters=clusters,
        active=asked.active,
        local_steps=asked.local_steps,
        **more,
    )


def _of_graph(asked: Asked, within: _Clustered, topology: str) -> list[Advice]:
    """A graph with all periods."""
    clusters = within.algorithm.recipe.clustering.num_clusters
    algorithm, periods, failure = within.algorithm, tuple[int, ...]([1]), 0.0
    if topology != NONE:
        algorithm = _built(asked, algorithm.name, clusters, topology=topology)
        usual = (period for period in _PERIODS if period <= asked.local_steps)
        periods, failure = asked.periods or tuple(usual), asked.link_failure
    mixing = algorithm.recipe.mixing
    if asked.link_failure and mixing.mixes and not mixing.symmetric:
        raise ValueError("it goes one way, and links that fail need both.")
    info: Any = types.SimpleNamespace(uploads=asked.active, faults={})
    plain, choices = within.algorithm, []
    for period in periods:
        contraction = mixing.contraction(failure, period)
        if contraction is None:
            raise ValueError("its ρ is not known.")
        drift = contraction.drift(asked.local_steps)
        conditions: Mapping[str, Any] = {}
        if contraction.steps == 1:  # the papers' clients mix after every step, by one W
            about = (plain.name, plain, asked.rounds, contraction.rho)
            conditions = theory.conditions(*about)
        costs = within.costs.with_mixing(every(mixing, period, asked.local_steps))
        spent = costs.per_round(info, 0, within.plan)
        known = (contraction, drift, conditions, spent)
        choices.append(Advice(topology, clusters, period, *known))
    return choices


def _task(parameters: int) -> Task:
    """A model of so many numbers; nothing is ever computed with it."""
    return Task(
        init=lambda key: (jnp.zeros(parameters, jnp.float32), ()),
        loss=lambda params, stats, *_: (params.sum(), (stats, {})),
    )
