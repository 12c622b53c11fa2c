"""Several runs in one table, for people, papers and programs; and its cells."""

import csv
import io
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from afga_jax import checks
from afga_jax.runs.published import Published
from afga_jax.runs.record import Run
from afga_jax.runs.report.results import RunResult, mean_and_deviation, results
from afga_jax.training.memory import size

# Columns that a terminal has no room for, where all runs have the same there.
_SHARED = ("rounds", "gradients")
#: A cell for what is not known.
NOTHING = "–"
KINDS = ("markdown", "latex", "csv", "text")


def table(runs: Sequence[Run], kind: str = "markdown") -> str:
    """The runs side by side.

    Args:
      runs: The runs, from `afga_jax.runs.record.read`.
      kind: `markdown`, `latex`, `csv`, which has plain numbers and more columns, or
        `text` for a terminal, where what all runs share is a note, not a column.

    Returns:
      Text that ends with a new line.
    """
    checks.choice("kind", kind, KINDS)
    outcomes = results(runs)
    if kind == "csv":
        rows = [_row(run, result) for run, result in zip(runs, outcomes, strict=True)]
        return csv_lines(rows)
    columns, notes = cells(runs, outcomes)
    mark, write = _KINDS[kind]
    _, quality, *_ = columns.values()
    if kind == "text":
        shared = [name for name in _SHARED if len(set(columns[name])) == 1]
        each = " and ".join(f"{columns.pop(name)[0]} {name}" for name in shared)
        notes = ([f"{each} in each run."] if each else []) + notes
    if (best := _best(outcomes)) is not None:
        quality[best] = mark.format(quality[best])
    return write(list(columns), list(zip(*columns.values(), strict=True)), notes)


def cells(
    runs: Sequence[Run], outcomes: Sequence[RunResult]
) -> tuple[dict[str, list[str]], list[str]]:
    """The cells of the table for people, by their column's title, and its notes.

    Args:
      runs: The runs.
      outcomes: What came out of each.

    Returns:
      The columns, accuracy or loss in the second; and the notes.
    """
    labels = [with_divergence(result.label, result) for result in outcomes]
    ended = [result.finished or result.diverged_at is not None for result in outcomes]
    names = [f"{k}{'' if end else ' …'}" for k, end in zip(labels, ended, strict=True)]
    columns, notes = {"algorithm": names}, []
    if _accurate(outcomes):
        columns["accuracy, %"] = [measured(result.accuracy, 2) for result in outcomes]
    else:
        columns["test loss"] = [measured(result.loss, 4) for result in outcomes]
    if any(result.paper for result in outcomes):
        foreign = [result.paper and not result.as_in_paper for result in outcomes]
        columns["paper, %"] = [
            paper_accuracy(result.paper) + ("*" if star else "")
            for result, star in zip(outcomes, foreign, strict=True)
        ]
        notes += ["* not at the paper's size and settings."] if any(foreign) else []
    wanted = [run.config.get("target") for run in runs]
    if accuracies := {100 * target for target in wanted if target is not None}:
        columns[f"round at {targets(accuracies)} %"] = [
            NOTHING if target is None else reached(result)
            for result, target in zip(outcomes, wanted, strict=True)
        ]
        columns |= paper_rounds([result.paper for result in outcomes])
        columns[f"h at {targets(accuracies)} %"] = [
            NOTHING if target is None else number(hours_at_target(result), 2)
            for result, target in zip(outcomes, wanted, strict=True)
        ]
    totals = [result.totals for result in outcomes]
    columns |= {
        "rounds": [f"{result.rounds:,}" for result in outcomes],
        "gradients": [number(total["gradients"]) for total in totals],
        "sent": [
            size(total["bytes"]) if np.isfinite(total["bytes"]) else NOTHING
            for total in totals
        ],
        "simulated h": [number(total["hours"], 2) for total in totals],
    }
    seeds = sorted({len(result.accuracy) for result in outcomes})
    if max(seeds, default=0) > 1:
        many = " or ".join(map(str, seeds))
        notes.append(f"± is the standard deviation over {many} seeds.")
    if not all(ended):
        notes.append("… still running, or stopped.")
    return columns, notes


def number(value: float, digits: int = 0) -> str:
    """A number with its thousands apart.

    >>> number(1234.5, 1), number(float("nan"))
    ('1,234.5', '–')
    """
    return f"{value:,.{digits}f}" if np.isfinite(value) else NOTHING


def measured(sample: np.ndarray, digits: int) -> str:
    """The mean over seeds, with the deviation where there are several."""
    mean, deviation = mean_and_deviation(sample)
    if not np.isfinite(mean):
        return NOTHING
    more = f" ± {deviation:.{digits}f}" if len(sample) > 1 else ""
    return f"{mean:.{digits}f}{more}"


def with_divergence(label: str, result: RunResult) -> str:
    """The name of a run, which says so where it diverged."""
    if result.diverged_at is None:
        return label
    return f"{label} (diverged in round {result.diverged_at})"


def reached(result: RunResult) -> str:
    """The first round at the target, the mean over the seeds that got there."""
    there = np.isfinite(result.reached)
    if not there.any():
        return f"> {result.rounds}" if result.rounds else NOTHING
    first = f"{result.reached[there].mean():.0f}"
    return first if there.all() else f"{first} ({there.sum()} of {len(there)} seeds)"


def hours_at_target(result: RunResult) -> float:
    """Simulated hours to the target, the mean over the seeds that got there."""
    there = np.isfinite(result.reached_hours)
    return float(result.reached_hours[there].mean()) if there.any() else float("nan")


