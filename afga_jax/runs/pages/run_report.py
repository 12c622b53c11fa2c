"""The report: one or several runs on a page that can be sent.

All numbers are those of the records (`runs.record`) and of the functions that make the
tables (`runs.report`): means over seeds with one sample standard deviation.
"""

import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from afga_jax import data
from afga_jax.runs import config as configuration
from afga_jax.runs import main, record, settings
from afga_jax.runs.config import Config
from afga_jax.runs.experiment.workload import make_workload
from afga_jax.runs.pages.explorer import MOST_CLIENTS
from afga_jax.runs.pages.labels import label_counts
from afga_jax.runs.pages.page import Page, fill
from afga_jax.runs.record import Run
from afga_jax.runs.report import break_even, cautions, figures, prices, results, tables
from afga_jax.runs.report.prices import KINDS, Prices
from afga_jax.training.client_metrics import ClientMetrics
from afga_jax.typing import ClientData

#: Name of the file in a run's folder.
FILE = "report.html"

# Metrics that have curves, in the order of the choice, with their names for people.
_METRICS = {
    "test_accuracy": "test accuracy",
    "test_loss": "test loss",
    "train_loss": "training loss",
    "consensus": "distance between clients",
    "spread": "spread of the uploads",
    "delta_norm": "‖Δ‖",
    "f_local": "f_local",
    "f_global": "f_global",
}
_TOTALS = {
    "gradients": "gradients",
    "uploads": "uploads",
    "gossip_messages": "messages between clients",
    "bytes": "bytes",
    "hours": "simulated hours",
    "seconds": "seconds it took",
}
# Points of a curve, and ratios of a line, that a screen can show.
_MOST_POINTS, _RATIOS = 600, 60
# Between two pages of a run that is watched: at least so long, and so many times as
# long as the last one took to write.
_LEAST_SECONDS, _FACTOR = 2.0, 20.0


@dataclass(frozen=True)
class RunView:
    """One run of a report.

    Attributes:
      name: What sets it apart from the others.
      folder: Its folder; None: its curves are from a file.
      status: Whether it is finished, and if not, why.
      command: What one types to repeat it.
      versions: Packages, and the machine's kind.
      seeds: Number of its seeds.
      rounds: The rounds that have points.
      x: Means over seeds of what an axis can show, by metric.
      mean: Means over seeds, by metric.
      deviation: Standard deviations over seeds, by metric.
      paper: The paper's accuracy, from 0 to 1, if the run is in its setting.
    """

    name: str
    folder: str | None
    status: str
    command: str | None
    versions: dict[str, str]
    seeds: int
    rounds: list[int]
    x: dict[str, list[float]]
    mean: dict[str, list[float]]
    deviation: dict[str, list[float]]
    paper: float | None


@dataclass(frozen=True)
class Partition:
    """Who holds how many samples of which class.

    Attributes:
      runs: Names of the runs with this partition.
      counts: Samples by client and class; None: not known.
      label_names: Names of the classes.
      note: Why it is not known, or how much of it is shown.
    """

    runs: list[str]
    counts: list[list[int]] | None
    label_names: list[str]
    note: str


@dataclass(frozen=True)
class ReportView:
    """All that a report shows.

    Attributes:
      title: Names of the runs.
      live: Whether a run is going on, so that the page looks for a newer one.
      cautions: What a reader must know before comparing, a line each.
      settings: Name, whether it differs, and the value in each run.
      table: The comparison, head first.
      table_notes: What its signs mean.
      axes: Name and label of what curves can be drawn against.
      metrics: Name and label of what can be drawn.
      runs: The runs.
      partitions: Who holds which labels.
      clients: Every client's accuracy or loss, of the runs that logged it.
      ledger: What was computed and sent, head first.
      break_even: Where gossip overtakes the others; `reason`: why that is not known.
    """

    title: str
    live: bool
    cautions: list[str]
    settings: list[tuple[str, bool, list[str]]]
    table: list[list[str]]
    table_notes: list[str]
    axes: list[tuple[str, str]]
    metrics: list[tuple[str, str]]
    runs: list[RunView]
    partitions: list[Partition]
    clients: list[dict[str, Any]]
    ledger: list[list[str]]
    break_even: dict[str, Any]


def report(
    runs: Sequence[Run],
    *,
    live: bool = False,
    partitions: list[Partition] | None = None,
) -> Page:
    """A page of one or several runs.

    Args:
      runs: The runs, from `afga_jax.runs.record.read`.
      live: Whether a run is going on; the page then reloads itself.
      partitions: Who holds which labels, from an earlier report of the same runs; None:
        dealt again, if the data are on this machine.

    Raises:
      ValueError: There is nothing to show of a run.
    """
    return fill("report", view(runs, live=live, partitions=partitions))


