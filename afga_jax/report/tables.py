"""One table of several runs: for people, for papers, for programs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from afga_jax import checks
from afga_jax.record import Run
from afga_jax.report import plain
from afga_jax.report.results import Result, mean_and_deviation, results

KINDS = ("markdown", "latex", "csv")

_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_NOTHING = "–"


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
        return plain.rows(runs, found)
    columns, notes = _columns(runs, found)
    return _markdown(columns, notes) if kind == "markdown" else _latex(columns, notes)


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
    columns += [
        _Column("rounds", [f"{one.rounds:,}" for one in found]),
        _Column("gradients", [_count(one.totals["gradients"]) for one in found]),
        _Column("sent", [_amount(one.totals["bytes"]) for one in found]),
        _Column("simulated h", [_hours(one.totals["hours"]) for one in found]),
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
    wanted = sorted({target for target in targets if target is not None})
    if not wanted:
        return []
    title = " / ".join(f"{100 * target:g}" for target in wanted)
    cells = [
        _NOTHING if target is None else _reached(one)
        for one, target in zip(found, targets, strict=True)
    ]
    columns = [_Column(f"round at {title} %", cells)]
    theirs = {one.paper.target for one in found if one.paper and one.paper.target}
    if theirs:
        title = " / ".join(f"{target:g}" for target in sorted(theirs))
        cells = [_paper_round(one) for one in found]
        columns.append(_Column(f"paper's at {title} %", cells))
    return columns


def _measured(
    title: str, samples: list[np.ndarray], *, digits: int, largest: bool
) -> _Column:
    cells, means = [], []
    for sample in samples:
        mean, deviation = mean_and_deviation(sample)
        text = f"{mean:.{digits}f}" if np.isfinite(mean) else _NOTHING
        if len(sample) > 1 and np.isfinite(mean):
            text += f" ± {deviation:.{digits}f}"
        cells.append(text)
        means.append(mean if largest else -mean)
    known = np.isfinite(means)
    best = int(np.argmax(np.where(known, means, -np.inf))) if known.any() else None
    return _Column(title, cells, best if len(samples) > 1 else None)


def _name(one: Result) -> str:
    if one.diverged_at is not None:
        return f"{one.label} (diverged in round {one.diverged_at})"
    return one.label if one.finished else f"{one.label} …"


def _paper_cell(one: Result) -> str:
    if one.paper is None:
        return _NOTHING
    text = f"{one.paper.accuracy:.2f}"
    if one.paper.deviation is not None:
        text += f" ± {one.paper.deviation:.2f}"
    return text if one.as_in_paper else f"{text}*"


def _paper_round(one: Result) -> str:
    if one.paper is None or one.paper.target is None:
        return _NOTHING
    return f"{one.paper.rounds}" if one.paper.rounds else f"> {one.paper.budget}"


def _reached(one: Result) -> str:
    there = np.isfinite(one.reached)
    if not there.any():
        return f"> {one.rounds}" if one.rounds else _NOTHING
    text = f"{one.reached[there].mean():.0f}"
    return text if there.all() else f"{text} ({there.sum()} of {len(there)} seeds)"


def _count(number: float) -> str:
    return f"{number:,.0f}" if np.isfinite(number) else _NOTHING


def _amount(number: float) -> str:
    """Bytes for people.

    >>> _amount(1.25e9), _amount(0.0)
    ('1.25 GB', '0 B')
    """
    if not np.isfinite(number):
        return _NOTHING
    for unit, name in _UNITS:
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:.0f} B"


def _hours(number: float) -> str:
    return f"{number:,.2f}" if np.isfinite(number) else _NOTHING


def _markdown(columns: list[_Column], notes: list[str]) -> str:
    cells = [_marked(column, "**{}**") for column in columns]
    widths = [
        max(len(column.title), 3, *map(len, body))
        for column, body in zip(columns, cells, strict=True)
    ]

    def line(texts):
        first, *others = zip(texts, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(t.rjust(w) for t, w in others)]
        return "| " + " | ".join(padded) + " |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (w - 1) + ":" for w in widths[1:])]
    head = [line([column.title for column in columns]), line(rule)]
    body = [line(texts) for texts in zip(*cells, strict=True)]
    below = ["", " ".join(notes).replace("*", "\\*")] if notes else []
    return "\n".join([*head, *body, *below]) + "\n"


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
        (_NOTHING, "--"),
        ("> ", "$>$ "),
        ("\0", r"\textbf{"),
        ("\1", "}"),
    ):
        text = text.replace(sign, code)
    return text
