"""The papers' tables and figures, each by its name.

    python -m experiments.paper --list
    python -m experiments.paper afga-table1 --scale=small
    python -m experiments.paper afga-table1 --scale=paper --dry_run

Several names may be given, or `all`. Sizes are `paper` (for a GPU; the estimated hours
are printed first), `small` (a CPU) and `smoke` (seconds: two tiny runs on built-in
digits). Into --out, by default runs/paper, go

    SCALE/NAME/table.md  results.csv  figure.png     ours beside the paper's numbers
    cells/               every run, by its whole configuration

A run is never repeated, whichever name asks for it: an interrupted table goes on with
the same command. Beside the flags of all commands, whose choices then hold for all runs
of a name, there are

    --list      the names
    --dry_run   what would run, and the estimate, only
    --only      a regular expression: only lines whose "panel, label" it finds
    --tune      rates and ε from a search, of the same size for each method, in place of
                the papers'; chosen on the test split, which flatters all of them
"""

import platform
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags as absl_flags

from afga_jax.mesh import on_cpu
from afga_jax.runs import (
    command,
    devices,
    flags,
    papers,
    record,
    report,
    runner,
    together,
)
from afga_jax.runs.commands import sweep
from afga_jax.runs.folder import RUNS
from afga_jax.runs.papers import cells, estimate, hours, presentation
from afga_jax.runs.papers.cells import Entry
from afga_jax.runs.papers.declaration import Declaration, Study
from afga_jax.runs.record import write_text

_FOLDERS = ("out", "data_dir", "cache_dir")
_OWN = {
    "list": "Print the names.",
    "dry_run": "Print what would run.",
    "tune": "Sweep the rates.",
}


class Asked(NamedTuple):
    """A command line.

    Attributes:
      names: The tables and figures to make.
      chosen: The user's choices for all runs.
      scale: The size of all runs.
      out: The folder of all that is written.
      only: A regular expression for lines; empty: all.
      dry_run: Whether to show only what would run.
      tune: Whether the rates are searched for.
      program: How the command was started.
      flags: The flags as they were given.
      accelerator: Whether this machine has one.
    """

    names: list[str]
    chosen: dict[str, Any]
    scale: str
    out: Path
    only: str
    dry_run: bool
    tune: bool
    program: str
    flags: list[str]
    accelerator: bool

    @property
    def kept(self) -> Path:
        return self.out / "cells"


