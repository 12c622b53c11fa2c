"""Ours beside the papers' numbers: a table for people and one for programs."""

from collections.abc import Sequence

import numpy as np

from afga_jax.record import Run
from afga_jax.report import layout
from afga_jax.report.results import Result, mean_and_deviation, results, values
from experiments.papers.cells import Entry

# Metrics that become columns.
_LOSSES = {"train_loss": "train loss", "f_local": "f_local", "f_global": "f_global"}

Pair = tuple[Entry, Run]


def markdown(pairs: Sequence[Pair], metrics: Sequence[str]) -> str:
    """A table for each panel, and what its marks mean.

    Args:
      pairs: Lines with their runs.
      metrics: What the figure shows; losses become columns here.
    """
    sources = list(dict.fromkeys(entry.rates for entry, _ in pairs))
    parts = []
    for title in dict.fromkeys(entry.panel for entry, _ in pairs):
        here = [pair for pair in pairs if pair[0].panel == title]
        parts.append(f"### {title}\n\n{_panel(here, metrics, sources)}")
    legend = [f"[{n}] {source}." for n, source in enumerate(sources, 1)]
    notes = [*_notes(pairs), "Rates: " + " ".join(legend)]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes)]) + "\n"


def rows(pairs: Sequence[Pair]) -> str:
    """CSV: a line for each run, numbers in full, accuracies in percent."""
    found = results([run for _, run in pairs])
    return layout.csv_lines(
        [_row(*pair, one) for pair, one in zip(pairs, found, strict=True)]
    )


def gradients_per_round(run: Run) -> float:
    """The mean over rounds and seeds; NaN: no round was evaluated."""
    (found,) = results([run])
    return found.totals["gradients"] / found.rounds if found.rounds else float("nan")


def _panel(pairs: Sequence[Pair], metrics: Sequence[str], sources: list[str]) -> str:
    found = results([run for _, run in pairs])
    labels = [entry.line.label for entry, _ in pairs]
    columns = {"": list(map(layout.with_divergence, labels, found))}
    if any(np.isfinite(one.accuracy).any() for one in found):
        columns["accuracy, %"] = [layout.measured(one.accuracy, 2) for one in found]
    if any(entry.line.published for entry, _ in pairs):
        papers = [layout.paper_accuracy(entry.line.published) for entry, _ in pairs]
        columns["paper, %"] = papers
    columns |= _rounds(pairs, found)
    for name in metrics:
        if name in _LOSSES:
            finals = [layout.measured(_last(run, name), 4) for _, run in pairs]
            columns[_LOSSES[name]] = finals
    columns["rounds"] = [f"{one.rounds:,}" for one in found]
    computed = [layout.number(gradients_per_round(run)) for _, run in pairs]
    columns["gradients per round"] = computed
    columns["η_l, η, ε"] = [_rates(entry) for entry, _ in pairs]
    columns["from"] = [f"[{sources.index(entry.rates) + 1}]" for entry, _ in pairs]
    return layout.markdown(list(columns), list(zip(*columns.values(), strict=True)))


def _rounds(pairs: Sequence[Pair], found: Sequence[Result]) -> dict[str, list[str]]:
    """Rounds to the target: ours, the paper's."""
    columns = {}
    targets = {run.config.get("target") for _, run in pairs} - {None}
    if targets:
        title = layout.targets({100 * target for target in targets})
        columns[f"round at {title} %"] = [layout.reached(one) for one in found]
    return columns | layout.paper_rounds([entry.line.published for entry, _ in pairs])


def _notes(pairs: Sequence[Pair]) -> list[str]:
    notes = []
    for title in dict.fromkeys(entry.panel for entry, _ in pairs):
        here = [
            (e.line.label, gradients_per_round(r)) for e, r in pairs if e.panel == title
        ]
        least = min(here, key=lambda one: one[1])
        for label, number in here:
            if number >= 1.5 * least[1]:
                notes.append(
                    f"{label} computes {number / least[1]:.3g} times the gradients of "
                    f"{least[0]} in a round."
                )
    seeds = sorted({run.config["num_seeds"] for _, run in pairs})
    many = " or ".join(map(str, seeds))
    if max(seeds) > 1:
        notes.append(f"Ours: mean ± standard deviation over {many} seeds.")
    else:
        notes.append("Ours: one seed, so no ±.")
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
    table = values(run, name)
    return table[:, -1] if table.shape[1] else np.full(len(table), np.nan)


def _rates(entry: Entry) -> str:
    config = entry.cell.config
    return f"{config.local_lr:.3g}, {config.server_lr:.3g}, {config.eps:.3g}"


def _row(entry: Entry, run: Run, one: Result) -> dict[str, object]:
    accuracy, deviation = map(float, mean_and_deviation(one.accuracy))
    number = entry.line.published
    return {
        "panel": entry.panel,
        "line": entry.line.label,
        "algorithm": run.config["algo"],
        "dataset": run.config["dataset"],
        "model": run.config["model"],
        "scale": run.config["scale"],
        "seeds": run.config["num_seeds"],
        "rounds": one.rounds,
        "accuracy": accuracy,
        "accuracy_std": deviation if run.config["num_seeds"] > 1 else None,
        "test_loss": float(np.mean(one.loss)),
        "train_loss": float(_last(run, "train_loss").mean()),
        "target": run.config["target"],
        **layout.at_target(one),
        "diverged_at": one.diverged_at,
        "paper_accuracy": number and number.accuracy,
        "paper_deviation": number and number.deviation,
        "paper_deviation_of": number and number.deviation_of,
        "paper_target": number and number.target,
        "paper_round_at_target": number and number.rounds,
        "paper_source": number and number.source,
        "gradients_per_round": gradients_per_round(run),
        **{f"{name}_total": total for name, total in one.totals.items()},
        **{k: getattr(entry.cell.config, k) for k in ("local_lr", "server_lr", "eps")},
        "rates_from": entry.rates,
        "rho": (run.facts or {}).get("rho"),
        "folder": run.folder,
    }
