"""Accuracy against what goes wrong: methods side by side, under the same conditions.

Three figures: against failures, against the share of liars, and against what is sent;
each on built-in digits, and with two points a curve on CIFAR-10. The same seeds draw
the same failures and liars for every method, so curves differ by the methods and not by
who happened to fail or to lie.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from afga_jax.runs import record
from afga_jax.runs.config import Config
from afga_jax.runs.grid import Cell
from afga_jax.runs.papers import cells, estimate, points
from afga_jax.runs.papers.afga import LABELS
from afga_jax.runs.papers.declaration import Study
from afga_jax.runs.papers.points import FINAL, distinct
from afga_jax.runs.record import Run, write_text
from afga_jax.runs.report import curves_file, figures
from afga_jax.runs.report.results import results
from afga_jax.runs.report.tables import markdown, measured

_LABELS = {algo: LABELS[algo] for algo in ("fedavg", "fedamsgrad", "cafga", "afga")}
_GOSSIP = ("cafga", "afga")
_DEMO = {"dataset": "digits", "setting": "demo", "participation": 0.1, "num_seeds": 3}


class Panel(NamedTuple):
    """Curves of several methods over one condition.

    Attributes:
      title: What is varied.
      field: The name in `Config` of the value that is varied.
      values: Its values; zero or None: it is off.
      algos: The methods; others are not touched by it.
      given: Settings that go with a value, where it is not off.
      off: Settings in their place where it is.
      along: `run -> x` in the figure; None: the value that is varied, in percent.
    """

    title: str
    field: str
    values: tuple[float | None, ...]
    algos: tuple[str, ...] = tuple(_LABELS)
    given: Mapping[str, Any] = {}
    off: Mapping[str, Any] = {}
    along: Callable[[Run], float] | None = None

    def settings(self, algo: str, value: float | None) -> dict[str, Any]:
        """What sets one run of the panel apart."""
        if not value:
            return {"algo": algo, **self.off}
        chosen = {"algo": algo, **self.given, self.field: value}
        if algo not in _GOSSIP:
            chosen.pop("compress_gossip", None)
        return chosen


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
      took: How long it takes, for people.
    """

    name: str
    title: str
    above: str
    common: Mapping[str, Any]
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]
    took: str = "half a minute each on one core"

    def points(self, scale: str, kept: Path) -> list[Point]:
        """All runs; those that panels share are one run.

        Args:
          scale: The size; `smoke` has two runs, the others are the same.
          kept: The folder of runs, by configuration.
        """
        panels, common = self.panels, {**self.common, "scale": "small"}
        if scale == "smoke":
            first, common = self.panels[0], {**_DEMO, **points.SMOKE}
            panels = (
                first._replace(values=first.values[-1:], algos=("fedavg", "afga")),
            )
        # All runs have the same columns in a table, whatever is varied.
        names = {name: None for p in panels for name in ("algo", *p.given, p.field)}
        asked = []
        for panel in panels:
            for algo, value in itertools.product(panel.algos, panel.values):
                chosen = panel.settings(algo, value)
                run = points.cell({**common, **chosen}, {**names, **chosen}, kept)
                asked.append(Point(panel, algo, value, run))
        return asked

    def study(self) -> Study:
        """As a command knows it."""
        more = {"seconds": self.seconds, "only": self.only}
        return points.study(self, _row, _table, _draw, **more)

    def only(self, expression: str) -> Study:
        """The same with fewer lines.

        Raises:
          ValueError: None is left.
        """
        lines: list[str] = []
        kept: list[Panel] = []
        for panel in self.panels:
            names = {algo: f"{panel.title}, {_LABELS[algo]}" for algo in panel.algos}
            lines += names.values()
            algos = [a for a, name in names.items() if cells.matches(expression, name)]
            kept += [panel._replace(algos=tuple(algos))] if algos else []
        if not kept:
            raise ValueError(
                f"--only={expression} leaves nothing of {self.name}: its lines are "
                f"{'; '.join(sorted(lines))}."
            )
        return self._replace(panels=tuple(kept)).study()

    def seconds(self, scale: str, kept: Path) -> float:
        """What its runs took, whenever they ran."""
        runs = [record.read(cell.folder) for cell in distinct(self.points(scale, kept))]
        return sum((run.summary or {})["wall_seconds"] for run in runs)


def sent(run: Run, kinds: tuple[str, ...]) -> float:
    """Megabytes that were sent in a run, by the ledger's sizes; mean over its seeds.

    Args:
      run: A run.
      kinds: Of `uploads` and `gossip_messages`.
    """
    costs = estimate.costs_of(Config.from_dict(run.config))
    sizes = {"uploads": costs.upload_size, "gossip_messages": costs.gossip_size}
    (result,) = results([run])
    return sum(result.totals[kind] * sizes[kind] for kind in kinds) / 1e6


