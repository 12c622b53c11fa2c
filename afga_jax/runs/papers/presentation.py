"""Ours beside the papers' numbers: a table for people, one for programs, a figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from afga_jax.runs.papers.cells import RATES, Entry
from afga_jax.runs.papers.declaration import Declaration
from afga_jax.runs.record import Run
from afga_jax.runs.report import figures, results, tables

# Metrics that become columns.
_LOSSES = {"train_loss": "train loss", "f_local": "f_local", "f_global": "f_global"}

Pair = tuple[Entry, Run]
_LABELS = {
    "train_loss": "training loss",
    "test_accuracy": "test accuracy, %",
    "f_local": "local training loss",
    "f_global": "global training loss",
}
_WIDTH, _HEIGHT = 3.6, 3.0


def markdown(pairs: Sequence[Pair], metrics: Sequence[str]) -> str:
    """A table for each panel, and what its marks mean.

    Args:
      pairs: Lines with their runs.
      metrics: What the figure shows; losses become columns here.
    """
    sources = list(dict.fromkeys(entry.rates for entry, _ in pairs))
    parts = []
    for title in dict.fromkeys(entry.panel for entry, _ in pairs):
        lines = [pair for pair in pairs if pair[0].panel == title]
        parts.append(f"### {title}\n\n{_panel(lines, metrics, sources)}")
    legend = [f"[{n}] {source}." for n, source in enumerate(sources, 1)]
    notes = [*_notes(pairs), "Rates: " + " ".join(legend)]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes)]) + "\n"


def rows(pairs: Sequence[Pair]) -> str:
    """CSV: a line for each run, numbers in full, accuracies in percent."""
    outcomes = results.results([run for _, run in pairs])
    return tables.csv_lines(
        [_row(*pair, result) for pair, result in zip(pairs, outcomes, strict=True)]
    )


def gradients_per_round(run: Run) -> float:
    """The mean over rounds and seeds; NaN: no round was evaluated."""
    (result,) = results.results([run])
    return result.totals["gradients"] / result.rounds if result.rounds else float("nan")


def draw(declaration: Declaration, pairs: Sequence[Pair], path: Path) -> None:
    """Draws the runs of a table or a figure.

    Lines are means over seeds, bands one standard deviation. Triangles at the end are
    the paper's final accuracies, where the runs have the paper's size.

    Args:
      declaration: The table or figure.
      pairs: Lines with their runs.
      path: The picture's file.
    """
    titles = list(dict.fromkeys(entry.panel for entry, _ in pairs))
    parts = [(title, metric) for title in titles for metric in declaration.metrics]
    columns = min(declaration.columns, len(parts))
    rows = -(-len(parts) // columns)
    figure = figures.blank(max(_WIDTH * columns, 6.0), _HEIGHT * rows + 1.1)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    labels = list(dict.fromkeys(entry.line.label for entry, _ in pairs))
    for panel, (title, metric) in zip(axes, parts, strict=False):
        for entry, run in pairs:
            if entry.panel == title:
                _curve(panel, entry, run, metric, labels.index(entry.line.label))
        figures.label_axes(panel, "round", _LABELS[metric])
        panel.set_title(title, fontsize=10)
    for panel in axes[len(parts) :]:
        panel.set_visible(False)
    figures.legend(figure)
    figure.suptitle(_heading(declaration.title, pairs), fontsize=11)
    figure.savefig(path, dpi=150)


def _panel(pairs: Sequence[Pair], metrics: Sequence[str], sources: list[str]) -> str:
    outcomes = results.results([run for _, run in pairs])
    labels = [entry.line.label for entry, _ in pairs]
    columns = {"": list(map(tables.with_divergence, labels, outcomes))}
    papers = [entry.line.published for entry, _ in pairs]
    if any(np.isfinite(result.accuracy).any() for result in outcomes):
        finals = [tables.measured(result.accuracy, 2) for result in outcomes]
        columns["accuracy, %"] = finals
    if any(papers):
        columns["paper, %"] = list(map(tables.paper_accuracy, papers))
    if targets := {run.config.get("target") for _, run in pairs} - {None}:
        title = tables.targets({100 * target for target in targets})
        columns[f"round at {title} %"] = [tables.reached(result) for result in outcomes]
    columns |= tables.paper_rounds(papers)
    for name in metrics:
        if name in _LOSSES:
            finals = [tables.measured(_last(run, name), 4) for _, run in pairs]
            columns[_LOSSES[name]] = finals
    columns["rounds"] = [f"{result.rounds:,}" for result in outcomes]
    computed = [tables.number(gradients_per_round(run)) for _, run in pairs]
    columns["gradients per round"] = computed
    configs = [entry.cell.config for entry, _ in pairs]
    columns["η_l, η, ε"] = [
        ", ".join(f"{getattr(config, name):.3g}" for name in RATES)
        for config in configs
    ]
    columns["from"] = [f"[{sources.index(entry.rates) + 1}]" for entry, _ in pairs]
    return tables.markdown(list(columns), list(zip(*columns.values(), strict=True)))


def _notes(pairs: Sequence[Pair]) -> list[str]:
    notes = []
    for title in dict.fromkeys(entry.panel for entry, _ in pairs):
        counts = [
            (gradients_per_round(r), e.line.label) for e, r in pairs if e.panel == title
        ]
        least, fewest = min(counts, key=lambda count: count[0])
        notes += [
            f"{label} computes {number / least:.3g} times the gradients of {fewest} in "
            "a round."
            for number, label in counts
            if number >= 1.5 * least
        ]
    seeds = sorted({run.config["num_seeds"] for _, run in pairs})
    several = f"mean ± standard deviation over {' or '.join(map(str, seeds))} seeds"
    notes.append(f"Ours: {several if max(seeds) > 1 else 'one seed, so no ±'}.")
    scales = {run.config["scale"] for _, run in pairs} - {"paper"}
    if scales and any(entry.line.published for entry, _ in pairs):
        notes.append(
            f"Ours are of --scale={' and '.join(sorted(scales))}, not of the paper's "
            "size: the two columns are not comparable."
        )
    names = {run.config["dataset"] for _, run in pairs}
    meant = {entry.line.given["dataset"] for entry, _ in pairs}
    if names != meant:
        notes.append(
            f"Ours are on {', '.join(sorted(names))} and show only that the command "
            f"works; nothing about {', '.join(sorted(meant))}."
        )
    return list(dict.fromkeys(notes))


def _last(run: Run, name: str) -> np.ndarray:
    """Each seed's last value."""
    table = results.values(run, name)
    return table[:, -1] if table.shape[1] else np.full(len(table), np.nan)