def view(
    runs: Sequence[Run],
    *,
    live: bool = False,
    partitions: list[Partition] | None = None,
) -> ReportView:
    """What `report` shows, as plain values."""
    for run in runs:
        if not len(results.evaluated_rounds(run)):
            raise ValueError(
                f"{run.folder} has no evaluated round yet, so there is nothing to "
                "show: wait for its first evaluation, or resume it."
            )
    outcomes = results.results(runs)
    names = [outcome.label for outcome in outcomes]
    columns, notes = tables.cells(runs, outcomes)
    metrics = {
        name: label
        for name, label in _METRICS.items()
        if any(np.isfinite(results.values(run, name)).any() for run in runs)
    }
    axes = {axis.metric: axis.label for axis in figures.AXES}
    return ReportView(
        title=", ".join(names),
        live=live,
        cautions=cautions(runs),
        settings=_settings(runs),
        table=[list(columns), *map(list, zip(*columns.values(), strict=True))],
        table_notes=notes,
        axes=list(axes.items()),
        metrics=list(metrics.items()),
        runs=[_run(*pair, axes, metrics) for pair in zip(runs, outcomes, strict=True)],
        partitions=_partitions(runs, names) if partitions is None else partitions,
        clients=[
            about
            for run, name in zip(runs, names, strict=True)
            if (about := _clients(run, name)) is not None
        ],
        ledger=_ledger(outcomes),
        break_even=_break_even(runs, names),
    )


class Live:
    """Rewrites a run's report while it runs, whole or not at all.

    Args:
      config: The run's settings.
      facts: Facts of the run's record.
      folder: The run's folder, where the report is.
      clients: The clients' data.
    """

    def __init__(
        self, config: Config, facts: dict[str, Any], folder: Path, clients: ClientData
    ):
        self._run = Run(config.to_dict(), [], facts=facts, folder=folder)
        names = facts.get("label_names") or []
        self._partitions = [_partition([config.algo], clients, names)]
        self._next = 0.0

    def write(self, metrics: list[record.Row]) -> None:
        """Writes what was measured so far, unless it did so a moment ago."""
        begun = time.perf_counter()
        if begun < self._next or not metrics:
            return
        run = self._run._replace(metrics=metrics)
        page = report([run], live=True, partitions=self._partitions)
        assert run.folder is not None
        page.save(run.folder / FILE)
        now = time.perf_counter()
        self._next = now + max(_LEAST_SECONDS, _FACTOR * (now - begun))

    def end(self, run: Run) -> None:
        """Writes the run as it ended or was stopped: the page waits for no more."""
        if run.folder is None or not len(results.evaluated_rounds(run)):
            return
        report([run], partitions=self._partitions).save(run.folder / FILE)


def command_line(config: Config) -> str:
    """What one types to repeat a run.

    >>> from afga_jax.runs.settings import resolve
    >>> print(command_line(resolve({"algo": "afga"}, dataset="digits").config))
    python -m experiments.digits --algo=afga --setting=2 --scale=small
    """
    chosen = settings.choices(config)
    kinds = {field.name: field for field in configuration.fields()}
    words = [f"--dataset={config.dataset}"]
    program = "digits"
    for name, command in main.COMMANDS.items():
        if command.dataset == config.dataset:
            program, words = name, []
    for name, value in chosen.items():
        if kinds[name].neutral:
            continue
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no{name}")
        else:
            given = value if isinstance(value, tuple) else (value,)
            words.append(f"--{name}={','.join(map(str, given))}")
    return shlex.join(["python", "-m", f"experiments.{program}", *words])


def _run(
    run: Run, outcome: results.RunResult, axes: Iterable[str], metrics: Iterable[str]
) -> RunView:
    rounds = results.evaluated_rounds(run)
    places = np.linspace(0, len(rounds) - 1, min(len(rounds), _MOST_POINTS))
    kept = np.unique(places.round().astype(int))
    pairs = {
        name: results.mean_and_deviation(results.values(run, name)[:, kept])
        for name in metrics
    }
    mean = {name: pair[0].tolist() for name, pair in pairs.items()}
    deviation = {name: pair[1].tolist() for name, pair in pairs.items()}
    x = {n: results.values(run, n).mean(0)[kept].tolist() for n in axes if n != "round"}
    paper = outcome.paper if outcome.as_in_paper else None
    # Else there was no command, or only curves are known.
    typed = run.config.get("parts") is None and run.config.get("dataset")
    return RunView(
        name=outcome.label,
        folder=None if run.folder is None else str(run.folder),
        status=_status(run, outcome),
        command=command_line(Config.from_dict(run.config)) if typed else None,
        versions=run.versions or {},
        seeds=len(outcome.accuracy),
        rounds=rounds[kept].tolist(),
        x={"round": rounds[kept].tolist(), **x},
        mean=mean,
        deviation=deviation,
        paper=paper and paper.accuracy / 100,
    )


