"""Several runs in one table, for people, papers and programs; and its cells."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from afga_jax import checks
from afga_jax.runs.published import Published
from afga_jax.runs.record import Run
from afga_jax.runs.report.results import Result, mean_and_deviation, results
from afga_jax.training.memory import size

#: A cell for what is not known.
NOTHING = "–"
KINDS = ("markdown", "latex", "csv")


class _Column(NamedTuple):
    """A title and a cell for each run; whether the largest, or smallest, is best."""

    title: str
    cells: list[str]
    best: int | None = None


def table(runs: Sequence[Run], kind: str = "markdown") -> str:
    """The runs side by side.

    Args:
      runs: The runs, from `afga_jax.runs.record.read`.
      kind: `markdown`, `latex`, or `csv`, which has plain numbers and more columns.

    Returns:
      Text that ends with a new line.
    """
    checks.choice("kind", kind, KINDS)
    outcomes = results(runs)
    if kind == "csv":
        rows = [_row(run, result) for run, result in zip(runs, outcomes, strict=True)]
        return csv_lines(rows)
    columns, notes = _columns(runs, outcomes)
    return _markdown(columns, notes) if kind == "markdown" else _latex(columns, notes)


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


def with_divergence(label: str, result: Result) -> str:
    """The name of a run, which says so where it diverged."""
    if result.diverged_at is None:
        return label
    return f"{label} (diverged in round {result.diverged_at})"


def reached(result: Result) -> str:
    """The first round at the target, the mean over the seeds that got there."""
    there = np.isfinite(result.reached)
    if not there.any():
        return f"> {result.rounds}" if result.rounds else NOTHING
    text = f"{result.reached[there].mean():.0f}"
    return text if there.all() else f"{text} ({there.sum()} of {len(there)} seeds)"


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


def at_target(result: Result) -> dict[str, object]:
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
    lines = [head, *body]
    widths = [max(3, *(len(line[at]) for line in lines)) for at in range(len(head))]

    def shown(cells):
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(t.rjust(w) for t, w in others)]
        return f"| {' | '.join(padded)} |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (w - 1) + ":" for w in widths[1:])]
    return "\n".join(map(shown, [head, rule, *body]))


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
        writer.writerow({name: _or_empty(value) for name, value in row.items()})
    return out.getvalue()


def _row(run: Run, result: Result) -> dict[str, object]:
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
        **result.totals,
        "paper_accuracy": paper and paper.accuracy,
        "paper_deviation": paper and paper.deviation,
        "paper_round_at_target": paper and paper.rounds,
        "paper_source": paper and paper.source,
        "folder": run.folder,
    }


def _columns(
    runs: Sequence[Run], outcomes: list[Result]
) -> tuple[list[_Column], list[str]]:
    columns, notes = [_Column("algorithm", [_name(result) for result in outcomes])], []
    if any(np.isfinite(result.accuracy).any() for result in outcomes):
        finals = [result.accuracy for result in outcomes]
        columns.append(_measured("accuracy, %", finals, digits=2, largest=True))
    else:
        losses = [result.loss for result in outcomes]
        columns.append(_measured("test loss", losses, digits=4, largest=False))
    if any(result.paper for result in outcomes):
        columns.append(
            _Column("paper, %", [_paper_cell(result) for result in outcomes])
        )
        if any(result.paper and not result.as_in_paper for result in outcomes):
            notes.append("* not at the paper's size and settings.")
    columns += _target_columns(runs, outcomes)
    totals = [result.totals for result in outcomes]
    columns += [
        _Column("rounds", [f"{result.rounds:,}" for result in outcomes]),
        _Column("gradients", [number(total["gradients"]) for total in totals]),
        _Column("sent", [_sent(total["bytes"]) for total in totals]),
        _Column("simulated h", [number(total["hours"], 2) for total in totals]),
    ]
    seeds = {len(result.accuracy) for result in outcomes}
    if max(seeds, default=0) > 1:
        many = " or ".join(map(str, sorted(seeds)))
        notes.append(f"± is the standard deviation over {many} seeds.")
    if not all(result.finished or result.diverged_at for result in outcomes):
        notes.append("… still running, or stopped.")
    return columns, notes


def _target_columns(runs: Sequence[Run], outcomes: list[Result]) -> list[_Column]:
    wanted = [run.config.get("target") for run in runs]
    accuracies = {100 * target for target in wanted if target is not None}
    if not accuracies:
        return []
    cells = [
        NOTHING if target is None else reached(result)
        for result, target in zip(outcomes, wanted, strict=True)
    ]
    published = paper_rounds([result.paper for result in outcomes])
    return [
        _Column(f"round at {targets(accuracies)} %", cells),
        *(_Column(title, rounds) for title, rounds in published.items()),
    ]


def _measured(
    title: str, samples: list[np.ndarray], *, digits: int, largest: bool
) -> _Column:
    means = np.array([mean_and_deviation(sample)[0] for sample in samples])
    merits = np.where(np.isfinite(means), means if largest else -means, -np.inf)
    best = int(merits.argmax()) if np.isfinite(merits).any() else None
    cells = [measured(sample, digits) for sample in samples]
    return _Column(title, cells, best if len(samples) > 1 else None)


def _name(result: Result) -> str:
    label = with_divergence(result.label, result)
    return label if result.finished or result.diverged_at is not None else f"{label} …"


def _paper_cell(result: Result) -> str:
    star = "*" if result.paper is not None and not result.as_in_paper else ""
    return paper_accuracy(result.paper) + star


def _sent(number: float) -> str:
    return size(number) if np.isfinite(number) else NOTHING


def _markdown(columns: list[_Column], notes: list[str]) -> str:
    cells = [_marked(column, "**{}**") for column in columns]
    head = [column.title for column in columns]
    below = ["", " ".join(notes).replace("*", "\\*")] if notes else []
    grid = markdown(head, list(zip(*cells, strict=True)))
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
        (NOTHING, "--"),
        ("> ", "$>$ "),
        ("\0", r"\textbf{"),
        ("\1", "}"),
    ):
        text = text.replace(sign, code)
    return text


def _or_empty(value: object) -> object:
    unknown = value is None or (isinstance(value, float) and not np.isfinite(value))
    return "" if unknown else value
