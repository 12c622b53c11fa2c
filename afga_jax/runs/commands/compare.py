"""Several runs side by side: one table, one figure.

    python -m experiments.compare RUN RUN ...
    python -m experiments.compare CURVES.csv ...
    python -m experiments.compare --algos=fedamsgrad,afga,cafga --dataset=digits

The first form reads the folders of runs, the second the curves that an earlier
comparison wrote, or a folder of such files. The third runs each algorithm into a
folder of its own below --out, with all flags of the other commands, and goes on with
what was interrupted. The table is printed; beside the runs, in --out, are

    table.md  table.tex  table.csv  comparison.png  curves.csv  report.html

With --target=ACCURACY the table says when each reached it, also of runs that are there.

With --prices also what each method costs until it reaches an accuracy, over links of
other prices, and where methods with gossip overtake the others; nothing is trained
for that:

    python -m experiments.compare CURVES.csv ... --prices --target=0.72

    --prices[=SERVER,CLIENT]   seconds of a message; 18,1.8 as in AFGA
    --speeds=SERVER,CLIENT     speeds of the links, Mbit/s; 10,100
    --ratios=LOW,HIGH          range of client to server prices; 0.001,1
    --target=ACCURACY          else the highest whole percent that all reach

    prices.md  prices.csv  prices.png
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags as absl_flags

from afga_jax import checks
from afga_jax.algorithms import ALGORITHMS
from afga_jax.mesh import on_cpu
from afga_jax.runs import command, devices, flags, record, report, runner, stand_in
from afga_jax.runs.config import Config
from afga_jax.runs.folder import RUNS
from afga_jax.runs.loop import Diverged
from afga_jax.runs.pages import run_report
from afga_jax.runs.progress import outcome
from afga_jax.runs.record import Run, write_text
from afga_jax.runs.report import break_even, curves_file, prices
from afga_jax.runs.report.prices import Prices
from afga_jax.runs.report.results import labels
from afga_jax.runs.series import Series
from afga_jax.runs.settings import resolve

DATASET = "cifar10"

# The flags of prices, and what their two numbers are.
_PAIRS = {
    "prices": ("server_seconds", "client_seconds"),
    "speeds": ("server_speed", "client_speed"),
    "ratios": ("lowest_ratio", "highest_ratio"),
}
_RANGES = ("speeds", "ratios")
_FILES = {"markdown": "table.md", "latex": "table.tex", "csv": "table.csv"}


def compare(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    folders, algorithms, given, asked = _read(arguments)
    target = given.get("target")
    if algorithms:
        runs, failed, out = train(algorithms, given)
    else:
        out = Path(given.get("out", RUNS / "comparison"))
        runs, failed = _runs(folders, target), False
    for line in report.cautions(runs):
        command.say(f"warning: {line}")
    # Before anything is written: what is asked may be impossible.
    priced = write_prices(runs, target, asked, out) if asked else None
    write(runs, out)
    run_report.report(runs).save(out / run_report.FILE)
    print(_shown(runs, out))
    if priced is not None:
        print(f"\n{priced}\nprices: {out / 'prices.md'}, {out / 'prices.png'}")
    if algorithms and not failed:
        print(command.as_started(_next_commands(runs, out), arguments[0]))
    return 1 if failed else 0


def define() -> absl_flags.FlagValues:
    """The command's flags, all of them unset: a run's, and its own."""
    values = flags.define()
    absl_flags.DEFINE_list(
        "algos", [], "Algorithms to run and compare.", flag_values=values
    )
    # It may stand alone, like a flag that is on or off.
    alone: absl_flags.Flag = absl_flags.Flag(
        absl_flags.ArgumentParser(), None, "prices", None, "Seconds.", boolean=True
    )
    absl_flags.DEFINE_flag(alone, values)
    for name in _RANGES:
        absl_flags.DEFINE_string(name, None, "Two numbers.", flag_values=values)
    return values


def train(
    algorithms: Sequence[str], given: Mapping[str, Any]
) -> tuple[list[Run], bool, Path]:
    """Runs each algorithm with the same choices, or what is left of it.

    Args:
      algorithms: Names of the algorithms.
      given: The user's choices by the names of `Config`.

    Returns:
      The runs, whether one of them diverged, and the folder that holds their folders.
    """
    accelerator = not on_cpu()
    chosen = {name: value for name, value in given.items() if name != "out"}
    # All of them before the first one runs: a mistake should not wait for hours.
    resolved = [
        resolve({**chosen, "algo": name}, dataset=DATASET, accelerator=accelerator)
        for name in algorithms
    ]
    asked = bool(given.get("stand_in"))
    settled, dataset = stand_in.settle(resolved, asked=asked)
    plans = dict(zip(algorithms, settled, strict=True))
    out = Path(given.get("out", RUNS / f"compare_{dataset}"))
    for note in dict.fromkeys(note for plan in plans.values() for note in plan.notes):
        command.say(f"note: {note}")
    runs, failed = [], False
    with Series([plan.config.rounds for plan in plans.values()]) as series:
        for name, plan in plans.items():
            runner.keep_programs(plan.config)
            about, display = {"sources": plan.sources}, series.next(name)
            try:
                run = runner.run(
                    plan.config, out / name, resume=True, display=display, about=about
                )
            except Diverged as error:
                series.say(f"error: {name}: {error}")
                run, failed = record.read(out / name), True
            runs.append(run)
            if not series.is_shown:  # on a terminal the table follows the bar
                series.line(f"[{len(runs)}/{len(plans)}] {name}: {outcome(run)}")
    return runs, failed, out


def write(runs: Sequence[Run], out: Path) -> None:
    """Writes the tables, the figure and the curves."""
    for kind, name in _FILES.items():
        write_text(out / name, report.table(runs, kind))
    write_text(out / "curves.csv", curves_file.text(runs))
    report.comparison(runs, out / "comparison.png")


def write_prices(
    runs: Sequence[Run], target: float | None, asked: Prices, out: Path
) -> str:
    """Writes what the runs cost at other prices; returns the tables in Markdown.

    Args:
      runs: The runs.
      target: The accuracy to reach; None: the highest that all of them reach.
      asked: The prices, and the range of their ratio.
      out: The folder to write to.
    """
    methods = prices.ledgers(runs, labels(runs))
    target = prices.common_target(methods) if target is None else target
    best = max(map(prices.highest, methods))
    reason = "no method reaches more with all of its seeds"
    checks.number("target", target, above=0, at_most=best, fix=reason)
    text = break_even.tables(methods, target, asked)
    write_text(out / "prices.md", text)
    write_text(out / "prices.csv", break_even.csv_table(methods, target, asked))
    break_even.figure(methods, target, asked, out / "prices.png")
    return text


def _shown(runs: Sequence[Run], out: Path) -> str:
    """What is printed: what ran, what came out, what it does not show, and where."""
    ranking = report.ranking(runs)
    if "≈" in ranking:
        ranking += "\n(≈: neighbours within two standard errors, not told apart)"
    tables = ", ".join(str(out / name) for name in _FILES.values())
    parts = (
        "\n".join([report.shared(runs), *_sizes(runs)]),
        report.table(runs, "text").rstrip(),
        ranking,
        f"tables: {tables}\nfigure: {out / 'comparison.png'}\n"
        f"report: {out / run_report.FILE}",
    )
    return "\n\n".join(part for part in parts if part)


def _sizes(runs: Sequence[Run]) -> list[str]:
    """How much was learnt from, and by how large a model, where all runs say so."""
    facts = [run.facts or {} for run in runs]
    sizes = {(_samples(fact), fact.get("parameters")) for fact in facts}
    ((samples, parameters), *others) = sizes
    if others or not samples or not parameters:
        return []
    return [f"{samples:,} training samples, {parameters:,} parameters"]


def _samples(facts: Mapping[str, Any]) -> int | None:
    held = facts.get("partition")
    return held and round(held["clients"] * held["mean"])


def _next_commands(runs: Sequence[Run], out: Path) -> str:
    """Three commands that lead on from a comparison."""
    config, python = runs[-1].config, command.interpreter()
    same = f"--dataset={config['dataset']} --setting={config['setting']}"
    rate = config["local_lr"]
    rates = f"--algo={config['algo']} --local_lr={rate / 3:.2g},{rate:g},{3 * rate:.2g}"
    commands = {
        "what each costs where links have other prices": f"compare {out} --prices",
        "is a rate the best?": f"sweep {same} {rates}",
        "a real data set": "cifar --algo=afga",
    }
    lines = [
        f"  # {why}\n  {python} -m experiments.{line}" for why, line in commands.items()
    ]
    return "\n".join(["\nnext:", *lines])


def _runs(words: Sequence[str], target: float | None) -> list[Run]:
    """Runs from folders and files of curves; a target is put in place of their own."""
    files = [file for word in words for file in curves_file.files(word)]
    folders = [record.read(word) for word in words if not curves_file.files(word)]
    runs = folders + curves_file.read(files)
    if target is None:
        return runs
    asked = Config(target=target).target
    return [run._replace(config={**run.config, "target": asked}) for run in runs]


def _read(
    arguments: Sequence[str],
) -> tuple[list[str], list[str], dict[str, Any], Prices | None]:
    """Folders, algorithms, the user's choices, and prices if asked for."""
    values = define()
    with command.reading():
        folders = flags.parse(
            arguments, values, usage=__doc__, words=True, dataset=DATASET
        )
        given = flags.given(values)
        algorithms = list(dict.fromkeys(values.algos))
        for name in algorithms:
            checks.choice("algos", name, ALGORITHMS)
        priced = values.prices not in (None, "false")
        _check_form(folders, algorithms, given)
        unpriced = [n for n in _RANGES if values[n].value is not None and not priced]
        if unpriced:
            raise ValueError(f"--{unpriced[0]} has no effect without --prices.")
    given.pop("resume", None)
    asked = _prices(values) if priced else None
    devices.use(devices.wanted(given))
    return folders, algorithms, given, asked


def _prices(values: absl_flags.FlagValues) -> Prices:
    """Prices from their flags."""
    chosen: dict[str, float] = {}
    for name, fields in _PAIRS.items():
        text = values[name].value
        if text is None or (name == "prices" and text == "true"):
            continue
        try:
            chosen |= zip(fields, map(float, text.split(",")), strict=True)
        except ValueError as error:
            raise ValueError(
                f"{name} = {text!r}, but it must be two numbers with a comma between "
                "them, such as 18,1.8."
            ) from error
    return Prices(**chosen)


def _check_form(folders: list[str], algorithms: list[str], given: dict) -> None:
    if bool(folders) == bool(algorithms):
        raise ValueError(
            "give either the folders of runs, or --algos=a,b,c to run them: "
            "python -m experiments.compare --algos=fedamsgrad,afga --dataset=digits"
        )
    if "algo" in given:
        raise ValueError("--algo is for one run: name it in --algos.")
    unused = [name for name in given if name not in ("out", "plugin", "target")]
    if folders and unused:
        raise ValueError(
            f"--{unused[0]} has no effect on runs that are there: leave it out, or "
            "give --algos instead of folders."
        )
