"""Which gradients reach the server, with which weight, for how many messages.

In a round of AFGA, 𝓘·M gradients are computed; mixing carries them to the M clients
that upload, or does not. From the plans alone, on the host: the share of gradients that
enter Δ, the weight of each in it (the sum over the uploads of the weight in the
uploader's model, over M), and the messages that the mixing sent. If all had the same
weight it would be 1/N each on average (1/M for FedAMSGrad, where all reach it). How far
they are from that is the *effective share*: (Σw)²/Σw² over the gradients computed.
"""

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from afga_jax.algorithms import FederatedAlgorithm, build
from afga_jax.data.synthetic import quadratic
from afga_jax.gossip import topology
from afga_jax.rounds.span.dependencies import Finder, Graph
from afga_jax.runs.papers.declaration import Study
from afga_jax.runs.report import figures
from afga_jax.runs.report.tables import markdown
from afga_jax.training import ledger

_CLIENTS, _ACTIVE, _STEPS, _CLUSTERS = 100, 5, 24, 5
_TOPOLOGIES = ("ring", "torus", "exponential", "random", "complete")
_ROUNDS = {"paper": 100, "small": 20, "smoke": 2}


class Reached(NamedTuple):
    """What became of the gradients of some rounds.

    Attributes:
      topology: The topology's name; `none` is FedAMSGrad.
      clusters: Number of clusters, K.
      rho: ρ of the mixing; None: nothing mixes.
      messages: Messages between clients in a round.
      rounds: Number of rounds.
      weights: Weight in Δ of every gradient of every round; 0: it did not arrive.
      effective: The effective share, the mean over rounds.
    """

    topology: str
    clusters: int
    rho: float | None
    messages: int
    rounds: int
    weights: np.ndarray
    effective: float

    @property
    def share(self) -> float:
        """Share of the gradients that reach the server."""
        return float((self.weights > 0).mean())


def weights(graph: Graph) -> np.ndarray:
    """Each gradient's weight in Δ, `[planned]`; those that are not needed come last."""
    tasks, uploads = len(graph.step), len(graph.uploads)
    first = graph.first[tasks]
    sums = np.bincount(graph.task[first:], graph.weight[first:], minlength=tasks)
    return np.append(sums / uploads, np.zeros(graph.planned - tasks))


def reached(name: str, clusters: int, rounds: int) -> Reached:
    """Follows the gradients of some rounds of Setting 1.

    Args:
      name: A topology's name, or `none`.
      clusters: K; 1: AFGA, more: CAFGA.
      rounds: Number of rounds.
    """
    algorithm, key = _algorithm(name, clusters), jax.random.key(0)
    if name == "none":
        # Everybody who computes uploads what it did: nothing to follow.
        by_round = [np.full(_STEPS * _ACTIVE, 1 / _ACTIVE)] * rounds
    else:
        finder, plans = Finder(algorithm.recipe), jax.jit(algorithm.plan)
        by_round = [
            weights(finder.graph(jax.tree.map(np.asarray, plans(key, round))))
            for round in range(rounds)
        ]
    costs = ledger.costs(algorithm, jax.eval_shape(algorithm.init, key))
    spent = costs.per_round(types.SimpleNamespace(uploads=_ACTIVE, faults={}), 0)
    effective = [w.sum() ** 2 / (w**2).sum() / len(w) for w in by_round if w.any()]
    rho = None if name == "none" else algorithm.recipe.mixing.spectral_gap()
    sent, every = spent["gossip_messages"], np.concatenate(by_round)
    return Reached(name, clusters, rho, sent, rounds, every, float(np.mean(effective)))


def cases(scale: str) -> list[tuple[str, int]]:
    """Topologies and numbers of clusters; `smoke` has two."""
    if scale == "smoke":
        return [("ring", 1), ("ring", _CLUSTERS)]
    return [("none", 1)] + [
        (name, clusters) for name in _TOPOLOGIES for clusters in (1, _CLUSTERS)
    ]


def _algorithm(name: str, clusters: int) -> FederatedAlgorithm:
    task = quadratic(2, 1).task
    given = {"num_clients": _CLIENTS, "active": _ACTIVE, "local_steps": _STEPS}
    if name == "none":
        return build("fedamsgrad", task, **given)
    algo = "afga" if clusters == 1 else "cafga"
    # Twice as dense as a random graph must be to be connected.
    random = lambda n: topology.random(n, density=2 * np.log(n) / n)  # noqa: E731
    graph = random if name == "random" else name
    return build(algo, task, num_clusters=clusters, topology=graph, **given)