def paper(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    with command.reading():
        asked, lists = _read(arguments)
        # All of them before the first one runs: a mistake should not wait for hours.
        plans = [_planned(papers.find(name), asked) for name in asked.names]
    if lists:
        print(papers.listing())
        return 0
    for subject, plan in plans:
        print(f"{subject.name}: {subject.title}", flush=True)
        _announce(subject, plan, asked)
        if not asked.dry_run:
            _make(subject, plan, asked)
    return 0


def _make(subject: Declaration | Study, plan: list[Entry], asked: Asked) -> None:
    """Runs what is left and writes the files."""
    out, started = asked.out / asked.scale / subject.name, time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    if isinstance(subject, Study):
        parts = subject.write(asked.scale, out, asked.kept)
        seconds = time.perf_counter() - started
        if subject.seconds is not None:
            seconds = subject.seconds(asked.scale, asked.kept)
        notes = []
    else:
        parts, seconds = _table(subject, plan, asked, out)
        notes = [f"- {note}" for note in subject.notes]
    parts = [
        f"# {subject.title}",
        *parts,
        "\n".join([*notes, *_about(asked, subject, seconds)]),
    ]
    text = "\n\n".join(part.strip() for part in parts) + "\n"
    write_text(out / "table.md", text)
    print(text)
    written = ("table.md", "figure.png", "results.csv")
    print(", ".join(str(out / name) for name in written if (out / name).exists()))


def _table(
    subject: Declaration, plan: list[Entry], asked: Asked, out: Path
) -> tuple[list[str], float]:
    """The parts of the text, and the seconds that all runs took."""
    runner.keep_programs(plan[0].cell.config)
    width = together.LARGEST if asked.accelerator else 1
    spent = []

    def train(chosen, folder):
        results = sweep.train(chosen, folder, side_by_side=width)
        spent.extend(results)
        return results

    if asked.tune:
        plan = cells.tuned(plan, asked.kept, lambda some: train(some, out / "tuning"))
    results = train([entry.cell for entry in plan], out)
    pairs = [(entry, run) for entry, (_, run) in zip(plan, results, strict=True)]
    for line in {report.STAND_IN for _, run in pairs if report.stands_in(run)}:
        command.say(f"warning: {line}.")
    write_text(out / "results.csv", presentation.rows(pairs))
    presentation.draw(subject, pairs, out / "figure.png")
    parts = [presentation.markdown(pairs, subject.metrics)]
    if subject.accuracies:
        parts.append(hours.table(pairs, subject.accuracies[asked.scale]))
    each = {cell.folder: run.summary["wall_seconds"] for cell, run in spent}
    return parts, sum(each.values())


def _about(asked: Asked, subject: Declaration | Study, seconds: float) -> list[str]:
    """How to make it again, what it took, and on what."""
    again = f"{asked.program} {shlex.join([subject.name, *asked.flags])}"
    versions = record.versions()
    return [
        f"- Command: `{again}`",
        f"- Wall time of all its runs: {seconds / 60:,.1f} min, on "
        f"{versions['device']}, {platform.system()} {versions['machine']}, jax "
        f"{versions['jax']}, afga-jax {versions['afga-jax']}.",
    ]


def _planned(
    subject: Declaration | Study, asked: Asked
) -> tuple[Declaration | Study, list[Entry]]:
    """The lines that are asked for: a narrower study, or the plan of a declaration."""
    only, accelerator = asked.only, asked.accelerator
    if isinstance(subject, Declaration):
        given = (subject, asked.scale, asked.chosen, asked.kept)
        return subject, cells.entries(*given, accelerator=accelerator, only=only)
    if not only:
        return subject, []
    if subject.only is None:
        raise ValueError(
            f"--only={only}, but {subject.name} has no lines to choose from: leave it "
            "out."
        )
    return subject.only(only), []


def _announce(subject: Declaration | Study, plan: list[Entry], asked: Asked) -> None:
    """What is about to run, and how long it may take."""
    if isinstance(subject, Study):
        print(subject.size(asked.scale))
        return
    if not (asked.dry_run or asked.scale == "paper"):
        return
    total, left = 0.0, []
    wanted = [entry.cell for entry in plan]
    if asked.tune:
        methods = {cells.method(entry): entry for entry in plan}
        wanted += [c for e in methods.values() for c in cells.budget(e, asked.kept)]
    for cell in {cell.folder: cell for cell in wanted}.values():
        done = sweep.finished(cell) is not None
        config, size = cell.config, estimate.operations(cell.config)
        total += 0 if done else size
        shown = "done" if done else f"{size:.2g} operations"
        left.append(
            f"  {cell.label}: {config.algo} on {config.dataset}, {config.num_seeds} "
            f"seeds of {config.rounds} rounds, {shown}"
        )
    print("\n".join(left))
    gpu = asked.accelerator or asked.scale == "paper"
    print(estimate.sentence(total, accelerator=gpu), flush=True)


def _read(arguments: Sequence[str]) -> tuple[Asked, bool]:
    """The command line, and whether it asks for the names."""
    values = flags.define()
    for name, text in _OWN.items():
        absl_flags.DEFINE_bool(name, False, text, flag_values=values)
    absl_flags.DEFINE_string("only", "", "Only these lines.", flag_values=values)
    names = flags.parse(arguments, values, usage=__doc__, words=True)
    if not names and not values.list:
        raise ValueError("give a name, or --list for all: afga-table1, for example.")
    if names == ["all"]:
        names = list(papers.NAMES)
    chosen = flags.given(values)
    devices.use(devices.wanted(chosen))
    accelerator = not on_cpu()
    scale = chosen.pop("scale", "paper" if accelerator else "small")
    out = Path(chosen.pop("out", RUNS / "paper"))
    chosen.pop("resume", None)
    given = [text for text in _portable(arguments[1:]) if text not in (*names, "all")]
    if "scale" not in flags.given(values):
        given.append(f"--scale={scale}")
    own = (values.only, values.dry_run, values.tune, arguments[0], given)
    return Asked(names, chosen, scale, out, *own, accelerator), values.list


def _portable(words: Sequence[str]) -> list[str]:
    """The command line without folders, which are those of one machine."""
    kept, skip = [], False
    for word in words:
        name, equals, _ = word.lstrip("-").partition("=")
        if skip or (word.startswith("-") and name in _FOLDERS):
            skip = not skip and not equals
        else:
            kept.append(word)
    return kept