def _row(entry: Entry, run: Run, result: results.RunResult) -> dict[str, object]:
    accuracy, deviation = map(float, results.mean_and_deviation(result.accuracy))
    number = entry.line.published
    return {
        "panel": entry.panel,
        "line": entry.line.label,
        "algorithm": run.config["algo"],
        "dataset": run.config["dataset"],
        "model": run.config["model"],
        "scale": run.config["scale"],
        "seeds": run.config["num_seeds"],
        "rounds": result.rounds,
        "accuracy": accuracy,
        "accuracy_std": deviation if run.config["num_seeds"] > 1 else None,
        "test_loss": float(np.mean(result.loss)),
        "train_loss": float(_last(run, "train_loss").mean()),
        "target": run.config["target"],
        **tables.at_target(result),
        "diverged_at": result.diverged_at,
        "paper_accuracy": number and number.accuracy,
        "paper_deviation": number and number.deviation,
        "paper_deviation_of": number and number.deviation_of,
        "paper_target": number and number.target,
        "paper_round_at_target": number and number.rounds,
        "paper_source": number and number.source,
        "gradients_per_round": gradients_per_round(run),
        **{f"{name}_total": total for name, total in result.totals.items()},
        **{name: getattr(entry.cell.config, name) for name in RATES},
        "rates_from": entry.rates,
        "rho": (run.facts or {}).get("rho"),
        "folder": run.folder,
    }


def _heading(title: str, pairs: Sequence[Pair]) -> str:
    """The title, and a second line where the runs are not of the paper's size."""
    scales = sorted({run.config["scale"] for _, run in pairs} - {"paper"})
    if not scales:
        return title
    names = ", ".join(sorted({_subject(run.config) for _, run in pairs}))
    seeds = max(run.config["num_seeds"] for _, run in pairs)
    many = "one seed" if seeds == 1 else f"{seeds} seeds"
    second = f"--scale={scales[0]}: {names}, {many}; not the paper's size"
    return f"{title}\n{second}"


def _subject(config: Mapping[str, Any]) -> str:
    """The data set and, where its title in the paper says another size, the model."""
    if config["model"] != "convmixer":
        return config["dataset"]
    return f"{config['dataset']}, ConvMixer-{config['width']}-{config['depth']}"


def _curve(
    panel: "figures.Axes", entry: Entry, run: Run, metric: str, number: int
) -> None:
    scale = 100 if metric == "test_accuracy" else 1
    x, sample = results.evaluated_rounds(run), scale * results.values(run, metric)
    label = entry.line.label.replace("𝓘", r"$\mathcal{I}$")  # fonts lack the letter
    if not figures.curve(panel, x, sample, number, label):
        return
    paper = entry.line.published
    if paper and metric == "test_accuracy" and run.config["scale"] == "paper":
        at, label = (x[-1:], [paper.accuracy]), "the paper's final accuracy"
        color = figures.color(number)
        panel.plot(*at, "<", color=color, label=label, ms=6, clip_on=False)
