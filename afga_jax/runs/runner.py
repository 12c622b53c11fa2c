"""Runs one configuration into a folder: from the start, or on from where it stopped.

A folder holds one run (`runs.record`) and its newest states (`checkpoints/`). It is
never overwritten: without `--resume` a folder that holds a run is refused. Stopped at
any moment, even by kill -9, a run that is resumed ends with the same numbers, bit for
bit, as one that was never stopped, on one kind of machine with the same number of
devices. `folder.refused` says what may differ then.

Exit codes: 0 done; 1 an error, said in one line; 2 the flags were not understood; 130
stopped by Ctrl-C or SIGTERM.
"""

import contextlib
import functools
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from afga_jax import data
from afga_jax.mesh import on_cpu
from afga_jax.runs import (
    command,
    devices,
    flags,
    folder,
    loop,
    processes,
    record,
    report,
    stand_in,
    trackers,
)
from afga_jax.runs.checkpoint import Checkpoints
from afga_jax.runs.command import Interrupted
from afga_jax.runs.config import Config
from afga_jax.runs.experiment import from_config
from afga_jax.runs.loop import Diverged, Training
from afga_jax.runs.pages.run_report import FILE, Live
from afga_jax.runs.programs import Programs
from afga_jax.runs.progress import Display, silent
from afga_jax.runs.record import Record, Row, Run
from afga_jax.runs.settings import resolve
from afga_jax.runs.summary import summarise
from afga_jax.runs.trackers import Tracker
from afga_jax.training import privacy

#: δ of a guarantee of privacy where none is given.
DELTA = 1e-5


