"""One table of several runs: for people, for papers, for programs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from afga_jax import checks
from afga_jax.memory import size
from afga_jax.record import Run
from afga_jax.report import layout
from afga_jax.report.results import Result, mean_and_deviation, results

KINDS = ("markdown", "latex", "csv")


class _Column(NamedTuple):
    """A title and a cell for each run; whether the largest, or smallest, is best."""

    title: str
    cells: list[str]
    best: int | None = None


def table(runs: Sequence[Run], kind: str = "markdown") -> str:
    """The runs side by side.

    Args:
      runs: From `afga_jax.record.read`.
      kind: `markdown`, `latex`, or `csv`, which has plain numbers and more columns.

    Returns:
      Text that ends with a new line.
    """
    checks.choice("kind", kind, KINDS)
    found = results(runs)
    if kind == "csv":
        rows = [_row(run, one) for run, one in zip(runs, found, strict=True)]
        return layout.csv_lines(rows)
    columns, notes = _columns(runs, found)
    return _markdown(columns, notes) if kind == "markdown" else _latex(columns, notes)


def _row(run: Run, one: Result) -> dict[str, object]:
    """A run for programs."""
    accuracy, accuracy_deviation = map(float, mean_and_deviation(one.accuracy))
    loss, loss_deviation = map(float, mean_and_deviation(one.loss))
    paper = one.paper
    return {
        "run": one.label,
        "algorithm": run.config.get("algo"),
        "dataset": run.config.get("dataset"),
        "seeds": len(one.accuracy),
        "rounds": one.rounds,
        "finished": one.finished,
        "diverged_at": one.diverged_at,
        "accuracy": accuracy,
        "accuracy_std": accuracy_deviation,
        "test_loss": loss,
        "test_loss_std": loss_deviation,
        "target": run.config.get("target"),
        **layout.at_target(one),
        **one.totals,
        "paper_accuracy": paper and paper.accuracy,
        "paper_deviation": paper and paper.deviation,
        "paper_round_at_target": paper and paper.rounds,
        "paper_source": paper and paper.source,
        "folder": run.folder,
    }


def _columns(
    runs: Sequence[Run], found: list[Result]
) -> tuple[list[_Column], list[str]]:
    columns, notes = [_Column("algorithm", [_name(one) for one in found])], []
    if any(np.isfinite(one.accuracy).any() for one in found):
        finals = [one.accuracy for one in found]
        columns.append(_measured("accuracy, %", finals, digits=2, largest=True))
    else:
        losses = [one.loss for one in found]
        columns.append(_measured("test loss", losses, digits=4, largest=False))
    if any(one.paper for one in found):
        columns.append(_Column("paper, %", [_paper_cell(one) for one in found]))
        if any(one.paper and not one.as_in_paper for one in found):
            notes.append("* not at the paper's size and settings.")
    columns += _target_columns(runs, found)
    totals = [one.totals for one in found]
    columns += [
        _Column("rounds", [f"{one.rounds:,}" for one in found]),
        _Column("gradients", [layout.number(one["gradients"]) for one in totals]),
        _Column("sent", [_sent(one["bytes"]) for one in totals]),
        _Column("simulated h", [layout.number(one["hours"], 2) for one in totals]),
    ]
    seeds = {len(one.accuracy) for one in found}
    if max(seeds, default=0) > 1:
        many = " or ".join(map(str, sorted(seeds)))
        notes.append(f"± is the standard deviation over {many} seeds.")
    if not all(one.finished or one.diverged_at for one in found):
        notes.append("… still running, or stopped.")
    return columns, notes


def _target_columns(runs: Sequence[Run], found: list[Result]) -> list[_Column]:
    targets = [run.config.get("target") for run in runs]
    wanted = {100 * target for target in targets if target is not None}
    if not wanted:
        return []
    cells = [
        layout.NOTHING if target is None else layout.reached(one)
        for one, target in zip(found, targets, strict=True)
    ]
    theirs = layout.paper_rounds([one.paper for one in found])
    return [
        _Column(f"round at {layout.targets(wanted)} %", cells),
        *(_Column(title, rounds) for title, rounds in theirs.items()),
    ]


def _measured(
    title: str, samples: list[np.ndarray], *, digits: int, largest: bool
) -> _Column:
    means = np.array([mean_and_deviation(sample)[0] for sample in samples])
    merits = np.where(np.isfinite(means), means if largest else -means, -np.inf)
    best = int(merits.argmax()) if np.isfinite(merits).any() else None
    cells = [layout.measured(sample, digits) for sample in samples]
    return _Column(title, cells, best if len(samples) > 1 else None)


def _name(one: Result) -> str:
    label = layout.with_divergence(one.label, one)
    return label if one.finished or one.diverged_at is not None else f"{label} …"


def _paper_cell(one: Result) -> str:
    star = "*" if one.paper is not None and not one.as_in_paper else ""
    return layout.paper_accuracy(one.paper) + star


def _sent(number: float) -> str:
    return size(number) if np.isfinite(number) else layout.NOTHING


def _markdown(columns: list[_Column], notes: list[str]) -> str:
    cells = [_marked(column, "**{}**") for column in columns]
    head = [column.title for column in columns]
    below = ["", " ".join(notes).replace("*", "\\*")] if notes else []
    grid = layout.markdown(head, list(zip(*cells, strict=True)))
    return "\n".join([grid, *below]) + "\n"


def _latex(columns: list[_Column], notes: list[str]) -> str:
    def line(texts):
        return " & ".join(_escaped(text) for text in texts) + r" \\"

    cells = [_marked(column, "\0{}\1") for column in columns]
    rows = [
        r"\begin{tabular}{l" + "r" * (len(columns) - 1) + "}",
        r"\hline",
        line(column.title for column in columns),
        r"\hline",
        *(line(texts) for texts in zip(*cells, strict=True)),
        r"\hline",
        r"\end{tabular}",
        *(f"% {note}" for note in notes),
    ]
    return "\n".join(rows) + "\n"


def _marked(column: _Column, mark: str) -> list[str]:
    return [
        mark.format(cell) if number == column.best else cell
        for number, cell in enumerate(column.cells)
    ]


def _escaped(text: str) -> str:
    for sign, code in (
        ("%", r"\%"),
        ("_", r"\_"),
        ("±", r"$\pm$"),
        ("…", r"\dots"),
        (layout.NOTHING, "--"),
        ("> ", "$>$ "),
        ("\0", r"\textbf{"),
        ("\1", "}"),
    ):
        text = text.replace(sign, code)
    return text
