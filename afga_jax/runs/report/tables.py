"""How results are written: cells, Markdown for people, CSV for programs."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from afga_jax.published import Published
from afga_jax.report.results import Result, mean_and_deviation

#: A cell for what is not known.
NOTHING = "–"


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
    return " / ".join(f"{one:g}" for one in sorted(accuracies))


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


def _or_empty(value: object) -> object:
    unknown = value is None or (isinstance(value, float) and not np.isfinite(value))
    return "" if unknown else value
