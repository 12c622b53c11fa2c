"""From a declaration to runs, with the papers' rates or with those of a search.

The search has the same size for each method: nine choices of rates and ε run for a
seventh of the rounds, the best three of them for two fifths, so that who starts fast
does not win by that alone. They are judged by accuracy on a part of the test split,
which flatters all methods alike, with a seed that no table uses.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from afga_jax.algorithms import lookup
from afga_jax.runs import grid
from afga_jax.runs.grid import Cell
from afga_jax.runs.papers.declaration import Declaration, Line
from afga_jax.runs.record import Run
from afga_jax.runs.settings import Resolved, resolve
from afga_jax.runs.summary import merit

#: The papers average over three seeds; on a CPU one is what there is time for.
SEEDS = {"paper": 3, "small": 1, "smoke": 1}

RATES = ("local_lr", "server_lr", "eps")
# What shares its rates: the method, on the same data, setting and model.
_METHOD = ("algo", "inner", "local_optimizer", "dataset", "setting", "model")
# As in the papers, AFGA's four settings share their rates, and so do variants with what
# they vary.
_SETTINGS = dict.fromkeys("134", "2")
_VARIANTS = {
    "afga_adapted": "afga",
    "cafga_adapted": "cafga",
    "hafed_active": "hafed_partial",
}

Train = Callable[[list[Cell]], list[tuple[Cell, Run]]]

_TRIAL_SEED, _TEST_SAMPLES = 1000, 2000
_SHORT, _LONG, _KEPT = 1 / 7, 2 / 5, 3
# As many trials for each method: where a server or a client adapts, ε matters as much
# as the rate; elsewhere there is no ε, and the rate is searched more widely. Short runs
# of small models want less than the papers' rates, and small ε, as AFGA's mean change
# is M/N of FedAMSGrad's (its v̂ the square): best trials once lay on the edges there.
_FACTORS, _EPSILONS = (1 / 9, 1 / 3, 1.0), (1e-10, 1e-8, 1e-6)
_WIDE_FACTORS = tuple(3.0**power for power in range(-4, 5))
_SOURCE = f"tuned: best of {len(_WIDE_FACTORS)} on the test split"


class Entry(NamedTuple):
    """A line with the run that it stands for.

    Attributes:
      panel: The panel's title.
      line: The line as it is declared.
      cell: The run.
      rates: Where its learning rates and ε are from.
      plain: The same without what the line alone changes, such as another topology:
        the method whose rates it shares, which a search for rates runs.
    """

    panel: str
    line: Line
    cell: Cell
    rates: str
    plain: Cell


def entries(
    declaration: Declaration,
    scale: str,
    chosen: Mapping[str, Any],
    cells: Path,
    *,
    accelerator: bool,
    only: str = "",
) -> list[Entry]:
    """The runs of a table or a figure.

    Args:
      declaration: The table or figure.
      scale: The size of its runs.
      chosen: The user's choices for all of them.
      cells: The folder of all runs, by configuration, whichever name asks for them.
      accelerator: Whether this machine has one.
      only: A regular expression: other lines, by `panel, label`, are left out.

    Raises:
      ValueError: The user's choices would make different lines the same, or leave none.
    """
    result, names = [], []
    subjects = sorted(chosen.keys() & _subjects(declaration))
    if subjects:
        raise ValueError(
            f"--{subjects[0]} is what {declaration.name} is about, so it cannot be "
            "chosen for all its runs: leave it out."
        )
    for panel, line, given in declaration.at(scale):
        names.append(f"{panel.title}, {line.label}")
        if not matches(only, names[-1]):
            continue
        asked = {"num_seeds": SEEDS[scale], **given, **chosen}
        cell = _cell(asked, cells, accelerator, names[-1])
        shared = {k: v for k, v in asked.items() if k in _METHOD or k not in line.given}
        shared["setting"] = _SETTINGS.get(shared["setting"], shared["setting"])
        shared["algo"] = _VARIANTS.get(shared["algo"], shared["algo"])
        plain = cell if shared == asked else _cell(shared, cells, accelerator, "")
        result.append(Entry(panel.title, line, cell, _source(cell.resolved), plain))
    if not result:
        raise ValueError(
            f"--only={only} leaves nothing of {declaration.name}: its lines at "
            f"--scale={scale} are " + "; ".join(names) + "."
        )
    return result


def method(entry: Entry) -> tuple[str | None, ...]:
    """What a line shares its rates with, by name."""
    return tuple(getattr(entry.plain.config, name) for name in _METHOD)


def tuned(lines: Sequence[Entry], cells: Path, train: Train) -> list[Entry]:
    """The same lines with the best rates of a search.

    A method is searched for once on each data set and model: an ablation shares its
    rates, and so do AFGA's four settings, as in the papers.

    Args:
      lines: The lines of a table or figure.
      cells: The folder of all runs.
      train: Function that runs cells.
    """
    best: dict[tuple, dict[str, float]] = {}
    result = []
    for entry in lines:
        if (name := method(entry)) not in best:
            short = _in_order(train(trials(entry, cells)))
            long = train([_longer(entry, cell, cells) for cell in short[:_KEPT]])
            chosen = _in_order(long)[0].config
            best[name] = {rate: getattr(chosen, rate) for rate in RATES}
        config = entry.cell.config.replace(**best[name])
        resolved = entry.cell.resolved._replace(config=config)
        folder = cells / grid.fingerprint(config)
        cell = entry.cell._replace(resolved=resolved, folder=folder)
        result.append(entry._replace(cell=cell, rates=_SOURCE))
    return result


def trials(entry: Entry, cells: Path) -> list[Cell]:
    """What a method's rates are chosen from, in short."""
    config = entry.plain.config
    kind = lookup(config.algo).family
    if kind in ("average", "gossip"):
        choices = [{"local_lr": config.local_lr * factor} for factor in _WIDE_FACTORS]
    else:
        power = 0.5 if kind == "adam" else 1
        choices = [
            {"local_lr": config.local_lr * factor, "eps": eps**power}
            for factor in _FACTORS
            for eps in _EPSILONS
        ]
    return [_trial(entry, rates, _SHORT, cells) for rates in choices]


