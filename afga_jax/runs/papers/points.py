"""What studies of many runs share: how they train, a run's settings and numbers."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from afga_jax.runs.grid import Cell, fingerprint
from afga_jax.runs.papers.declaration import Study
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


def study(
    figure: Any,
    row: Callable[[Any], dict[str, Any]],
    table: Callable[[list[Any]], str],
    draw: Callable[[str, list[Any], Path], None],
    **more: Any,
) -> Study:
    """A figure of many runs as a command knows it; its results are points with runs.

    Args:
      figure: Has `points(scale, kept)`, each with its `cell`, and `name`, `title`,
        `above` the figure, `took` for how long it takes, and `notes`.
      row: As `Study.row`.
      table: `results -> the table`.
      draw: `(above, results, path)` draws the figure.
      **more: As for `Study`.
    """

    def measure(scale: str, out: Path, kept: Path) -> list[tuple[Any, Run]]:
        from afga_jax.runs.commands import sweep

        asked = figure.points(scale, kept)
        runs = {cell.folder: run for cell, run in sweep.train(distinct(asked), out)}
        return [(point, runs[point.cell.folder]) for point in asked]

    def parts(results: list[tuple[Any, Run]]) -> list[str]:
        return [table(results), "\n".join(f"- {note}" for note in figure.notes)]

    def size(scale: str) -> str:
        return f"{len(distinct(figure.points(scale, Path())))} runs, {figure.took}"

    drawn = functools.partial(draw, figure.above)
    return Study(figure.name, figure.title, measure, row, parts, size, drawn, **more)


def distinct(asked: Sequence[Any]) -> list[Cell]:
    """The runs of some points, each once; those of a method follow each other."""
    by_folder = {point.cell.folder: point.cell for point in asked}
    return sorted(by_folder.values(), key=lambda cell: cell.config.algo)


def cell(settings: Mapping[str, Any], values: Mapping[str, Any], kept: Path) -> Cell:
    """A run; settings that resolve to the same run have the same folder.

    Args:
      settings: The run's settings by the names of `Config`.
      values: What sets it apart from the others, for people.
      kept: The folder of runs, by configuration.
    """
    resolved = resolve(settings)
    return Cell(dict(values), resolved, kept / fingerprint(resolved.config))


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
