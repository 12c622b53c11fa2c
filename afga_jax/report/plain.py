"""A table for programs: plain numbers, an empty cell for what is not known."""

import csv
import io
from collections.abc import Sequence

import numpy as np

from afga_jax.record import Run
from afga_jax.report.results import Result, mean_and_deviation


def rows(runs: Sequence[Run], found: Sequence[Result]) -> str:
    """CSV with a header; numbers in full, accuracies in percent.

    Args:
      runs: From `afga_jax.record.read`.
      found: What came out of them.
    """
    out = io.StringIO()
    lines = [_row(run, one) for run, one in zip(runs, found, strict=True)]
    writer = csv.DictWriter(out, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def _row(run: Run, one: Result) -> dict[str, object]:
    """Numbers in full; an empty cell for what is not known."""
    accuracy, accuracy_deviation = map(float, mean_and_deviation(one.accuracy))
    loss, loss_deviation = map(float, mean_and_deviation(one.loss))
    there = np.isfinite(one.reached)
    paper = one.paper
    row = {
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
        "seeds_at_target": int(there.sum()),
        "round_at_target": one.reached[there].mean() if there.any() else None,
        **one.totals,
        "paper_accuracy": paper and paper.accuracy,
        "paper_deviation": paper and paper.deviation,
        "paper_round_at_target": paper and paper.rounds,
        "paper_source": paper and paper.source,
        "folder": run.folder,
    }
    return {name: _or_empty(value) for name, value in row.items()}


def _or_empty(value: object) -> object:
    unknown = value is None or (isinstance(value, float) and not np.isfinite(value))
    return "" if unknown else value
