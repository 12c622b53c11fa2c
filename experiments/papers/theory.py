"""The rates on trial, as a table and a figure; `trial` says what is measured."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from afga_jax.record import write_text
from afga_jax.report import drawing
from afga_jax.report.layout import csv_lines, markdown
from experiments.papers import trial
from experiments.papers.declaration import Study
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
    write_text(out / "results.csv", csv_lines([_row(one) for one in points]))
    _draw(points, out / "figure.png")
    return [table]


def _table(points: Sequence[Point]) -> str:
    parts = []
    fits = [
        [
            _NAMES[axis] + (f", R = {rounds}" if axis != "R" else ""),
            _LABELS[algo],
            f"{ours:+.2f} ± {error:.2f}",
            f"{SLOPES[algo][axis]:+.1f}",
        ]
        for axis, algo, rounds, ours, error in _fits(points)
    ]
    if fits:
        head = ["slope of ‖∇f‖² against", "", "measured", "bound's leading term"]
        parts.append(markdown(head, fits))
        parts.append("± is the standard error over seeds of slopes fitted to each.")
    lines = [
        [
            one.axis,
            _LABELS[one.algo],
            f"{one.rounds}",
            "–" if one.x is None else f"{one.x:.4g}",
            f"{one.values.mean():.4f} ± {one.values.std(ddof=1):.4f}",
            {True: "yes", False: "no", None: "–"}[one.holds],
        ]
        for one in points
    ]
    head = ["axis", "", "R", "value", "mean ‖∇f‖²", "theory's conditions hold"]
    parts.append(markdown(head, lines))
    parts.append(trial.__doc__.split("\n\n")[1].replace("\n", " "))
    return "\n\n".join(parts) + "\n"


def _fits(points: Sequence[Point]) -> list[tuple[str, str, int, float, float]]:
    """Axis, algorithm, R, the slope's mean over seeds and its standard error."""
    found = []
    for here in _curves(points):
        first = here[0]
        if first.axis in SLOPES[first.algo] and len(here) > 1:
            x = [one.x for one in here]
            each = [slope(x, y) for y in np.array([one.values for one in here]).T]
            error = np.std(each, ddof=1) / np.sqrt(len(each))
            about = (first.axis, first.algo, first.rounds)
            found.append((*about, float(np.mean(each)), float(error)))
    return found


def _curves(points: Sequence[Point]) -> list[list[Point]]:
    """Points that differ in what is varied only."""
    groups: dict[tuple, list[Point]] = {}
    for one in points:
        rounds = None if one.axis == "R" else one.rounds
        groups.setdefault((one.axis, one.algo, rounds), []).append(one)
    return [sorted(some, key=lambda one: one.x or 0) for some in groups.values()]


def _row(one: Point) -> dict[str, object]:
    return {
        "axis": one.axis,
        "algorithm": one.algo,
        "R": one.rounds,
        "value": one.x,
        "mean": one.values.mean(),
        "std": one.values.std(ddof=1),
        "seeds": len(one.values),
        "conditions": one.holds,
    }


def _draw(points: Sequence[Point], path: Path) -> None:
    figure = drawing.blank(9.0, 7.5)
    axes = figure.subplots(2, 2, sharey=True).ravel()
    places = dict(zip(_NAMES, axes, strict=True))
    for here in _curves(points):
        _measured(places[here[0].axis], here)
    for axis, panel in places.items():
        left = axis in ("R", "M")
        drawing.label_axes(panel, _NAMES[axis], "mean of ‖∇f‖²" if left else "")
        panel.set_yscale("log")
        if axis != "ρ":
            panel.set_xscale("log", base=2)
    drawing.legend(figure)
    figure.suptitle("Theory on trial: quadratics with σ_g = σ = 2, 32 clients", size=11)
    figure.savefig(path, dpi=150)


def _measured(panel: "Axes", here: Sequence[Point]) -> None:
    """Points with their deviation, and the bound's slope through the middle one."""
    first, means = here[0], np.array([one.values.mean() for one in here])
    color = drawing.color(list(SLOPES).index(first.algo))
    # R is an axis of its own in the first panel.
    long = first.axis != "R" and first.rounds > trial.ROUNDS[0]
    label = _LABELS[first.algo] + (f", R = {first.rounds}" if first.axis != "R" else "")
    if first.axis == "ρ":
        for one in here:
            _name(panel, one)
    if first.x is None:  # no ρ: the same whatever the graph
        panel.axhline(means[0], color=color)
        return
    x = np.array([one.x for one in here])
    deviations = [one.values.std(ddof=1) for one in here]
    shape = ("s" if long else "o") + ("" if first.axis == "ρ" else "-")
    face = "white" if long else color
    panel.errorbar(x, means, deviations, fmt=shape, color=color, mfc=face, label=label)
    theirs = SLOPES[first.algo].get(first.axis)
    if theirs is not None and len(here) > 1:
        middle = len(here) // 2
        bound = means[middle] * (x / x[middle]) ** theirs
        text = f"{_LABELS[first.algo]}, the bound's slope"
        panel.plot(x, bound, "--", color=color, linewidth=1, label=text)


def _name(panel: "Axes", one: Point) -> None:
    if one.x is not None:
        where = (one.x, one.values.mean())
        side = "left" if one.x < 0.5 else "right"
        near = {"xytext": (0, -14), "textcoords": "offset points", "ha": side}
        panel.annotate(one.topology, where, fontsize=8, **near)


STUDY = Study(
    "theory",
    "Theory on trial: how ‖∇f‖² falls with R, 𝓘, M and ρ on quadratics",
    write,
    lambda scale: f"{len(trial.cells(scale))} measurements, minutes on a CPU",
)
