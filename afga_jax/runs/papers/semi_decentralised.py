"""Who wins where: methods with gossip, with a server and with both, on one map.

Three things decide between them: how much the clients' data differ, how well the graph
between clients mixes (ρ), and how many clients upload in a round. Each method is a heat
map of final accuracy over these; the last columns say who is best in each cell, and who
cannot be told from the best: among those where as many compute as upload, and among
all, some of which take more gradients. All methods see the same seeds, so clients hold
the same data in a column of a map.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from afga_jax.gossip.kernels import KERNELS
from afga_jax.runs.grid import Cell
from afga_jax.runs.papers import points
from afga_jax.runs.papers.points import FINAL
from afga_jax.runs.record import Run
from afga_jax.runs.report import figures
from afga_jax.runs.report.results import mean_and_deviation, results
from afga_jax.runs.report.tables import NOTHING, markdown, measured


class Method(NamedTuple):
    """A method of the family.

    Attributes:
      algo: Name of the algorithm.
      label: Its name for people.
      gossips: Whether the graph between clients matters to it.
      uploads: Whether the number of uploads matters to it.
      everybody: Whether all clients compute, in place of those that upload.
      clusters: Its number of clusters; None: the setting's.
      without: What it has in place of the graph, or of a number of uploads.
    """

    algo: str
    label: str
    gossips: bool = True
    uploads: bool = True
    everybody: bool = False
    clusters: int | None = None
    without: str = ""


class Place(NamedTuple):
    """A cell of the map.

    Attributes:
      graph: Who mixes with whom, by the name of the topology.
      rate: Share of the clients that upload.
      alpha: Dirichlet's α of the clients' data; small: they differ much.
    """

    graph: str
    rate: float
    alpha: float


class Point(NamedTuple):
    """A method at a place of the map.

    Attributes:
      method: The method.
      place: The place.
      cell: The run; those of a method that a place differs in nothing for share one.
    """

    method: Method
    place: Place
    cell: Cell


class Family(NamedTuple):
    """The maps of some methods.

    Attributes:
      name: Name on the command line.
      title: What it shows.
      above: The line above the figure.
      took: How long it takes, for people.
      common: Settings of all runs.
      methods: The methods, in the figure's order.
      graphs: Topologies, from the worst to the best mixing.
      rates: Shares of the clients that upload.
      alphas: Values of Dirichlet's α.
      notes: Lines below the table.
    """

    name: str
    title: str
    above: str
    took: str
    common: Mapping[str, Any]
    methods: tuple[Method, ...]
    graphs: tuple[str, ...]
    rates: tuple[float, ...]
    alphas: tuple[float, ...]
    notes: tuple[str, ...]

    def points(self, scale: str, kept: Path) -> list[Point]:
        """All methods at all places.

        Args:
          scale: The size; `smoke` has two runs on digits, the others are the same.
          kept: The folder of runs, by configuration.
        """
        family, more = self, dict[str, Any](scale="small")
        if scale == "smoke":
            family = self._replace(
                methods=tuple(m for m in self.methods if m.algo in ("fedavg", "afga")),
                graphs=self.graphs[:1],
                rates=self.rates[-1:],
                alphas=self.alphas[-1:],
            )
            more = {**points.SMOKE, "dataset": "digits"}
        asked = []
        axes = (family.graphs, family.rates, family.alphas, family.methods)
        for graph, rate, alpha, method in itertools.product(*axes):
            varied: dict[str, Any] = {"algo": method.algo, "alpha": alpha}
            # A ring is what rows with gossip have: who names none has the same run.
            named = method.gossips and graph != "ring"
            varied["topology"] = graph if named else None
            varied["participation"] = rate if method.uploads else None
            varied["num_clusters"] = method.clusters
            cell = points.cell({**self.common, **more, **varied}, varied, kept)
            asked.append(Point(method, Place(graph, rate, alpha), cell))
        return asked


def leaders(accuracies: Mapping[str, np.ndarray]) -> list[str]:
    """The best by mean over seeds, then those that seeds do not tell from it.

    A method is level with the best if the mean of the paired differences is not larger
    than their standard deviation; of one seed, if there is no difference.

    Args:
      accuracies: Of each method the accuracies of the seeds, in one order.

    >>> leaders({"a": np.array([90.0, 92.0]), "b": np.array([91.0, 90.5])})
    ['a', 'b']
    >>> leaders({"a": np.array([80.0, 81.0]), "b": np.array([91.0, 92.5])})
    ['b']
    """
    known = {name: a for name, a in accuracies.items() if np.isfinite(a).all()}
    if not known:
        return []
    best = max(known, key=lambda name: known[name].mean())
    level = []
    for name, sample in known.items():
        mean, deviation = mean_and_deviation(known[best] - sample)
        if name != best and mean <= deviation:
            level.append(name)
    return [best, *level]


def _row(pair: tuple[Point, Run]) -> dict[str, object]:
    point, run = pair
    return {
        "algorithm": point.method.algo,
        "topology": point.place.graph if point.method.gossips else None,
        "rho": _rho(point),
        "participation": point.place.rate if point.method.uploads else None,
        "alpha": point.place.alpha,
        **points.outcome(run),
    }


def _rho(point: Point) -> float | None:
    """ρ of the graph in a cluster of the run; None: nobody mixes."""
    config = point.cell.config
    if not point.method.gossips:
        return None
    size = -(-config.num_clients // config.num_clusters)
    return KERNELS[point.place.graph](size).spectral_gap()


def _accuracies(pairs: Sequence[tuple[Point, Run]], place: Place) -> dict:
    return {
        point.method.label: results([run])[0].accuracy
        for point, run in pairs
        if point.place == place
    }


def _table(pairs: Sequence[tuple[Point, Run]]) -> str:
    labels = list(dict.fromkeys(point.method.label for point, _ in pairs))
    body = []
    for place in dict.fromkeys(point.place for point, _ in pairs):
        accuracies = _accuracies(pairs, place)
        first = leaders(accuracies)
        where = f"{place.graph}, {place.rate:.0%}, α = {place.alpha:g}"
        texts = {name: measured(sample, 1) for name, sample in accuracies.items()}
        texts |= {name: f"**{texts[name]}**" for name in first}
        body.append([where, *(texts[name] for name in labels)])
    return markdown(["accuracy, %", *labels], body)


def _draw(above: str, pairs: Sequence[tuple[Point, Run]], path: Path) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    places = list(dict.fromkeys(point.place for point, _ in pairs))
    methods = list(dict.fromkeys(point.method for point, _ in pairs))
    graphs = list(dict.fromkeys(place.graph for place in places))
    accuracies = {place: _accuracies(pairs, place) for place in places}
    means = [sample.mean() for own in accuracies.values() for sample in own.values()]
    finite = [mean for mean in means if np.isfinite(mean)] or [0.0]
    shade = Normalize(np.quantile(finite, 0.05), max(finite))

    def shaded(sample: np.ndarray) -> tuple[Any, str, bool]:
        mean = float(sample.mean())
        if not np.isfinite(mean):
            return "0.85", NOTHING, False
        return colormaps["cividis"](shade(mean)), f"{mean:.1f}", shade(mean) < 0.5

    contests = _contests(methods)
    columns = len(methods) + len(contests)
    figure = figures.blank(1.95 * columns + 0.6, 1.5 * len(graphs) + 0.9)
    panels = figure.subplots(len(graphs), columns, squeeze=False)
    for graph, row in zip(graphs, panels, strict=True):
        here = [place for place in places if place.graph == graph]
        for method, panel in zip(methods, row, strict=False):
            _map(panel, {p: shaded(accuracies[p][method.label]) for p in here})
            panel.set_title(_heading(method, graph, pairs), fontsize=8)
        labels = [method.label for method in methods]
        others = row[len(methods) :]
        for (title, entrants), panel in zip(contests.items(), others, strict=True):
            samples = {p: {e: accuracies[p][e] for e in entrants} for p in here}
            _map(panel, {p: _winner(each, labels) for p, each in samples.items()})
            panel.set_title(title, fontsize=8, fontweight="bold")
        row[0].set_ylabel("uploads, % of clients", fontsize=8)
    for panel in panels[-1]:
        panel.set_xlabel("α (left: clients differ most)", fontsize=7)
    figure.suptitle(above, fontsize=10)
    figure.savefig(path, dpi=150)


def _contests(methods: Sequence[Method]) -> dict[str, list[str]]:
    """The labels of the methods that are compared, by the title of a column."""
    every = [method.label for method in methods]
    sampled = [method.label for method in methods if not method.everybody]
    if not sampled or len(sampled) == len(every):
        return {"who is best": every}
    alike = "who is best with\nthe same gradients"
    return {alike: sampled, "who is best\nof all": every}


def _heading(method: Method, graph: str, pairs) -> str:
    if not method.gossips:
        return f"{method.label}\n{method.without}"
    rho = next(
        _rho(point)
        for point, _ in pairs
        if point.method == method and point.place.graph == graph
    )
    label = ", ".join(filter(None, (method.label, method.without)))
    return f"{label}\n{graph}, ρ = {rho:.3f}"


def _winner(accuracies: Mapping[str, np.ndarray], labels: Sequence[str]):
    """Colour, text and whether it is white, of a cell of the last column."""
    first = leaders(accuracies)
    if not first:
        return "0.85", NOTHING, False
    best, *level = first
    text = best.replace(" ", "\n")
    if level:
        text += f"\n≈ {level[0] if len(level) == 1 else f'{len(level)} others'}"
    number = labels.index(best)
    # Of eight methods the last has a colour that curves do not have.
    return figures.color(number) if number < 7 else "0.4", text, True


def _map(panel: "figures.Axes", cells: Mapping[Place, tuple[Any, str, bool]]) -> None:
    """Cells with a colour and a text each: α across, rates up."""
    from matplotlib.patches import Rectangle

    edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 1.5}
    alphas = sorted({place.alpha for place in cells})
    rates = sorted({place.rate for place in cells})
    for place, (color, text, white) in cells.items():
        x, y = alphas.index(place.alpha), rates.index(place.rate)
        panel.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=color, **edge))
        ink = "white" if white else "black"
        size = 8 if len(text) < 7 else 5.5
        panel.text(x, y, text, ha="center", va="center", color=ink, fontsize=size)
    panel.set_xlim(-0.5, len(alphas) - 0.5)
    panel.set_ylim(-0.5, len(rates) - 0.5)
    panel.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas], fontsize=7)
    panel.set_yticks(range(len(rates)), [f"{100 * r:g}" for r in rates], fontsize=7)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)


_FEDAVG = Method("fedavg", "FedAvg", gossips=False, without="no gossip")
_FEDAMSGRAD = Method("fedamsgrad", "FedAMSGrad", gossips=False, without="no gossip")
_AFGA, _CAFGA = Method("afga", "AFGA"), Method("cafga", "CAFGA")
_TTHF = Method(
    *("tthf", "TT-HF"), uploads=False, everybody=True, clusters=4, without="4 uploads"
)
_HAFED = Method("hafed_partial", "HA-Fed partial", everybody=True, clusters=2)
_DFEDAVGM = Method(
    *("dfedavgm", "DFedAvgM"), uploads=False, everybody=True, without="no uploads"
)
_EPIDEMIC = Method(
    *("epidemic", "Epidemic Learning"),
    gossips=False,
    uploads=False,
    everybody=True,
    without="random peers, no uploads",
)

_DIGITS = Family(
    "semi-decentralised",
    "Who wins where: heterogeneity, ρ and uploads, digits",
    "digits, 16 clients, CAFGA and HA-Fed in two clusters, TT-HF in four, "
    "8 local steps, 40 rounds, 3 seeds",
    "six minutes on one core",
    {
        **{"dataset": "digits", "num_clients": 16, "num_seeds": 3, "hidden": (32,)},
        **{"local_steps": 8, "batch_size": 16, "rounds": 40, "eval_every": 2},
        **{"partition": "dirichlet", "checkpoint_every": 40},
    },
    (
        *(_FEDAVG, _FEDAMSGRAD, _AFGA, _CAFGA._replace(clusters=2)),
        *(_HAFED, _TTHF, _DFEDAVGM, _EPIDEMIC),
    ),
    ("ring", "hypercube", "complete"),
    (0.125, 0.5),
    (0.05, 0.3, 5.0),
    (
        f"{FINAL} Bold: the best, and what its seeds do not tell from it.",
        "In HA-Fed, TT-HF, DFedAvgM and Epidemic Learning everybody computes at every "
        "step: 2 to 8 times the gradients of the others.",
    ),
)

_CIFAR = Family(
    "semi-decentralised-cifar10",
    "Who wins where: heterogeneity and uploads, CIFAR-10",
    "CIFAR-10, ConvMixer-64-4, 50 clients, 100 rounds, one seed",
    "three to ten minutes each on a core",
    {"dataset": "cifar10", "setting": "2", "rounds": 100, "eval_every": 5},
    (_FEDAVG, _FEDAMSGRAD, _AFGA, _CAFGA),
    ("ring",),
    (0.1, 0.2),
    (0.1, 0.6),
    (f"{FINAL} One seed: differences of a point say nothing.",),
)

FAMILIES = (_DIGITS, _CIFAR)
STUDIES = tuple(points.study(each, _row, _table, _draw) for each in FAMILIES)