_uploads = functools.partial(sent, kinds=("uploads",))
_all_sent = functools.partial(sent, kinds=("uploads", "gossip_messages"))


def _row(pair: tuple[Point, Run]) -> dict[str, object]:
    point, run = pair
    return {
        "panel": point.panel.title,
        "varied": point.panel.field,
        "value": point.value,
        "algorithm": point.algo,
        **points.outcome(run),
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
    sent = "" if panel.along is None else f" ({panel.along(run):.3g} MB)"
    return measured(results([run])[0].accuracy, 2) + sent


def _by_panel(pairs: list[tuple[Point, Run]]) -> list[tuple[Panel, list]]:
    """Panels in their order, each with its points and runs."""
    panels = {point.panel.title: point.panel for point, _ in pairs}
    return [
        (panel, [pair for pair in pairs if pair[0].panel.title == title])
        for title, panel in panels.items()
    ]


def _draw(above: str, pairs: list[tuple[Point, Run]], path: Path) -> None:
    """The figure, and beside it the curves of all runs."""
    each = {point.cell.folder: run for point, run in pairs}
    write_text(path.with_name("curves.csv"), curves_file.text(list(each.values())))
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
        f"{FINAL} Rates were not tuned again for any failure.",
        "FedAvg and FedAMSGrad have no links between clients.",
    ),
)

_liars = functools.partial(Panel, field="liars", values=(0.0, 0.1, 0.2, 0.3))
_FLIP = {"attack": "sign_flip", "attack_scale": 3.0}
_LYING = Conditions(
    "conditions-liars",
    "Accuracy against the share of liars, with and without a defence, digits",
    "digits, half of the clients upload, 60 rounds, 3 seeds; liars send −3Δ",
    {
        **{"dataset": "digits", "participation": 0.5, "num_seeds": 3},
        **{"rounds": 60, "eval_every": 3, "checkpoint_every": 60},
    },
    (
        _liars("liars, mean at the server", given={**_FLIP, "aggregator": "mean"}),
        _liars(
            "liars, median at the server",
            given={**_FLIP, "aggregator": "median"},
            off={"aggregator": "median"},
        ),
    ),
    (f"{FINAL} Rates were not tuned again for any share.",),
)

_compressed = functools.partial(
    Panel,
    field="compress_ratio",
    values=(None, 0.25, 0.05, 0.01),
    given={"compress_uploads": "top_k", "compress_gossip": "top_k"},
)
_BITS = Conditions(
    "conditions-bits",
    "Accuracy against what is sent, uploads and gossip compressed, digits",
    "digits, 40 clients, 4 upload, 80 rounds, 3 seeds; top-k of all, 25, 5 and 1 %",
    _DEMO,
    (
        _compressed("uploads", along=_uploads),
        _compressed("uploads and gossip", along=_all_sent),
    ),
    (
        f"{FINAL} Rates were not tuned again for any compressor.",
        "Columns: the share of the numbers that top-k sends; off: all of them, without "
        "their places. Both tables are of the same runs. Megabytes are those of a "
        "whole run; x_r, which the server sends, is never compressed and not counted.",
    ),
)

_CIFAR = {"dataset": "cifar10", "setting": "2", "rounds": 100, "eval_every": 5}


def _on_cifar(
    digits: Conditions, ends: tuple[float | None, ...], more: str = ""
) -> Conditions:
    """The same on CIFAR-10: two points a curve, one seed, 100 of the paper's rounds.

    Args:
      digits: The figure on digits.
      ends: The two values.
      more: What is to be said above the figure beside its setting.
    """
    return digits._replace(
        name=f"{digits.name}-cifar10",
        title=digits.title.replace("digits", "CIFAR-10"),
        above=f"CIFAR-10, 50 clients, 5 upload, 100 rounds, 1 seed{more}",
        common=_CIFAR,
        panels=tuple(panel._replace(values=ends) for panel in digits.panels),
        notes=(
            "One seed and 100 rounds, far from converged: the mean of the last five "
            "evaluations, without a spread.",
            *digits.notes[1:],
        ),
        took="five to twenty minutes each on one core",
    )


FIGURES = (
    *(_FAILURES, _LYING, _BITS),
    _on_cifar(_FAILURES, (0.0, 0.5)),
    _on_cifar(_LYING, (0.0, 0.2), "; liars send −3Δ"),
    _on_cifar(_BITS, (None, 0.05), "; top-k of all and 5 %"),
)
STUDIES = tuple(figure.study() for figure in FIGURES)
