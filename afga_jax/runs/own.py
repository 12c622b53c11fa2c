"""A model, data and an algorithm of one's own, with all that the commands have."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from afga_jax import checks
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.mesh import on_cpu
from afga_jax.rounds.execution import Execution
from afga_jax.runs import devices, record, runner, together, trackers
from afga_jax.runs import grid as grids
from afga_jax.runs.checkpoint import Checkpoints
from afga_jax.runs.command import Interrupted
from afga_jax.runs.commands import sweep as sweeps
from afga_jax.runs.experiment import Experiment, from_parts
from afga_jax.runs.experiment.parts import comparable
from afga_jax.runs.loop import Training
from afga_jax.runs.programs import Programs
from afga_jax.runs.progress import Display
from afga_jax.runs.result import RunResult, SweepResult, result_of
from afga_jax.runs.settings import Resolved
from afga_jax.runs.trackers import Tracker
from afga_jax.training.evaluate import as_batch
from afga_jax.training.ledger import Links
from afga_jax.training.trainer import check_clients
from afga_jax.typing import Batch, ClientData

# Evaluations in a run, unless asked otherwise: enough for a curve.
_EVALUATIONS = 20


def run(
    algorithm: FederatedAlgorithm,
    clients: ClientData,
    test: Batch,
    *,
    out: str | Path,
    rounds: int,
    seeds: int | Sequence[int] = 1,
    resume: bool = False,
    eval_every: int | None = None,
    checkpoint_every: int | None = None,
    per_client: bool = False,
    target: float | None = None,
    stop_at_target: bool = False,
    name: str | None = None,
    dataset: str = "own",
    progress: bool = True,
    links: Links | None = None,
    execution: Execution = Execution(),
    tracker: str | Tracker | None = None,
) -> RunResult:
    """Trains into a folder, or goes on with what is there.

    The folder is that of the commands: settings, metrics, TensorBoard events, curves,
    and the newest states. Stopped at any moment, a run that is resumed ends with the
    same numbers, bit for bit. `afga_jax.load(out, task=task)` gives the model again,
    `python -m experiments.compare` puts folders side by side.

    Args:
      algorithm: From `build`, with any task.
      clients: The clients' data; no client may be empty.
      test: Samples that nobody trains on, a `Batch` or a pair of inputs and targets.
      out: The run's folder. It is never overwritten.
      rounds: Number of rounds R; a run that goes on may have more.
      seeds: Number of seeds 0, 1, ..., or seeds that follow each other, such as
        `range(5, 8)`; all of them train in one program.
      resume: Whether to go on with what is in the folder; where nothing is, it starts.
        Other data, options or functions than those of the run are refused.
      eval_every: Number of rounds from one evaluation to the next; the last five are
        always evaluated. None: about twenty evaluations, or as the run had begun.
      checkpoint_every: Number of rounds from one saved state to the next; None: after
        each evaluation.
      per_client: Whether an evaluation also measures the model on every client's own
        samples, which takes a pass over all data.
      target: Accuracy to reach, for the tables; None: there is none.
      stop_at_target: Whether to stop when all seeds have reached it.
      name: The algorithm's name in tables and figures; None: its own.
      dataset: The data's name in tables and figures.
      progress: Whether to show how training goes.
      links: What a message costs in the simulated hours; None: as in the AFGA paper.
      execution: How rounds are computed.
      tracker: Who is told how it goes: tensorboard, wandb, mlflow, none, or a `Tracker`
        of your own, which is given again when the run goes on; None: TensorBoard, or
        as the run had begun.

    Returns:
      The trained model with its history, as `fit` does, and the folder.

    Raises:
      ValueError: The folder holds a run and `resume` is not set, or another run; or
        training diverged, and the last good state is in the folder.
      KeyboardInterrupt: Ctrl-C or SIGTERM; the state is saved.
    """
    settings = {
        **_settings(rounds, seeds, eval_every, name, dataset, links),
        "checkpoint_every": checkpoint_every,
        "per_client": per_client,
        "target": target,
        "stop_at_target": stop_at_target,
        "engine": None if execution.engine == "auto" else execution.engine,
        "client_chunk": execution.chunk,
        "wave_width": execution.slot_width,
    }
    out, display = Path(out), Display(quiet=not progress)
    before = record.read(out) if resume and record.exists(out) else None
    if before is not None and eval_every is None:
        settings["eval_every"] = before.config.get("eval_every")
    if tracker is None:
        tracker = (before.config if before else {}).get("tracker", "tensorboard")
    settings["tracker"] = tracker if isinstance(tracker, str) else "none"
    own = trackers.named(tracker, out) if isinstance(tracker, str) else tracker
    experiment = _experiment(algorithm, clients, test, settings)
    if before is not None:
        config, notes = comparable(experiment.config, before)
        experiment = experiment._replace(config=config)
        for note in notes:
            display.note(note)
    how = devices.execution_of(experiment.config, before)
    programs = Programs(experiment, dataclasses.replace(how, mesh=execution.mesh))
    config = experiment.config
    try:
        done = runner.run(
            config,
            out,
            resume=resume,
            programs=programs,
            display=display,
            tracker=own,
        )
    except Interrupted as stop:
        raise KeyboardInterrupt(
            f"stopped; the state is saved in {out}: the same call with resume=True "
            "goes on."
        ) from stop
    training = Training(config, programs)
    training.restore(Checkpoints(out / record.STATES))
    return result_of(done, experiment, training.state)


def sweep(
    make: Callable[..., FederatedAlgorithm],
    grid: Mapping[str, Sequence[Any]],
    clients: ClientData,
    test: Batch,
    *,
    out: str | Path,
    rounds: int,
    seeds: int | Sequence[int] = 1,
    eval_every: int | None = None,
    dataset: str = "own",
    progress: bool = True,
    links: Links | None = None,
) -> SweepResult:
    """Runs every cell of a grid into a folder of its own below `out`.

    A finished cell is never run again: an interrupted sweep goes on with the same call,
    a larger grid only adds what is new. Cells that differ in traced numbers only, such
    as `local_lr` and `eps` of `build`, share one compiled program.

    Args:
      make: Function from a cell's values to a built algorithm, such as
        `lambda local_lr: afga_jax.build("afga", task, data=clients,
        local_lr=local_lr)`.
      grid: The values to try, by the names of the function's arguments.
      clients: The clients' data.
      test: Samples that nobody trains on, a `Batch` or a pair of inputs and targets.
      out: The folder of the cells' folders and of `results.csv`.
      rounds: Number of rounds R of each run.
      seeds: As for `run`.
      eval_every: As for `run`.
      dataset: The data's name in tables and figures.
      progress: Whether to show a line for each cell.
      links: What a message costs in the simulated hours; None: as in the AFGA paper.

    Returns:
      The runs, their table, and the best: it is chosen on the test samples, which
      flatters it.

    Raises:
      ValueError: A cell cannot be built; the message names it.
      KeyboardInterrupt: Ctrl-C or SIGTERM; the state is saved.
    """
    settings = _settings(rounds, seeds, eval_every, None, dataset, links)
    cells = _cells(make, _checked(grid), clients, test, settings, Path(out))
    side_by_side = 1 if on_cpu() else together.LARGEST
    try:
        pairs = sweeps.train(cells, Path(out), side_by_side=side_by_side, show=progress)
    except Interrupted as stop:
        raise KeyboardInterrupt("stopped; the same call goes on.") from stop
    return SweepResult(
        cells=[cell.values for cell, _ in pairs],
        runs=[done for _, done in pairs],
        rows=[sweeps.row(*pair) for pair in pairs],
        order=sweeps.ranked([done for _, done in pairs]),
        ranking=sweeps.ranking(pairs),
        folder=Path(out),
    )


def _settings(rounds, seeds, eval_every, name, dataset, links) -> dict[str, Any]:
    """What runs and sweeps have in common, by the names of `Config`."""
    checks.integer("rounds", rounds)
    links = links or Links()
    first, count = _seeds(seeds)
    return {
        "rounds": rounds,
        "seed": first,
        "num_seeds": count,
        "eval_every": eval_every or max(1, rounds // _EVALUATIONS),
        "dataset": dataset,
        "server_seconds": links.server_seconds,
        "client_seconds": links.client_seconds,
        **({} if name is None else {"algo": name}),
    }


def _seeds(seeds: int | Sequence[int]) -> tuple[int, int]:
    """The first seed, and their number."""
    if not isinstance(seeds, Sequence):
        checks.integer("seeds", seeds)
        return 0, int(seeds)
    listed = [int(seed) for seed in seeds]
    if not listed or listed != list(range(listed[0], listed[0] + len(listed))):
        raise ValueError(
            f"seeds = {list(seeds)}, but they must follow each other: give their "
            "number, or for example range(5, 8)."
        )
    return listed[0], len(listed)


def _experiment(algorithm, clients, test, settings: dict[str, Any]) -> Experiment:
    if not isinstance(algorithm, FederatedAlgorithm):
        raise ValueError(
            f"algorithm is a {type(algorithm).__name__}, but it must be a built one: "
            "pass afga_jax.build(name, task, data=clients)."
        )
    check_clients(clients, algorithm)
    return from_parts(algorithm, clients, as_batch(test), **settings)


def _checked(axes: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    for name, values in axes.items():
        if isinstance(values, str) or not hasattr(values, "__len__") or not len(values):
            raise ValueError(
                f"grid[{name!r}] = {values!r}, but it must be a list of the values to "
                "try, at least one."
            )
    return {name: list(values) for name, values in axes.items()}


def _cells(make, axes, clients, test, settings, out: Path) -> list[grids.Cell]:
    cells = []
    for combination in itertools.product(*axes.values()):
        values = dict(zip(axes, combination, strict=True))
        try:
            experiment = _experiment(make(**values), clients, test, settings)
        except ValueError as error:
            raise ValueError(f"{error} (at {values})") from error
        config = experiment.config
        place = out / grids.fingerprint(config)
        cells.append(grids.Cell(values, Resolved(config, {}, []), place, experiment))
    return grids.grouped(cells)
