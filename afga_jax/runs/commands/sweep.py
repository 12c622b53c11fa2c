"""A grid of runs: every flag may have several values, with commas between them.

    python -m experiments.sweep --dataset=digits --local_lr=0.1,0.2 --eps=1e-8,1e-6

Each cell of the grid is a run in a folder of its own below --out, named by its whole
configuration: a finished cell is never run again, an interrupted sweep goes on with the
same command, and a larger grid only adds what is new. Learning rates, ε and other plain
numbers share one compiled program, in which an accelerator runs several side by side;
with --mesh=seeds:4 four devices do, each its own cells. --out/results.csv has a line
for each cell; the best by final accuracy is printed. It is chosen on the test samples,
which flatters it.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from afga_jax.mesh import on_cpu
from afga_jax.runs import (
    command,
    devices,
    grid,
    record,
    report,
    runner,
    stand_in,
    together,
)
from afga_jax.runs.config import Config
from afga_jax.runs.experiment import from_config
from afga_jax.runs.folder import RUNS
from afga_jax.runs.grid import Cell
from afga_jax.runs.loop import Diverged
from afga_jax.runs.programs import Programs
from afga_jax.runs.progress import Display, outcome
from afga_jax.runs.record import Run, write_text
from afga_jax.runs.report.tables import csv_lines
from afga_jax.runs.series import Series
from afga_jax.runs.summary import merit

DATASET = "cifar10"

_SHOWN = 10


def sweep(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    with command.reading():
        asked = grid.read(arguments, usage=__doc__, dataset=DATASET)
    devices.use(devices.wanted(asked.given))
    given = {k: v for k, v in asked.given.items() if k not in ("out", "resume")}
    accelerator = not on_cpu()
    cells = grid.cells(
        asked._replace(given=given), RUNS, dataset=DATASET, accelerator=accelerator
    )
    plans, dataset = stand_in.settle(
        [cell.resolved for cell in cells], asked=bool(given.get("stand_in"))
    )
    out = Path(asked.given.get("out", RUNS / f"sweep_{dataset}"))
    cells = [
        cell._replace(resolved=plan, folder=out / grid.fingerprint(plan.config))
        for cell, plan in zip(cells, plans, strict=True)
    ]
    for note in dict.fromkeys(note for cell in cells for note in cell.resolved.notes):
        command.say(f"note: {note}")
    runner.keep_programs(cells[0].config)
    results = train(cells, out, side_by_side=together.LARGEST if accelerator else 1)
    if any(report.stands_in(run) for _, run in results):
        command.say(f"warning: {report.STAND_IN}.")
    print(ranking(results))
    print(f"all {len(cells)} cells: {out / 'results.csv'}")
    return 0


def train(
    cells: Sequence[Cell], out: Path, *, side_by_side: int = 1, show: bool = True
) -> list[tuple[Cell, Run]]:
    """Runs what is not finished, and keeps `results.csv` up to date.

    Args:
      cells: The runs; those that can share their programs follow each other.
      out: The folder of `results.csv`.
      side_by_side: How many may run in one call of a program, if a mesh does not ask
        for more. On a CPU that would batch their weights and slow every layer down.
      show: Whether to show how it goes.

    Returns:
      Each cell with its run.
    """
    results, programs, advanced = [], None, set()
    rounds = [cell.config.rounds for cell in cells]
    with Series(rounds, error=None if show else io.StringIO()) as series:
        for number, cell in enumerate(cells, 1):
            run = finished(cell)
            if run is not None:
                series.skip()
            else:
                programs = _prepared(cell, programs)
                if cell.folder not in advanced and together.fits(cell.config):
                    width = together.width(cell.config, side_by_side)
                    advanced |= _advance(cells[number - 1 :], programs, width, series)
                run = _run(cell, programs, series.next(cell.label))
            results.append((cell, run))
            if show:
                series.line(f"[{number}/{len(cells)}] {cell.label}: {outcome(run)}")
            table = csv_lines([row(*pair) for pair in results])
            write_text(out / "results.csv", table)
    return results


def finished(cell: Cell) -> Run | None:
    """The cell's run, if it came to its end; diverging is an end too."""
    if not record.exists(cell.folder):
        return None
    run = record.read(cell.folder)
    summary = run.summary or {}
    ended = summary.get("finished") or summary.get("diverged_at") is not None
    return run if ended else None


def _prepared(cell: Cell, programs: Programs | None) -> Programs:
    """Programs of a cell: the last ones, if they fit."""
    if programs is not None and programs.accept(cell.config):
        return programs
    before = record.read(cell.folder) if record.exists(cell.folder) else None
    experiment = cell.experiment or from_config(cell.config)
    return Programs(experiment, devices.execution_of(cell.config, before, fill=True))


def _advance(
    cells: Sequence[Cell], programs: Programs, at_most: int, series: Series
) -> set[Path]:
    """Brings the first of these cells forward together with those like it."""
    alike: dict[Path, Config] = {}
    for cell in cells:
        if len(alike) == at_most:
            break
        if programs.accept(cell.config) and finished(cell) is None:
            alike[cell.folder] = cell.config
    if len(alike) > 1:
        for note in programs.experiment.facts["notes"]:
            series.note(note)
        about = {"sources": cells[0].resolved.sources}
        together.advance(alike, programs, about, series.advance)
    return set(alike)


def _run(cell: Cell, programs: Programs, display: Display) -> Run:
    try:
        return runner.run(
            cell.config,
            cell.folder,
            resume=True,
            programs=programs,
            display=display,
            about={"sources": cell.resolved.sources},
        )
    except Diverged:
        return record.read(cell.folder)


def ranked(runs: Sequence[Run]) -> list[int]:
    """Positions of the runs that did not diverge, best first."""
    merits = [merit(run.summary or {}) for run in runs]
    best_first = sorted(range(len(runs)), key=merits.__getitem__, reverse=True)
    return [
        place
        for place in best_first
        if (runs[place].summary or {}).get("diverged_at") is None
    ]


def ranking(results: Sequence[tuple[Cell, Run]]) -> str:
    """The best cells, best first."""
    done = [results[place] for place in ranked([run for _, run in results])]
    if not done:
        return "all cells diverged: lower local_lr or server_lr, or raise eps."
    lines = [f"  {cell.label}: {outcome(run)}" for cell, run in done[:_SHOWN]]
    best, run = done[0]
    last = f"best: {best.label}, {outcome(run)}; {best.folder}"
    return "\n".join(["best first:", *lines, last])


def row(cell: Cell, run: Run) -> dict[str, Any]:
    """Accuracies in percent, as in all tables; what diverged has no final ones."""
    summary = dict(run.summary or {})
    if summary.get("diverged_at") is not None:
        summary = {k: v for k, v in summary.items() if not k.startswith("final_")}
    finals = {"accuracy": "final_accuracy", "accuracy_std": "final_accuracy_std"}
    shares = {name: summary.get(source) for name, source in finals.items()}
    percent = {k: None if v is None else 100 * v for k, v in shares.items()}
    names = ("final_loss", "final_loss_std", "first_round_at_target", "rounds")
    more = {name: summary.get(name) for name in (*names, "diverged_at", "wall_seconds")}
    about = {**cell.values, "dataset": run.config["dataset"]}
    return {**about, **percent, **more, "folder": cell.folder}