def run(
    config: Config,
    out: str | Path,
    *,
    resume: bool = False,
    programs: Programs | None = None,
    display: Display | None = None,
    about: Mapping[str, Any] | None = None,
    tracker: Tracker | None = None,
) -> Run:
    """Runs a configuration, or what is left of it.

    Args:
      config: A complete configuration, as `settings.resolve` gives it.
      out: The run's folder.
      resume: Whether to go on with what is there; where nothing is, it starts.
      programs: Programs of an earlier run that `accept` this one; None: they are
        built.
      display: Shows the progress to the user; None: nothing is shown.
      about: More entries for `config.json`.
      tracker: Who is told how it goes; None: as the configuration says.

    Returns:
      The run, with its summary.

    Raises:
      ValueError: The folder holds a run and `resume` is not set, or a run with other
        settings.
      Diverged: The last good state is saved.
      Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    out, display = Path(out), display or Display(quiet=True)
    # The look at the folder and its lock are one step: nobody else writes between.
    lock = folder.alone(out) if processes.is_first() else contextlib.nullcontext()
    with lock, _precision(config):
        before = folder.existing(out, resume)
        processes.meet("all have looked at the folder, which the first now writes to")
        if before is not None and _is_finished(before, config):
            display.say(f"the run in {out} is finished; raise rounds to go on")
            display.end(before)
            return before
        # Before anything is compiled: its package may be missing.
        if tracker is None:
            tracker = trackers.named(config.tracker, out)
        if programs is None:
            experiment = from_config(config)
            config = experiment.config
            programs = Programs(experiment, devices.execution_of(config, before))
        elif not programs.accept(config):
            raise ValueError("the programs differ from the run in more than numbers.")
        training = Training(config, programs)
        if before is not None:
            training.check_begun(before, out)
        with processes.writer_of(out, tracker) as writer:
            return _run(training, writer, display, about or {}, before)


def main(dataset: str, usage: str = "", arguments: Sequence[str] | None = None) -> None:
    """What a main calls: reads the command line, runs, and ends the program.

    Args:
      dataset: The data set that is meant where none is given.
      usage: The lines above the flags on the help page.
      arguments: The words with the program's name first; None: the command line's.
    """
    train = functools.partial(_train, dataset, usage)
    sys.exit(command.execute(train, arguments))


def keep_programs(config: Config) -> None:
    """Lets JAX keep compiled programs beside the decoded data, unless told not to."""
    if not config.compile_cache:
        return
    cache = Path(data.Access(cache_dir=config.cache_dir).cache_dir or "", "programs")
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _train(dataset: str, usage: str, arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    values = flags.define()
    with command.reading():
        flags.parse(arguments, values, usage=usage, dataset=dataset)
        given = flags.given(values)
        devices.use(devices.wanted(given))
        given = processes.join(given)
    again = f"{arguments[0]} --resume"
    try:
        config, out, about = _wanted(given, dataset)
        again += f" --out={shlex.quote(str(out))}"
        keep_programs(config)
        display = Display() if processes.is_first() else silent()
        run(config, out, resume=config.resume, display=display, about=about)
    except (Interrupted, KeyboardInterrupt) as stop:
        raise type(stop)(f"go on with: {again}") from stop
    except jax.errors.JaxRuntimeError as error:
        if processes.are_several():
            raise ValueError(processes.lost(command.reason(error), again)) from error
        raise
    return 0


def _wanted(given: Mapping[str, Any], dataset: str) -> tuple[Config, Path, dict]:
    """The configuration, its folder, and what `config.json` should also say."""
    accelerator = not on_cpu()
    resolved = resolve(given, dataset=dataset, accelerator=accelerator)
    config = resolved.config
    out = None if config.out is None else Path(config.out)
    if config.resume:
        out = out or folder.newest(config)
        if out is not None and record.exists(out):
            # What the run was begun with, not today's defaults; `run` compares the two.
            before = Config.from_dict(record.read(out).config)
            changes = {k: v for k, v in given.items() if k != "stand_in"}
            return before.replace(**changes), out, {}
    asked = bool(given.get("stand_in"))
    (settled,), dataset = stand_in.settle([resolved], asked=asked)
    out = out or folder.unused(config, dataset=dataset)
    if config.resume and processes.is_first():
        command.say(f"note: there is no run in {out} yet: it starts.")
    for note in settled.notes:
        command.say(f"note: {note}")
    return settled.config, out, {"sources": settled.sources, "given": dict(given)}


def _run(training: Training, writer: Record, display: Display, about, before) -> Run:
    """Brings state and metrics to where the run goes on, and trains."""
    config = training.config
    states, new = Checkpoints(writer.folder / record.STATES), before is None
    live = None
    try:
        choice = devices.fitting(training, display.note)
        training.go_on(states, before, writer.folder)
        display.begin(config, training.facts, writer.folder, training.done)
        display.say(f"{choice}; {choice.run}")
        more = {"engine": f"{choice}; {choice.run}"} if new else {}
        metrics = training.open(writer, choice, **more, **about)
        if config.live and processes.is_first():
            clients = training.programs.experiment.clients
            live = Live(config, training.facts, writer.folder, clients)
            display.say(f"report: {writer.folder / FILE}")
        with command.remembered() as interrupted:
            stopped = loop.train(
                training,
                metrics,
                states=states,
                writer=writer,
                display=display,
                interrupted=interrupted,
                evaluated=None if live is None else live.write,
            )
    except Diverged as error:
        _keep_last_good(training, states, writer, metrics, error)
        _unwatch(live, writer)
        raise
    except Exception:
        if new and training.done == 0:
            writer.discard()
        _unwatch(live, writer)
        raise
    finally:
        display.close()
    run = _finish(training, writer, metrics, stopped)
    _unwatch(live, writer)
    display.end(run)
    return run


def _unwatch(live: Live | None, writer: Record) -> None:
    if live is not None and record.exists(writer.folder):
        live.end(record.read(writer.folder))


def _is_finished(before: Run, config: Config) -> bool:
    if not (before.summary and before.summary.get("finished")):
        return False
    if folder.refused(Config.from_dict(before.config), config):
        return False
    whole = before.summary["rounds"] >= config.rounds
    return whole or loop.reached(config, before.metrics)


def _summary(training: Training, metrics: list[Row], **more: Any) -> dict[str, Any]:
    summary = summarise(metrics, target=training.config.target)
    spent = {"rounds": training.done, "wall_seconds": round(training.seconds, 3)}
    return {**summary, **more, **spent, **_privacy(training)}


def _privacy(training: Training) -> dict[str, Any]:
    """(ε, δ) after the rounds that are done, where there is a guarantee to compute."""
    algorithm = training.programs.experiment.algorithm
    if algorithm.options.dp_noise is None or not training.done:
        return {}
    delta = training.config.dp_delta or DELTA
    try:
        return {
            "epsilon": privacy.epsilon(algorithm, training.done, delta),
            "delta": delta,
        }
    except ValueError as error:
        return {"no_epsilon": str(error)}


def _finish(training, writer, metrics, stopped) -> Run:
    summary = _summary(training, metrics, finished=True, stopped=stopped)
    facts = training.programs.experiment.facts
    about = (training.config.to_dict(), metrics, summary, facts, writer.folder)
    run = Run(*about, versions=record.versions())
    if processes.is_first():
        report.curves(run, writer.folder / record.CURVES)
    writer.summarise(summary)
    return run


def _keep_last_good(training, states, writer, metrics, error: Diverged) -> None:
    training.rewind(states, error.round - 1)
    training.save(states, writer.lines)
    summary = _summary(training, metrics, finished=False, diverged_at=error.round)
    writer.summarise(summary)
    kept = f" The state of round {training.done} is kept in {writer.folder}."
    error.args = (error.args[0] + kept,)


def _precision(config: Config):
    if config.precision is None:
        return contextlib.nullcontext()
    return jax.default_matmul_precision(config.precision)