def targets(accuracies: set[float]) -> str:
    """Percents for a column's title."""
    return " / ".join(f"{accuracy:g}" for accuracy in sorted(accuracies))


def paper_accuracy(paper: Published | None) -> str:
    """A paper's accuracy with its ±."""
    if paper is None:
        return NOTHING
    more = "" if paper.deviation is None else f" ± {paper.deviation:.2f}"
    return f"{paper.accuracy:.2f}{more}"


def paper_rounds(papers: Sequence[Published | None]) -> dict[str, list[str]]:
    """The column of the papers' rounds to a target; empty: they name no target."""
    known = {paper.target for paper in papers if paper and paper.target}
    cells = [
        NOTHING
        if paper is None or paper.target is None
        else str(paper.rounds or f"> {paper.budget}")
        for paper in papers
    ]
    return {f"paper's at {targets(known)} %": cells} if known else {}


def at_target(result: RunResult) -> dict[str, object]:
    """The seeds that reached the target and their mean first round, for programs."""
    there = np.isfinite(result.reached)
    rounds = float(result.reached[there].mean()) if there.any() else None
    return {"seeds_at_target": int(there.sum()), "round_at_target": rounds}


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A Markdown table, padded for people who read it as it is.

    >>> print(markdown(["", "round"], [["a", "1"], ["b", "10"]]))
    |     | round |
    | :-- | ----: |
    | a   |     1 |
    | b   |    10 |
    """
    titles, *rows = _padded([head, *body], least=3)
    dashes = ["-" * (len(title) - 1) for title in titles]
    rule = [f":{dashes[0]}", *(f"{each}:" for each in dashes[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (titles, rule, *rows))


def csv_lines(rows: Sequence[Mapping[str, Any]]) -> str:
    """CSV with a header: numbers in full, an empty cell for what is not known.

    >>> print(csv_lines([{"run": "afga", "rounds": 3, "loss": float("nan")}]), end="")
    run,rounds,loss
    afga,3,
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        known = {
            k: v for k, v in row.items() if not isinstance(v, float) or isfinite(v)
        }
        writer.writerow(known)
    return out.getvalue()


def _row(run: Run, result: RunResult) -> dict[str, object]:
    """A run for programs."""
    accuracy, accuracy_deviation = map(float, mean_and_deviation(result.accuracy))
    loss, loss_deviation = map(float, mean_and_deviation(result.loss))
    paper = result.paper
    return {
        "run": result.label,
        "algorithm": run.config.get("algo"),
        "dataset": run.config.get("dataset"),
        "seeds": len(result.accuracy),
        "rounds": result.rounds,
        "finished": result.finished,
        "diverged_at": result.diverged_at,
        "accuracy": accuracy,
        "accuracy_std": accuracy_deviation,
        "test_loss": loss,
        "test_loss_std": loss_deviation,
        "target": run.config.get("target"),
        **at_target(result),
        "hours_at_target": hours_at_target(result),
        **result.totals,
        "paper_accuracy": paper and paper.accuracy,
        "paper_deviation": paper and paper.deviation,
        "paper_round_at_target": paper and paper.rounds,
        "paper_source": paper and paper.source,
        "folder": run.folder,
    }


def _accurate(outcomes: Sequence[RunResult]) -> bool:
    return any(np.isfinite(result.accuracy).any() for result in outcomes)


def _best(outcomes: list[RunResult]) -> int | None:
    """The most accurate of several runs; where there is no accuracy, of least loss."""
    accurate = _accurate(outcomes)
    samples = [result.accuracy if accurate else -result.loss for result in outcomes]
    merits = np.array([mean_and_deviation(sample)[0] for sample in samples])
    finite = np.isfinite(merits)
    if len(outcomes) < 2 or not finite.any():
        return None
    return int(np.where(finite, merits, -np.inf).argmax())


def _markdown(head: list[str], body: list[tuple[str, ...]], notes: list[str]) -> str:
    below = ["", " ".join(notes).replace("*", "\\*")] if notes else []
    return "\n".join([markdown(head, body), *below]) + "\n"


def _latex(head: list[str], body: list[tuple[str, ...]], notes: list[str]) -> str:
    first, *rows = (
        " & ".join(map(_escaped, texts)) + r" \\" for texts in [head, *body]
    )
    columns = "l" + "r" * (len(head) - 1)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", first, r"\hline", *rows]
    end = [r"\hline", r"\end{tabular}", *(f"% {note}" for note in notes)]
    return "\n".join(lines + end) + "\n"


def text(
    head: Sequence[str], body: Sequence[Sequence[str]], notes: Sequence[str] = ()
) -> str:
    """A table for a terminal, notes below it."""
    lines = map("  ".join, _padded([head, *body]))
    return "\n".join([*lines, "", *notes]).rstrip() + "\n"


def _padded(lines: Sequence[Sequence[str]], least: int = 0) -> list[list[str]]:
    """The cells of a table, as wide as their column: the first left, others right."""
    widths = [max(least, *map(len, column)) for column in zip(*lines, strict=True)]
    return [
        [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]
        for line in lines
    ]


# How the best cell is marked, and who writes the table.
_KINDS = {
    "markdown": ("**{}**", _markdown),
    "latex": ("\0{}\1", _latex),
    "text": ("{}", text),
}


def _escaped(text: str) -> str:
    for sign, code in (
        ("%", r"\%"),
        ("_", r"\_"),
        ("±", r"$\pm$"),
        ("…", r"\dots"),
        (NOTHING, "--"),
        ("> ", "$>$ "),
        ("\0", r"\textbf{"),
        ("\1", "}"),
    ):
        text = text.replace(sign, code)
    return text
