"""Accuracy against what goes wrong: methods side by side, with the same failures.

On built-in digits in the setting `demo`, with four clients of forty that upload. The
same seeds draw the same failures for every method, so curves differ by the methods and
not by who happened to fail.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from afga_jax.runs.grid import Cell, fingerprint
from afga_jax.runs.papers.declaration import Study
from afga_jax.runs.record import Run, write_text
from afga_jax.runs.report import figures
from afga_jax.runs.report.results import mean_and_deviation, results
from afga_jax.runs.report.tables import csv_lines, markdown, measured
from afga_jax.runs.settings import resolve

_LABELS = {
    "fedavg": "FedAvg",
    "fedamsgrad": "FedAMSGrad",
    "cafga": "CAFGA",
    "afga": "AFGA",
}
_DIGITS: Mapping[str, Any] = {
    "dataset": "digits",
    "setting": "demo",
    "participation": 0.1,
    "num_seeds": 3,
}
_SMOKE = {"scale": "smoke", "rounds": 2, "num_seeds": 1, "hidden": (8,)}


class Panel(NamedTuple):
    """Curves over one kind of failure.

    Attributes:
      title: What fails.
      field: The name in `Config` of the rate that is varied.
      rates: Its values.
      algos: The methods; others are not touched by it.
    """

    title: str
    field: str
    rates: tuple[float, ...]
    algos: tuple[str, ...]


_RATES = (0.0, 0.15, 0.3, 0.5)
_PANELS = (Panel("clients leave", "client_dropout", _RATES, tuple(_LABELS)),)


class Point(NamedTuple):
    """A run of a curve.

    Attributes:
      panel: The panel of the curve.
      algo: The method.
      rate: How often what the panel is about fails.
      cell: The run's configuration and folder.
    """

    panel: Panel
    algo: str
    rate: float
    cell: Cell


def points(scale: str, kept: Path) -> list[Point]:
    """All runs; a method without failures is one run, whatever the panel.

    Args:
      scale: The size; `smoke` has two runs, the others are the same.
      kept: The folder of runs, by configuration.
    """
    panels: tuple[Panel, ...] = _PANELS
    more: dict[str, Any] = {"scale": "small"}
    if scale == "smoke":
        panels = (_PANELS[0]._replace(rates=(0.5,), algos=("fedavg", "afga")),)
        more = _SMOKE
    made = []
    for panel in panels:
        for algo in panel.algos:
            for rate in panel.rates:
                values = {"algo": algo, panel.field: rate}
                resolved = resolve({**_DIGITS, **more, **values})
                folder = kept / fingerprint(resolved.config)
                made.append(Point(panel, algo, rate, Cell(values, resolved, folder)))
    return made


def write(scale: str, out: Path, kept: Path) -> list[str]:
    """Trains what is not finished; writes the figure and the numbers.

    Returns:
      The table.
    """
    from afga_jax.runs.commands import sweep

    asked = points(scale, kept)
    trained = sweep.train([point.cell for point in asked], out)
    pairs = [(point, run) for point, (_, run) in zip(asked, trained, strict=True)]
    write_text(out / "results.csv", csv_lines([_row(*pair) for pair in pairs]))
    _draw(pairs, out / "figure.png")
    return [_table(pairs), _SAID]


def _row(point: Point, run: Run) -> dict[str, object]:
    (result,) = results([run])
    accuracy, deviation = map(float, mean_and_deviation(result.accuracy))
    last = run.metrics[-1]
    return {
        "fails": point.panel.field,
        "rate": point.rate,
        "algorithm": point.algo,
        "seeds": run.config["num_seeds"],
        "rounds": result.rounds,
        "accuracy": accuracy,
        "accuracy_std": deviation if run.config["num_seeds"] > 1 else None,
        "uploads_total": result.totals["uploads"],
        "gossip_messages_total": result.totals["gossip_messages"],
        "empty_rounds_of_last_seed": last.get("empty_rounds_total"),
    }


def _table(pairs: list[tuple[Point, Run]]) -> str:
    parts = []
    for panel in dict.fromkeys(point.panel for point, _ in pairs):
        own = {(p.algo, p.rate): run for p, run in pairs if p.panel == panel}
        finals = {
            at: measured(results([run])[0].accuracy, 2) for at, run in own.items()
        }
        rows = [
            [_LABELS[algo], *(finals[algo, rate] for rate in panel.rates)]
            for algo in panel.algos
        ]
        head = ["accuracy, %", *(f"{rate:.0%}" for rate in panel.rates)]
        parts.append(f"### {panel.title.capitalize()}\n\n{markdown(head, rows)}")
    return "\n\n".join(parts)


def _draw(pairs: list[tuple[Point, Run]], path: Path) -> None:
    panels = list(dict.fromkeys(point.panel for point, _ in pairs))
    figure = figures.blank(4.2 * len(panels) + 0.4, 3.9)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True).ravel()
    for panel, axis in zip(panels, axes, strict=True):
        for number, (algo, label) in enumerate(_LABELS.items()):
            runs = [run for p, run in pairs if (p.panel, p.algo) == (panel, algo)]
            if runs:
                sample = np.stack([r.accuracy for r in results(runs)], axis=1)
                x = 100 * np.array(panel.rates)
                figures.curve(axis, x, sample, number, label)
        up = "test accuracy, %" if panel is panels[0] else ""
        figures.label_axes(axis, f"{panel.title}, %", up)
    figures.legend(figure)
    figure.suptitle("digits, 40 clients, 4 upload, 80 rounds, 3 seeds", fontsize=11)
    figure.savefig(path, dpi=150)


_SAID = (
    "- Final accuracy: mean ± standard deviation over the seeds of the last five "
    "evaluations. Rates were not tuned again for any failure."
)

STUDY = Study(
    "conditions-failures",
    "Accuracy against clients that leave in the middle of a round, digits",
    write,
    lambda scale: f"{len(points(scale, Path()))} runs, a few minutes on two cores",
)
