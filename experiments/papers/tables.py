"""Ours beside the papers' numbers: a table for people and one for programs."""

import csv
import io
from collections.abc import Sequence

import numpy as np

from afga_jax.published import Published
from afga_jax.record import Run
from afga_jax.report.results import Result, mean_and_deviation, results, values
from experiments.papers.cells import Entry

_NOTHING = "–"
_DIGITS = {"train_loss": 4, "f_local": 4, "f_global": 4}
_TITLES = {
    "train_loss": "train loss",
    "f_local": "f_local",
    "f_global": "f_global",
}

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
    out = io.StringIO()
    runs = [run for _, run in pairs]
    lines = [
        _row(*pair, result) for pair, result in zip(pairs, results(runs), strict=True)
    ]
    writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def grid(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A Markdown table, padded for people who read it as it is."""
    lines = [list(head), *map(list, body)]
    widths = [max(3, *(len(line[at]) for line in lines)) for at in range(len(head))]

    def shown(cells):
        first, *rest = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(text.rjust(w) for text, w in rest)]
        return f"| {' | '.join(padded)} |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (w - 1) + ":" for w in widths[1:])]
    return "\n".join(map(shown, [lines[0], rule, *lines[1:]]))


def gradients_per_round(run: Run) -> float:
    """The mean over rounds and seeds; NaN: no round was evaluated."""
    (found,) = results([run])
    return found.totals["gradients"] / found.rounds if found.rounds else float("nan")


def _panel(pairs: Sequence[Pair], metrics: Sequence[str], sources: list[str]) -> str:
    found = results([run for _, run in pairs])
    columns = {"": [_label(*pair) for pair in zip(pairs, found, strict=True)]}
    if any(np.isfinite(one.accuracy).any() for one in found):
        columns["accuracy, %"] = [_measured(one.accuracy, 2) for one in found]
    if any(entry.line.published for entry, _ in pairs):
        papers = [_paper(entry.line.published) for entry, _ in pairs]
        columns["paper, %"] = papers
    columns |= _rounds(pairs, found)
    for name in metrics:
        if name in _TITLES:
            finals = [_measured(_last(run, name), _DIGITS[name]) for _, run in pairs]
            columns[_TITLES[name]] = finals
    columns["rounds"] = [f"{one.rounds:,}" for one in found]
    computed = [gradients_per_round(run) for _, run in pairs]
    columns["gradients per round"] = [
        f"{number:,.0f}" if np.isfinite(number) else _NOTHING for number in computed
    ]
    columns["η_l, η, ε"] = [_rates(entry) for entry, _ in pairs]
    columns["from"] = [f"[{sources.index(entry.rates) + 1}]" for entry, _ in pairs]
    return grid(list(columns), list(zip(*columns.values(), strict=True)))


def _rounds(pairs: Sequence[Pair], found: Sequence[Result]) -> dict[str, list[str]]:
    """Rounds to the target: ours, the paper's."""
    columns = {}
    targets = {run.config.get("target") for _, run in pairs} - {None}
    if targets:
        title = " / ".join(f"{100 * target:g}" for target in sorted(targets))
        columns[f"round at {title} %"] = [_reached(one) for one in found]
    numbers = [entry.line.published for entry, _ in pairs]
    theirs = {one.target for one in numbers if one and one.target}
    if theirs:
        title = " / ".join(f"{target:g}" for target in sorted(theirs))
        columns[f"paper's at {title} %"] = [
            _NOTHING
            if one is None or one.target is None
            else str(one.rounds or f"> {one.budget}")
            for one in numbers
        ]
    return columns


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


def _label(pair: Pair, result: Result) -> str:
    label = pair[0].line.label
    if result.diverged_at is not None:
        return f"{label} (diverged in round {result.diverged_at})"
    return label


def _measured(sample: np.ndarray, digits: int) -> str:
    mean, deviation = mean_and_deviation(sample)
    if not np.isfinite(mean):
        return _NOTHING
    more = f" ± {deviation:.{digits}f}" if len(sample) > 1 else ""
    return f"{mean:.{digits}f}{more}"


def _last(run: Run, name: str) -> np.ndarray:
    """Each seed's last value."""
    table = values(run, name)
    return table[:, -1] if table.shape[1] else np.full(len(table), np.nan)


def _paper(number: Published | None) -> str:
    if number is None:
        return _NOTHING
    more = "" if number.deviation is None else f" ± {number.deviation:.2f}"
    return f"{number.accuracy:.2f}{more}"


def _reached(one: Result) -> str:
    there = np.isfinite(one.reached)
    if not there.any():
        return f"> {one.rounds}"
    text = f"{one.reached[there].mean():.0f}"
    return text if there.all() else f"{text} ({there.sum()} of {len(there)} seeds)"


def _rates(entry: Entry) -> str:
    config = entry.cell.config
    return f"{config.local_lr:.3g}, {config.server_lr:.3g}, {config.eps:.3g}"


def _row(entry: Entry, run: Run, one: Result) -> dict[str, object]:
    accuracy, deviation = map(float, mean_and_deviation(one.accuracy))
    there, number = np.isfinite(one.reached), entry.line.published
    row = {
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
        "seeds_at_target": int(there.sum()),
        "round_at_target": float(one.reached[there].mean()) if there.any() else None,
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
    return {name: _or_empty(value) for name, value in row.items()}


def _or_empty(value: object) -> object:
    unknown = value is None or (isinstance(value, float) and not np.isfinite(value))
    return "" if unknown else value
