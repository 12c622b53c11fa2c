"""Several runs side by side: one table, one figure.

    python -m experiments.compare RUN RUN ...
    python -m experiments.compare CURVES.csv ...
    python -m experiments.compare --algos=fedamsgrad,afga,cafga --dataset=digits

The first form reads the folders of runs, the second the curves that an earlier
comparison wrote. The third runs each algorithm into a folder of its own below --out,
with all flags of the other commands, and goes on with what was interrupted. The table
is printed; beside the runs, in --out, are

    table.md  table.tex  table.csv  comparison.png  curves.csv
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags as absl_flags

from afga_jax import checks
from afga_jax.algorithms import ALGORITHMS
from afga_jax.mesh import on_cpu
from afga_jax.runs import command, devices, flags, record, report, runner
from afga_jax.runs.folder import RUNS
from afga_jax.runs.loop import Diverged
from afga_jax.runs.progress import Display
from afga_jax.runs.record import Run, write_text
from afga_jax.runs.report import curves_file
from afga_jax.runs.settings import resolve

DATASET = "cifar10"

_FILES = {"markdown": "table.md", "latex": "table.tex", "csv": "table.csv"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Ends the program with the command's exit code."""
    sys.exit(command.execute(compare, arguments))


def compare(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    folders, algorithms, given = _read(arguments)
    if algorithms:
        out = Path(given.pop("out", RUNS / f"compare_{given.get('dataset', DATASET)}"))
        runs, failed = train(algorithms, given, out)
    else:
        out = Path(given.get("out", RUNS / "comparison"))
        runs, failed = _runs(folders), False
    for line in report.cautions(runs):
        command.say(f"warning: {line}")
    print(write(runs, out))
    print(f"table and figure: {out / 'table.md'}, {out / 'comparison.png'}")
    return 1 if failed else 0


def train(
    algorithms: Sequence[str], given: Mapping[str, Any], out: Path
) -> tuple[list[Run], bool]:
    """Runs each algorithm with the same choices, or what is left of it.

    Args:
      algorithms: Names of the algorithms.
      given: The user's choices by the names of `Config`.
      out: The folder that holds the runs' folders.

    Returns:
      The runs, and whether one of them diverged.
    """
    accelerator = not on_cpu()
    # All of them before the first one runs: a mistake should not wait for hours.
    plans = {
        name: resolve({**given, "algo": name}, dataset=DATASET, accelerator=accelerator)
        for name in algorithms
    }
    for note in dict.fromkeys(note for plan in plans.values() for note in plan.notes):
        command.say(f"note: {note}")
    runs, failed = [], False
    for name, plan in plans.items():
        runner.keep_programs(plan.config)
        try:
            run = runner.run(
                plan.config,
                out / name,
                resume=True,
                display=Display(),
                about={"sources": plan.sources},
            )
        except Diverged as error:
            command.say(f"error: {name}: {error}")
            run, failed = record.read(out / name), True
        runs.append(run)
    return runs, failed


def write(runs: Sequence[Run], out: Path) -> str:
    """Writes the tables and the figure; returns the table in Markdown."""
    out.mkdir(parents=True, exist_ok=True)
    texts = {kind: report.table(runs, kind) for kind in report.KINDS}
    for kind, text in texts.items():
        write_text(out / _FILES[kind], text)
    write_text(out / "curves.csv", curves_file.text(runs))
    report.comparison(runs, out / "comparison.png")
    return texts["markdown"]


def _runs(words: Sequence[str]) -> list[Run]:
    """Runs from their folders, and from files of curves."""
    files = [word for word in words if word.endswith(".csv")]
    folders = [record.read(word) for word in words if word not in files]
    return folders + curves_file.read(files)


def _read(arguments: Sequence[str]) -> tuple[list[str], list[str], dict[str, Any]]:
    """Folders, algorithms, and the user's choices."""
    values = flags.define()
    absl_flags.DEFINE_list(
        "algos", [], "Algorithms to run and compare.", flag_values=values
    )
    try:
        folders = flags.parse(arguments, values, usage=__doc__, words=True)
        given = flags.given(values)
        algorithms = list(dict.fromkeys(values.algos))
        for name in algorithms:
            checks.choice("algos", name, ALGORITHMS)
        _check_form(folders, algorithms, given)
    except ValueError as error:
        raise command.UsageError(str(error)) from error
    given.pop("resume", None)
    devices.use(devices.wanted(given))
    return folders, algorithms, given


def _check_form(folders: list[str], algorithms: list[str], given: dict) -> None:
    if bool(folders) == bool(algorithms):
        raise ValueError(
            "give either the folders of runs, or --algos=a,b,c to run them: "
            "python -m experiments.compare --algos=fedamsgrad,afga --dataset=digits"
        )
    if "algo" in given:
        raise ValueError("--algo is for one run: name it in --algos.")
    unused = [name for name in given if name != "out"]
    if folders and unused:
        raise ValueError(
            f"--{unused[0]} has no effect on runs that are there: leave it out, or "
            "give --algos instead of folders."
        )
