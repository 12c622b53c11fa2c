"""The rates on trial, as a table and a figure; `trial` says what is measured."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from afga_jax.record import write_text
from experiments.papers import figures, trial
from experiments.papers.declaration import Study
from experiments.papers.tables import grid
from experiments.papers.trial import SLOPES, Bench, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABELS = {"fedamsgrad": "FedAMSGrad", "afga": "AFGA"}
_NAMES = {
    "R": "rounds R",
    "𝓘": "local steps",
    "M": "active clients M",
    "ρ": "ρ of AFGA's topology",
}


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of a line through the logarithms.

    >>> round(slope([1, 2, 4], [8, 4, 2]), 6)
    -1.0
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def write(scale: str, out: Path, kept: Path) -> list[str]:
    """Measures what is not measured yet; writes the results, table and figure.

    Args:
      scale: The number of seeds.
      out: Of the files.
      kept: Of the measurements.

    Returns:
      The table.
    """
    bench = Bench(kept)
    points = [bench.point(axis, config) for axis, config in trial.cells(scale)]
    table = _table(points)
    write_text(out / "results.csv", _csv(points))
    _draw(points, out / "figure.png")
    return [table]


def _table(points: Sequence[Point]) -> str:
    body = []
    for axis, algo, ours, theirs in _fits(points):
        verdict = "holds" if ours <= theirs + 0.05 else "does not"
        body.append(
            [_NAMES[axis], _LABELS[algo], f"{ours:+.2f}", f"{theirs:+.1f}", verdict]
        )
    parts = []
    if body:
        head = ["‖∇f‖² against", "", "slope", "of the bound", "the bound"]
        parts.append(grid(head, body))
    lines = [
        [
            one.axis,
            _LABELS[one.algo],
            "–" if one.x is None else f"{one.x:.4g}",
            f"{one.values.mean():.4f} ± {one.values.std(ddof=1):.4f}",
            {True: "yes", False: "no", None: "–"}[one.holds],
        ]
        for one in points
    ]
    head = ["axis", "", "value", "mean ‖∇f‖²", "conditions hold"]
    parts.append(grid(head, lines))
    parts.append(trial.__doc__.split("\n\n")[1].replace("\n", " "))
    return "\n\n".join(parts) + "\n"


def _fits(points: Sequence[Point]) -> list[tuple[str, str, float, float]]:
    """Axis, algorithm, measured slope, the theory's."""
    found = []
    for algo, slopes in SLOPES.items():
        for axis, theirs in slopes.items():
            here = _of(points, axis, algo)
            if len(here) > 1:
                means = [one.values.mean() for one in here]
                found.append((axis, algo, slope([p.x for p in here], means), theirs))
    return found


def _of(points: Sequence[Point], axis: str, algo: str) -> list[Point]:
    found = [one for one in points if (one.axis, one.algo) == (axis, algo)]
    return sorted(found, key=lambda one: one.x or 0)


def _csv(points: Sequence[Point]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["axis", "algorithm", "value", "mean", "std", "seeds", "conditions"]
    )
    for one in points:
        x, holds = one.x, one.holds
        writer.writerow(
            [
                one.axis,
                one.algo,
                "" if x is None else x,
                one.values.mean(),
                one.values.std(ddof=1),
                len(one.values),
                "" if holds is None else holds,
            ]
        )
    return out.getvalue()


def _draw(points: Sequence[Point], path: Path) -> None:
    figure = figures.blank(9.0, 7.5)
    axes = figure.subplots(2, 2, sharey=True).ravel()
    for panel, axis in zip(axes, _NAMES, strict=True):
        for number, algo in enumerate(SLOPES):
            _measured(panel, _of(points, axis, algo), figures.COLORS[number])
        figures.label_axes(panel, _NAMES[axis], "mean of ‖∇f‖² over rounds")
        panel.set_yscale("log")
        if axis != "ρ":
            panel.set_xscale("log", base=2)
    figures.legend(figure, 9.0)
    figure.suptitle("Theory on trial: quadratics with σ_g = σ = 2, 32 clients", size=11)
    figure.savefig(path, dpi=150)


def _measured(panel: "Axes", here: Sequence[Point], color: str) -> None:
    """Points with their deviation, and the bound's slope through the middle one."""
    if not here:
        return
    first = here[0]
    label, means = _LABELS[first.algo], np.array([p.values.mean() for p in here])
    if first.x is None:  # no ρ: the same whatever the graph
        panel.axhline(means[0], color=color, label=label)
        return
    x = np.array([one.x for one in here])
    deviations = [one.values.std(ddof=1) for one in here]
    joined = "o" if first.axis == "ρ" else "o-"
    panel.errorbar(x, means, deviations, fmt=joined, color=color, label=label, ms=4)
    theirs = SLOPES[first.algo].get(first.axis)
    if theirs is not None and len(here) > 1:
        middle = len(here) // 2
        bound = means[middle] * (x / x[middle]) ** theirs
        text = f"{label}, the bound's slope"
        panel.plot(x, bound, "--", color=color, linewidth=1, label=text)


STUDY = Study(
    "theory",
    "Theory on trial: how ‖∇f‖² falls with R, 𝓘, M and ρ on quadratics",
    write,
    lambda scale: f"{len(trial.cells(scale))} measurements, minutes on a CPU",
)