def _status(run: Run, outcome: results.RunResult) -> str:
    if outcome.diverged_at is not None:
        return f"diverged in round {outcome.diverged_at}"
    if outcome.finished:
        return f"finished after {outcome.rounds} rounds"
    last = run.config.get("rounds")
    return f"running or stopped: evaluated to round {outcome.rounds} of {last}"


def _settings(runs: Sequence[Run]) -> list[tuple[str, bool, list[str]]]:
    """Those that differ come first; what no run has set is left out."""
    rows = []
    for field in configuration.fields():
        cells = [run.config.get(field.name) for run in runs]
        if field.neutral or all(cell is None for cell in cells):
            continue
        differs = any(cell != cells[0] for cell in cells)
        shown = [tables.NOTHING if cell is None else str(cell) for cell in cells]
        rows.append((field.name, differs, shown))
    return sorted(rows, key=lambda row: not row[1])


def _partitions(runs: Sequence[Run], names: Sequence[str]) -> list[Partition]:
    """One for all runs whose samples are dealt alike."""
    dealt = [f.name for f in configuration.fields("data") if not f.neutral]
    alike: dict[tuple, list[int]] = {}
    for number, run in enumerate(runs):
        if run.config.get("dataset"):
            parts = run.config.get("parts") or {}
            key = tuple(str(run.config.get(n)) for n in (*dealt, "num_clients"))
            key += (str(parts.get("data")),)
            alike.setdefault(key, []).append(number)
    return [
        _dealt(runs[numbers[0]], [names[number] for number in numbers])
        for numbers in alike.values()
    ]


def _dealt(run: Run, names: list[str]) -> Partition:
    if run.config.get("parts") is not None:
        reason = "The data are one's own, which the run's folder does not hold."
        return Partition(names, None, [], reason)
    config = Config.from_dict(run.config)
    access = data.Access(config.data_dir, config.cache_dir, offline=True)
    try:
        clients = make_workload(config, access).clients
    except (data.DataError, OSError) as error:
        reason = f"The data set is not on this machine ({error})"
        return Partition(names, None, [], reason)
    return _partition(names, clients, (run.facts or {}).get("label_names") or [])


def _partition(
    names: list[str], clients: ClientData, labels: Sequence[str]
) -> Partition:
    number = len(clients.sizes)
    shown = np.arange(min(number, MOST_CLIENTS))
    counts = label_counts(clients, shown)
    if counts is None:
        note = "The samples of this data set have no classes."
        return Partition(names, None, [], note)
    part = f"The first {len(shown)} of {number:,} clients."
    note = part if len(shown) < number else ""
    return Partition(names, counts.tolist(), [str(name) for name in labels], note)


def _clients(run: Run, name: str) -> dict[str, Any] | None:
    """Every client's metric, ascending; None: the run did not log it."""
    if run.folder is None or not (run.folder / record.CLIENTS).exists():
        return None
    arrays = record.read_clients(run.folder)
    metric = "accuracy" if "accuracy" in arrays else "loss"
    each = ClientMetrics({metric: arrays[metric].mean(0)}, arrays["sizes"])
    return {
        "run": name,
        "metric": metric,
        "round": int(arrays["round"]),
        "values": np.sort(each.values[metric]).tolist(),
        "quantiles": {
            f"{level} %": float(v) for level, v in each.quantiles(metric).items()
        },
        "worst_tenth": float(each.worst_tenth(metric)),
    }


def _ledger(outcomes: Sequence[results.RunResult]) -> list[list[str]]:
    digits = {name: 2 if name == "hours" else 0 for name in _TOTALS}
    rows = [["run", "rounds", *_TOTALS.values()]]
    for outcome in outcomes:
        cells = [tables.number(outcome.totals[name], d) for name, d in digits.items()]
        rows.append([outcome.label, f"{outcome.rounds:,}", *cells])
    return rows


def _break_even(runs: Sequence[Run], names: Sequence[str]) -> dict[str, Any]:
    """Hours to an accuracy that all reach, by the ratio of the links' prices."""
    asked = Prices()
    try:
        methods = prices.ledgers(runs, names)
        target = prices.common_target(methods)
    except ValueError as error:
        return {"reason": str(error)}
    ratios = np.geomspace(asked.lowest_ratio, asked.highest_ratio, _RATIOS)
    kinds = []
    for kind in KINDS:
        each, loads = asked.server(kind), break_even.loads(methods, target, kind)
        hours = [
            [loads[n].hours(r, each) for r in ratios] if n in loads else None
            for n in range(len(methods))
        ]
        rows = break_even.overtaking(methods, target, kind)
        kinds.append(
            {"kind": kind, "ratio": asked.ratio(kind), "hours": hours, "table": rows}
        )
    return {"target": target, "ratios": ratios.tolist(), "kinds": kinds}
