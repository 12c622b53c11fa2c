"""A grid of runs: every flag may have several values, with commas between them.

    python -m experiments.sweep --dataset=digits --local_lr=0.1,0.2 --eps=1e-8,1e-6

Each cell of the grid is a run in a folder of its own below --out, named by its whole
configuration: a finished cell is never run again, an interrupted sweep goes on with the
same command, and a larger grid only adds what is new. Learning rates, ε and other plain
numbers share one compiled program. --out/results.csv has a line for each cell; the best
by final accuracy is printed. It is chosen on the test samples, which flatters it.
"""

import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from afga_jax import record, settings
from afga_jax.experiment import from_config
from afga_jax.record import Run, write_text
from experiments import command, grid, runner
from experiments.folder import RUNS
from experiments.grid import Cell
from experiments.progress import Display
from experiments.training import Diverged, Programs

DATASET = "cifar10"

_SHOWN = 10


def main(arguments: Sequence[str] | None = None) -> None:
    """Ends the program with the command's exit code."""
    sys.exit(command.execute(sweep, arguments))


def sweep(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    try:
        asked = grid.read(arguments, usage=__doc__)
    except ValueError as error:
        raise command.UsageError(str(error)) from error
    given = {k: v for k, v in asked.given.items() if k not in ("out", "resume")}
    name = f"sweep_{given.get('dataset', DATASET)}"
    out = Path(asked.given.get("out", RUNS / name))
    accelerator = jax.default_backend() != "cpu"
    cells = grid.cells(
        asked._replace(given=given), out, dataset=DATASET, accelerator=accelerator
    )
    for note in dict.fromkeys(note for cell in cells for note in cell.resolved.notes):
        command.say(f"note: {note}")
    runner.keep_programs(cells[0].config)
    results = train(cells, out)
    print(_ranking(results))
    print(f"all {len(cells)} cells: {out / 'results.csv'}")
    return 0


def train(cells: Sequence[Cell], out: Path) -> list[tuple[Cell, Run]]:
    """Runs what is not finished, and keeps `results.csv` up to date.

    Args:
      cells: Those that can share their programs follow each other.
      out: Where `results.csv` is.

    Returns:
      Each cell with its run.
    """
    results, programs = [], None
    for number, cell in enumerate(cells, 1):
        run = finished(cell)
        if run is None:
            run, programs = _run(cell, programs)
        results.append((cell, run))
        print(f"[{number}/{len(cells)}] {cell.label}: {_outcome(run)}", flush=True)
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "results.csv", _csv(results))
    return results


def finished(cell: Cell) -> Run | None:
    """The cell's run, if it came to its end; diverging is an end too."""
    if not record.exists(cell.folder):
        return None
    run = record.read(cell.folder)
    summary = run.summary or {}
    ended = summary.get("finished") or summary.get("diverged_at") is not None
    return run if ended else None


def _run(cell: Cell, programs: Programs | None) -> tuple[Run, Programs]:
    """Runs a cell, with the programs of the one before if they fit."""
    config = cell.config
    if programs is not None and programs.experiment.facts["stand_in"]:
        config = settings.stood_in(config)
    if programs is None or not programs.accept(config):
        programs = Programs(from_config(cell.config))
        config = programs.experiment.config
    try:
        run = runner.run(
            config,
            cell.folder,
            resume=True,
            programs=programs,
            display=Display(quiet=not sys.stderr.isatty()),
            about={"sources": cell.resolved.sources},
        )
    except Diverged:
        run = record.read(cell.folder)
    return run, programs


def _outcome(run: Run) -> str:
    summary = run.summary
    if summary.get("diverged_at") is not None:
        return f"diverged in round {summary['diverged_at']}"
    accuracy, deviation = summary["final_accuracy"], summary["final_accuracy_std"]
    if accuracy is None:
        return f"loss {summary['final_loss']:.6g}"
    more = "" if deviation is None else f" ± {100 * deviation:.2f}"
    return f"accuracy {100 * accuracy:.2f}{more} %"


def _ranking(results: Sequence[tuple[Cell, Run]]) -> str:
    """The best cells, best first."""
    done = [pair for pair in results if pair[1].summary.get("diverged_at") is None]
    if not done:
        return "all cells diverged: lower local_lr or server_lr, or raise eps."
    done.sort(key=lambda pair: _merit(pair[1]), reverse=True)
    lines = [f"  {cell.label}: {_outcome(run)}" for cell, run in done[:_SHOWN]]
    best, run = done[0]
    return "\n".join(
        ["best first:", *lines, f"best: {best.label}, {_outcome(run)}; {best.folder}"]
    )


def _merit(run: Run) -> float:
    """Final accuracy; for tasks without one, the loss downwards."""
    accuracy, loss = run.summary["final_accuracy"], run.summary["final_loss"]
    if accuracy is not None:
        return accuracy
    return float("-inf") if loss is None else -loss


def _csv(results: Sequence[tuple[Cell, Run]]) -> str:
    out = io.StringIO()
    rows = [_row(cell, run) for cell, run in results]
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _row(cell: Cell, run: Run) -> dict[str, Any]:
    """Accuracies in percent, as in all tables; what diverged has no final ones."""
    summary = dict(run.summary)
    if summary.get("diverged_at") is not None:
        summary = {k: v for k, v in summary.items() if not k.startswith("final_")}
    percent = {
        name: None if summary.get(source) is None else 100 * summary[source]
        for name, source in (
            ("accuracy", "final_accuracy"),
            ("accuracy_std", "final_accuracy_std"),
        )
    }
    names = ("final_loss", "final_loss_std", "first_round_at_target", "rounds")
    row = {
        **cell.values,
        **percent,
        **{name: summary.get(name) for name in names},
        "diverged_at": summary.get("diverged_at"),
        "wall_seconds": summary.get("wall_seconds"),
        "folder": cell.folder,
    }
    return {name: "" if value is None else value for name, value in row.items()}


if __name__ == "__main__":
    main()