def budget(entry: Entry, cells: Path) -> list[Cell]:
    """As many runs as a search has, of the same size; which go on is not known yet."""
    short = trials(entry, cells)
    return [*short, *(_longer(entry, cell, cells) for cell in short[:_KEPT])]


def _subjects(declaration: Declaration) -> set[str]:
    """What lines differ in, and whatever makes a run the paper's."""
    lines = [line.given for panel in declaration.panels for line in panel.lines]
    every = {name for given in lines for name in given}
    alike = {name for name in every if len({str(g.get(name)) for g in lines}) == 1}
    return every - (alike - set(_METHOD))


def matches(only: str, name: str) -> bool:
    """Whether an expression finds a line's name; empty: it finds all."""
    try:
        return re.search(only, name) is not None
    except re.error as error:
        raise ValueError(
            f"--only={only} is not a regular expression: {error}. Put a backslash "
            "before the brackets and dots that are meant as they are."
        ) from error


def _cell(asked, cells: Path, accelerator: bool, name: str) -> Cell:
    # The data set is always named, so nothing stands in for one that is missing.
    resolved = resolve(asked, accelerator=accelerator)
    return Cell({"line": name}, resolved, cells / grid.fingerprint(resolved.config))


def _source(resolved: Resolved) -> str:
    texts = {resolved.sources.get(name, "ours, see below") for name in RATES}
    ignored = "the default of all algorithms"
    return "; ".join(sorted(text for text in texts if text != ignored))


def _longer(entry: Entry, cell: Cell, cells: Path) -> Cell:
    rates = {name: getattr(cell.config, name) for name in RATES}
    return _trial(entry, rates, _LONG, cells)


def _trial(entry: Entry, rates: dict[str, float], share: float, cells: Path) -> Cell:
    config = entry.plain.config
    tests = config.test_samples or _TEST_SAMPLES
    trial = config.replace(
        rounds=max(1, round(config.rounds * share)),
        num_seeds=1,
        seed=_TRIAL_SEED,
        test_samples=min(tests, _TEST_SAMPLES),
        target=None,
        stop_at_target=False,
        **rates,
    )
    values = {"line": config.algo, "rounds": trial.rounds, "eps": "", **rates}
    about = Resolved(trial, dict(entry.plain.resolved.sources), [])
    return Cell(values, about, cells / grid.fingerprint(trial))


def _in_order(results: Sequence[tuple[Cell, Run]]) -> list[Cell]:
    """The best first, without those that diverged."""
    merits = {id(cell): merit(run.summary) for cell, run in results}
    finished = [cell for cell, _ in results if merits[id(cell)] > float("-inf")]
    if not finished:
        raise ValueError(
            f"all trials of {results[0][0].config.algo} diverged: set local_lr, or "
            "leave --tune out for the papers' rates."
        )
    return sorted(finished, key=lambda cell: merits[id(cell)], reverse=True)
