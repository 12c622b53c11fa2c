"""Every graph that has a name: a picture, ρ, and what it sends.

ρ is the factor by which one mixing contracts disagreement at worst; of a sequence of
graphs that of its whole period, of drawn ones in mean square. In the figure a sequence
has a colour for each step, a thicker line more weight, and an arrow goes one way; who
has which label is the colour of a client.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from afga_jax.algorithms import build
from afga_jax.data.synthetic import quadratic
from afga_jax.gossip import designed, topology
from afga_jax.gossip.base import Contraction
from afga_jax.gossip.kernels import KERNELS
from afga_jax.gossip.messages import Traffic, of_matrix
from afga_jax.gossip.sequences import SEQUENCES
from afga_jax.runs.papers.declaration import Study
from afga_jax.runs.report import figures
from afga_jax.runs.report.tables import markdown

_CLIENTS, _STEPS, _COLUMNS, _LABELS = 16, 8, 5, 4
# What the size `smoke` draws; the others draw all.
_FEW = ("ring", "matchings")


class Graph(NamedTuple):
    """A topology as it is drawn.

    Attributes:
      name: Its name.
      matrices: W of the steps of a period, or of the first ones where they are drawn.
      contraction: ρ, and the local steps that it is of.
      traffic: The messages of the first step.
      drawn: Whether chance makes the graphs of each step.
    """

    name: str
    matrices: list[np.ndarray]
    contraction: Contraction
    traffic: Traffic
    drawn: bool = False


def graphs(num_clients: int = _CLIENTS, names: Sequence[str] = ()) -> list[Graph]:
    """Graphs that have a name or a builder, those of one matrix first.

    Args:
      num_clients: Number of clients.
      names: Which ones; empty: all.
    """
    made: dict[str, Any] = {name: name for name in KERNELS}
    made["ring, fastest weights"] = designed.fastest(topology.ring(num_clients))
    made["label_aware"] = designed.label_aware(one_label_each(num_clients))
    made |= {name: name for name in SEQUENCES}
    return [_graph(name, made[name], num_clients) for name in names or made]


def one_label_each(num_clients: int) -> np.ndarray:
    """Samples of each of four labels at each client, who has those of one only."""
    return np.eye(_LABELS, dtype=int)[np.arange(num_clients) % _LABELS]


def _table(named: list[Graph]) -> list[str]:
    head = ["topology", "ρ", "of so many steps", "messages of a step"]
    body = []
    for graph in named:
        name, rho, steps, _, messages, serial = _row(graph).values()
        body.append([f"`{name}`", f"{rho:.3f}", *map(str, (steps, messages, serial))])
    about = f"{_CLIENTS} clients. " + __doc__.split("\n\n", 1)[1].strip()
    table = markdown([*head, "one after another"], body)
    return [f"{table}\n\n" + about.replace("\n", " ")]


def _graph(name: str, given: Any, num_clients: int) -> Graph:
    task = quadratic(num_clients, 1).task
    size = {"num_clients": num_clients, "active": num_clients, "local_steps": _STEPS}
    algorithm = build("afga", task, topology=given, **size)
    mixing, plan = algorithm.recipe.mixing, algorithm.plan(jax.random.key(0), 0)
    contraction = mixing.contraction()
    if contraction is None:
        raise ValueError(f"of {name} no ρ is known, so it has no place in the figure.")
    everybody = np.arange(num_clients)
    drawn = name in SEQUENCES and contraction.steps == 1
    steps = 3 if drawn else contraction.steps
    sparse = mixing.sparse_steps(plan, steps, 0, everybody)
    matrices = [matrix.toarray() for matrix in sparse if matrix is not None]
    return Graph(name, matrices, contraction, of_matrix(matrices[0]), drawn)


def _row(graph: Graph) -> dict[str, object]:
    rho, steps = graph.contraction
    return {
        "topology": graph.name,
        "rho": 0.0 if rho < 1e-9 else rho,  # a product that averages exactly is rounded
        "steps": steps,
        "drawn": graph.drawn,
        "messages": graph.traffic.messages,
        "serial": graph.traffic.serial,
    }


def _draw(named: list[Graph], path: Path) -> None:
    rows = -(-len(named) // _COLUMNS)
    figure = figures.blank(2.1 * _COLUMNS, 2.45 * rows)
    panels = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    for panel, graph in zip(panels, named, strict=False):
        _picture(panel, graph)
        row = _row(graph)
        steps = f" in {row['steps']} steps" if row["steps"] != 1 else ""
        sent = f"{row['messages']} messages a step"
        about = f"ρ = {row['rho']:.3f}{steps}\n{sent}"
        panel.set_title(graph.name, fontsize=9, fontweight="bold")
        panel.text(0.5, -0.02, about, transform=panel.transAxes, ha="center", va="top")
        panel.texts[-1].set_fontsize(8)
    for panel in panels:
        panel.axis("off")
        panel.set_aspect("equal")
    figure.savefig(path, dpi=100)


def _picture(panel: "figures.Axes", graph: Graph) -> None:
    places = _places(graph.matrices)
    for step, matrix in enumerate(graph.matrices):
        sends = (matrix != 0) & ~np.eye(len(matrix), dtype=bool)
        heaviest = matrix[sends].max(initial=1e-9)
        for to, source in np.argwhere(sends):
            both = bool(sends[source, to])
            if both and to < source:
                continue  # drawn from the other side
            look: dict[str, Any] = {
                "arrowstyle": "-" if both else "-|>",
                "color": figures.color(step),
                "linewidth": 0.3 + 1.2 * matrix[to, source] / heaviest,
                "alpha": 0.8,
                "shrinkA": 2.5,
                "shrinkB": 2.5,
                "mutation_scale": 6,
            }
            ends = {"xy": places[to], "xytext": places[source]}
            panel.annotate("", **ends, arrowprops=look)
    colors = ["0.25"] * len(places)
    if graph.name == "label_aware":
        labels = one_label_each(len(places)).argmax(1)
        colors = [figures.color(1 + label) for label in labels]
    panel.scatter(places[:, 0], places[:, 1], s=16, c=colors, zorder=3)
    panel.margins(0.08)


def _places(matrices: list[np.ndarray]) -> np.ndarray:
    """Where the clients are drawn: by distance in the graph, sequences on a circle."""
    import networkx  # late, as in `topology`

    n = len(matrices[0])
    graph = networkx.from_numpy_array(sum(m + m.T for m in matrices) != 0)
    one_way = any((m != m.T).any() for m in matrices)
    circle = len(matrices) > 1 or one_way
    make = networkx.circular_layout if circle else networkx.kamada_kawai_layout
    places = make(graph)
    return np.array([places[client] for client in range(n)])


STUDY = Study(
    "topologies",
    "Every graph that has a name: picture, ρ and messages",
    lambda scale, *_: graphs(names=_FEW if scale == "smoke" else ()),
    _row,
    _table,
    lambda scale: "seconds",
    _draw,
)
