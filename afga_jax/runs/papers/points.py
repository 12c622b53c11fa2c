"""What studies of many runs share: a run by its settings, and its line of numbers."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from afga_jax.runs import record
from afga_jax.runs.grid import Cell, fingerprint
from afga_jax.runs.record import Run
from afga_jax.runs.report.results import mean_and_deviation, results
from afga_jax.runs.settings import resolve

#: Settings of the smallest size of a study on digits.
SMOKE: Mapping[str, Any] = {
    "scale": "smoke",
    "rounds": 2,
    "num_seeds": 1,
    "hidden": (8,),
    "eval_every": 1,
}

#: What is said of accuracies below a study's table.
FINAL = (
    "Final accuracy: mean ± standard deviation over the seeds of the last five "
    "evaluations."
)


def cell(settings: Mapping[str, Any], values: Mapping[str, Any], kept: Path) -> Cell:
    """A run; settings that resolve to the same run have the same folder.

    Args:
      settings: The run's settings by the names of `Config`.
      values: What sets it apart from the others, for people.
      kept: The folder of runs, by configuration.
    """
    resolved = resolve(settings)
    return Cell(dict(values), resolved, kept / fingerprint(resolved.config))


def wall_seconds(cells: Iterable[Cell]) -> float:
    """What finished runs took, whenever they ran; each counts once."""
    folders = {cell.folder for cell in cells}
    return sum((record.read(each).summary or {})["wall_seconds"] for each in folders)


def outcome(run: Run) -> dict[str, object]:
    """The columns of a run that every study has, for programs."""
    (result,) = results([run])
    accuracy, deviation = map(float, mean_and_deviation(result.accuracy))
    return {
        "seeds": run.config["num_seeds"],
        "rounds": result.rounds,
        "accuracy": accuracy,
        "accuracy_std": deviation if run.config["num_seeds"] > 1 else None,
        "uploads_total": result.totals["uploads"],
        "gossip_messages_total": result.totals["gossip_messages"],
    }