def _label(outcome: Reached) -> str:
    if outcome.topology == "none":
        return "no mixing (FedAMSGrad)"
    clusters = f", {outcome.clusters} clusters" if outcome.clusters > 1 else ""
    return outcome.topology + clusters


def _row(outcome: Reached) -> dict[str, Any]:
    w = outcome.weights
    low, middle, high = np.quantile(w, [0.1, 0.5, 0.9])
    return {
        "topology": outcome.topology,
        "clusters": outcome.clusters,
        "rho": outcome.rho,
        "messages_per_round": outcome.messages,
        "share_reaching": outcome.share,
        "effective_share": outcome.effective,
        "mean_weight": w.mean(),
        "weight_10": low,
        "weight_50": middle,
        "weight_90": high,
    }


def _table(outcomes: Sequence[Reached]) -> list[str]:
    body = []
    for outcome in outcomes:
        row = _row(outcome)
        low, high = _CLIENTS * row["weight_10"], _CLIENTS * row["weight_90"]
        cells = {
            "": _label(outcome),
            "ρ": "–" if outcome.rho is None else f"{outcome.rho:.3f}",
            "messages per round": f"{outcome.messages:,}",
            "gradients that reach Δ, %": f"{100 * outcome.share:.1f}",
            "effective share, %": f"{100 * outcome.effective:.1f}",
            "N × weight: mean": f"{_CLIENTS * row['mean_weight']:.2f}",
            "10 % … 90 %": f"{low:.2f} … {high:.2f}",
        }
        body.append(list(cells.values()))
    about = (
        f"N = {_CLIENTS}, M = {_ACTIVE}, 𝓘 = {_STEPS} (AFGA's Setting 1), "
        f"{outcomes[0].rounds} rounds. " + __doc__.split("\n\n")[1].replace("\n", " ")
    )
    return [f"{markdown(list(cells), body)}\n\n{about}"]


def _draw(outcomes: Sequence[Reached], path: Path) -> None:
    figure = figures.blank(10.0, 5.0)
    shares, spread = figure.subplots(1, 2)
    names = list(dict.fromkeys(outcome.topology for outcome in outcomes))
    for outcome in outcomes:
        color = figures.color(names.index(outcome.topology))
        _mark(shares, spread, outcome, color)
    figures.label_axes(shares, "messages between clients per round", "share, %")
    shares.set_title("filled: gradients that reach Δ; open: effective share", size=10)
    shares.set_ylim(0, 105)
    figures.label_axes(spread, "messages between clients per round", "N × weight in Δ")
    spread.set_title(
        "median, and 10 % to 90 % of the gradients\n(clustered: moved to the right)",
        size=10,
    )
    spread.set_yscale("symlog", linthresh=0.1)
    for panel in (shares, spread):
        # No messages has its place too.
        panel.set_xscale("symlog", linthresh=1000)
        panel.set_xlim(-300, 4e5)
        panel.set_xticks([0, 1e3, 1e4, 1e5], ["0", "1k", "10k", "100k"])
    figures.legend(figure)
    title = f"Reach: N = {_CLIENTS}, M = {_ACTIVE}, {_STEPS} local steps"
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=150)


def _mark(
    shares: "figures.Axes", spread: "figures.Axes", outcome: Reached, color: str
) -> None:
    shape = "s" if outcome.clusters > 1 else "o"
    x, row = outcome.messages, _row(outcome)
    shares.plot(x, 100 * outcome.share, shape, color=color, label=_label(outcome))
    shares.plot(x, 100 * outcome.effective, shape, color=color, mfc="none")
    low, middle, high = (_CLIENTS * row[f"weight_{q}"] for q in (10, 50, 90))
    reach = [[middle - low], [high - middle]]
    # A ring sends as many messages with clusters as without: bars would coincide.
    moved = 1.1 * x if outcome.clusters > 1 else x
    spread.errorbar(moved, middle, reach, fmt=shape, color=color, capsize=3)


STUDY = Study(
    "reach",
    "Reach: which gradients arrive at the server, and for how many messages",
    lambda scale, *_: [reached(*case, _ROUNDS[scale]) for case in cases(scale)],
    _row,
    _table,
    lambda scale: f"{len(cases(scale))} topologies on the host, seconds",
    _draw,
)
