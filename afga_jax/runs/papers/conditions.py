"""Accuracy against what goes wrong: methods side by side, under the same conditions.

Three figures on built-in digits: against failures, against the share of liars, and
against what is sent. The same seeds draw the same failures and liars for every method,
so curves differ by the methods and not by who happened to fail or to lie.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from afga_jax.optimizers.compressors import COMPRESSORS
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
_GOSSIP = ("cafga", "afga")
_DEMO = {"dataset": "digits", "setting": "demo", "participation": 0.1, "num_seeds": 3}
_SMOKE = {
    "scale": "smoke",
    "rounds": 2,
    "num_seeds": 1,
    "hidden": (8,),
    "eval_every": 1,
}


class Panel(NamedTuple):
    """Curves of several methods over one condition.

    Attributes:
      title: What is varied.
      field: The name in `Config` of the value that is varied.
      values: Its values; None: it is off.
      algos: The methods; others are not touched by it.
      given: Settings of all the panel's runs.
      along: `run -> x` in the figure; None: the value that is varied, in percent.
    """

    title: str
    field: str
    values: tuple[float | None, ...]
    algos: tuple[str, ...] = tuple(_LABELS)
    given: Mapping[str, Any] = {}
    along: Callable[[Run], float] | None = None

    def settings(self, algo: str, value: float | None) -> dict[str, Any]:
        """What sets one run of the panel apart."""
        return {"algo": algo, **self.given, self.field: value}


class Point(NamedTuple):
    """A run of a curve.

    Attributes:
      panel: The panel of the curve.
      algo: The method.
      value: What the condition is there.
      cell: The run's configuration and folder.
    """

    panel: Panel
    algo: str
    value: float | None
    cell: Cell


class Conditions(NamedTuple):
    """A figure.

    Attributes:
      name: Name on the command line.
      title: What it shows.
      above: The line above the figure.
      common: Settings of all runs.
      panels: What is drawn side by side.
      notes: Lines below the table.
    """

    name: str
    title: str
    above: str
    common: Mapping[str, Any]
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]

    def points(self, scale: str, kept: Path) -> list[Point]:
        """All runs; those that panels share are one run.

        Args:
          scale: The size; `smoke` has two runs, the others are the same.
          kept: The folder of runs, by configuration.
        """
        panels, more = self.panels, dict[str, Any](scale="small")
        if scale == "smoke":
            first, more = self.panels[0], _SMOKE
            panels = (
                first._replace(values=first.values[-1:], algos=("fedavg", "afga")),
            )
        return [
            self._point(panel, algo, value, more, kept)
            for panel in panels
            for algo in panel.algos
            for value in panel.values
        ]

    def _point(self, panel: Panel, algo: str, value, more, kept: Path) -> Point:
        asked = panel.settings(algo, value)
        chosen = _without_compressor(asked)
        resolved = resolve({**self.common, **more, **chosen})
        folder = kept / fingerprint(resolved.config)
        values = {name: chosen.get(name) for name in asked}  # a column for each
        return Point(panel, algo, value, Cell(values, resolved, folder))

    def write(self, scale: str, out: Path, kept: Path) -> list[str]:
        """Trains what is not finished; writes the figure and the numbers.

        Returns:
          The table, and what is to be said of it.
        """
        from afga_jax.runs.commands import sweep

        asked = self.points(scale, kept)
        trained = sweep.train([point.cell for point in asked], out)
        pairs = [(point, run) for point, (_, run) in zip(asked, trained, strict=True)]
        write_text(out / "results.csv", csv_lines([_row(*pair) for pair in pairs]))
        _draw(self.above, pairs, out / "figure.png")
        return [_table(pairs), "\n".join(f"- {note}" for note in self.notes)]

    def study(self) -> Study:
        """As a command knows it."""
        size = lambda scale: (  # noqa: E731
            f"{len({p.cell.folder for p in self.points(scale, Path())})} runs, a few "
            "minutes on two cores"
        )
        return Study(self.name, self.title, self.write, size)


def _without_compressor(values: dict[str, Any]) -> dict[str, Any]:
    """The same without compressors that have nothing to do."""
    if "compress_ratio" not in values:
        return values
    left_out = [] if values["algo"] in _GOSSIP else ["compress_gossip"]
    if values["compress_ratio"] is None:
        left_out = ["compress_uploads", "compress_gossip", "compress_ratio"]
    return {name: value for name, value in values.items() if name not in left_out}


def sent(run: Run, kinds: tuple[str, ...]) -> float:
    """Megabytes that were sent in a run, mean over its seeds.

    Args:
      run: A run in which all messages of these kinds are compressed alike.
      kinds: Of `uploads` and `gossip_messages`.
    """
    size = (run.facts or {})["parameters"]
    bits, compressor = 32 * size, run.config.get("compress_uploads")
    if compressor is not None:
        bits = COMPRESSORS[compressor](run.config["compress_ratio"]).bits(size)
    (result,) = results([run])
    return sum(result.totals[kind] for kind in kinds) * bits / 8e6


_uploads = functools.partial(sent, kinds=("uploads",))
_all_sent = functools.partial(sent, kinds=("uploads", "gossip_messages"))


def _row(point: Point, run: Run) -> dict[str, object]:
    (result,) = results([run])
    accuracy, deviation = map(float, mean_and_deviation(result.accuracy))
    return {
        "panel": point.panel.title,
        "varied": point.panel.field,
        "value": point.value,
        "algorithm": point.algo,
        "seeds": run.config["num_seeds"],
        "rounds": result.rounds,
        "accuracy": accuracy,
        "accuracy_std": deviation if run.config["num_seeds"] > 1 else None,
        "uploads_total": result.totals["uploads"],
        "gossip_messages_total": result.totals["gossip_messages"],
        "uploads_megabytes": _uploads(run),
        "uploads_and_gossip_megabytes": _all_sent(run),
        "empty_rounds_of_last_seed": run.metrics[-1].get("empty_rounds_total"),
    }


def _table(pairs: list[tuple[Point, Run]]) -> str:
    parts = []
    for panel, own in _by_panel(pairs):
        rows = [
            [_LABELS[algo], *(_entry(panel, run) for p, run in own if p.algo == algo)]
            for algo in panel.algos
        ]
        shown = ["off" if v is None else f"{v:.0%}" for v in panel.values]
        heading = panel.title[0].upper() + panel.title[1:]
        parts.append(f"### {heading}\n\n{markdown(['accuracy, %', *shown], rows)}")
    return "\n\n".join(parts)


def _entry(panel: Panel, run: Run) -> str:
    accuracy = measured(results([run])[0].accuracy, 2)
    return (
        accuracy if panel.along is None else f"{accuracy} ({panel.along(run):.3g} MB)"
    )


def _by_panel(pairs: list[tuple[Point, Run]]) -> list[tuple[Panel, list]]:
    """Panels in their order, each with its points and runs."""
    panels = {point.panel.title: point.panel for point, _ in pairs}
    return [
        (panel, [pair for pair in pairs if pair[0].panel.title == title])
        for title, panel in panels.items()
    ]


def _draw(above: str, pairs: list[tuple[Point, Run]], path: Path) -> None:
    panels = _by_panel(pairs)
    figure = figures.blank(4.2 * len(panels) + 0.4, 3.9)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True).ravel()
    for number, ((panel, own), axis) in enumerate(zip(panels, axes, strict=True)):
        for color, (algo, label) in enumerate(_LABELS.items()):
            runs = [run for point, run in own if point.algo == algo]
            if runs:
                sample = np.stack([r.accuracy for r in results(runs)], axis=1)
                x = 100 * np.array([value or 0.0 for value in panel.values])
                if panel.along is not None:
                    x = np.array([panel.along(run) for run in runs])
                figures.curve(axis, x, sample, color, label)
        if panel.along is not None:
            axis.set_xscale("log")
        unit = "%" if panel.along is None else "MB"
        up = "" if number else "test accuracy, %"
        figures.label_axes(axis, f"{panel.title}, {unit}", up)
    figures.legend(figure)
    figure.suptitle(above, fontsize=11)
    figure.savefig(path, dpi=150)


_FINAL = (
    "Final accuracy: mean ± standard deviation over the seeds of the last five "
    "evaluations."
)
_RATES = (0.0, 0.15, 0.3, 0.5)
_FAILURES = Conditions(
    "conditions-failures",
    "Accuracy against clients that leave in a round and links that are down, digits",
    "digits, 40 clients, 4 upload, 80 rounds, 3 seeds",
    _DEMO,
    (
        Panel("clients that leave in a round", "client_dropout", _RATES),
        Panel("links that are down at a step", "link_failure", _RATES, _GOSSIP),
    ),
    (
        f"{_FINAL} Rates were not tuned again for any failure.",
        "FedAvg and FedAMSGrad have no links between clients.",
    ),
)

_LIARS = (0.0, 0.1, 0.2, 0.3)
_LYING = Conditions(
    "conditions-liars",
    "Accuracy against the share of liars, with and without a defence, digits",
    "digits, half of the clients upload, 60 rounds, 3 seeds; liars send −3Δ",
    {
        **{"dataset": "digits", "participation": 0.5, "num_seeds": 3},
        **{"rounds": 60, "eval_every": 3, "checkpoint_every": 60},
        **{"attack": "sign_flip", "attack_scale": 3.0},
    },
    (
        Panel(
            "liars, mean at the server", "liars", _LIARS, given={"aggregator": "mean"}
        ),
        Panel(
            "liars, median at the server",
            "liars",
            _LIARS,
            given={"aggregator": "median"},
        ),
    ),
    (f"{_FINAL} Rates were not tuned again for any share.",),
)

_RATIOS = (None, 0.25, 0.05, 0.01)
_TOP_K = {"compress_uploads": "top_k", "compress_gossip": "top_k"}
_BITS = Conditions(
    "conditions-bits",
    "Accuracy against what is sent, uploads and gossip compressed, digits",
    "digits, 40 clients, 4 upload, 80 rounds, 3 seeds; top-k of all, 25, 5 and 1 %",
    _DEMO,
    (
        Panel("uploads", "compress_ratio", _RATIOS, given=_TOP_K, along=_uploads),
        Panel(
            "uploads and gossip",
            "compress_ratio",
            _RATIOS,
            given=_TOP_K,
            along=_all_sent,
        ),
    ),
    (
        f"{_FINAL} Rates were not tuned again for any compressor.",
        "Columns: the share of the numbers that top-k sends; off: all of them, without "
        "their places. Both tables are of the same runs. Megabytes are those of a "
        "whole run; x_r, which the server sends, is never compressed and not counted.",
    ),
)

STUDIES = tuple(each.study() for each in (_FAILURES, _LYING, _BITS))
