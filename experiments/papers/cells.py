"""From a declaration to runs, with rates from the papers or from a small sweep."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from afga_jax.config import Config
from afga_jax.record import Run
from afga_jax.settings import Resolved
from experiments import grid
from experiments.grid import Cell, Grid
from experiments.papers.declaration import Declaration, Line

#: The papers average over three seeds; on a CPU one is what there is time for.
SEEDS = {"paper": 3, "small": 1, "smoke": 1}

_RATES = ("local_lr", "server_lr", "eps")
# What shares its rates: the method, on the same data, setting and model.
_METHOD = ("algo", "inner", "local_optimizer", "dataset", "setting", "model")
# A trial has this share of the rounds, and a seed that no table uses.
_SHARE, _TRIAL_SEED = 5, 1000
# As many trials for each method: where a server or a client adapts, ε matters as much
# as the rate; elsewhere there is no ε, and the rate is searched more widely. Short runs
# of small models want less than the papers' rates, and small ε, as AFGA's mean change
# is M/N of FedAMSGrad's (its v̂ the square): best trials once lay on the edges there.
_FACTORS, _EPSILONS = (1 / 9, 1 / 3, 1.0), (1e-10, 1e-8, 1e-6)
_WIDE_FACTORS = tuple(3.0**power for power in range(-4, 5))
_WITHOUT_EPS = (
    "fedavg",
    "fedprox",
    "scaffold",
    "feddyn",
    "fedcluster",
    "sgd",
    "dsgd",
    "pga",
)


class Entry(NamedTuple):
    """A line with the run that it stands for.

    Attributes:
      panel: The panel's title.
      line: As declared.
      cell: The run.
      rates: Where its learning rates and ε are from.
      plain: The same without what the line alone changes, such as another topology;
        a sweep of rates runs this.
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
      declaration: Which.
      scale: Their size.
      chosen: The user's choices for all of them.
      cells: Where runs are kept, by configuration, for all names.
      accelerator: Whether there is one.
      only: A regular expression: other lines, by `panel, label`, are left out.

    Raises:
      ValueError: The user's choices would make different lines the same, or leave none.
    """
    found, names = [], []
    subjects = sorted(chosen.keys() & _subjects(declaration))
    if subjects:
        raise ValueError(
            f"--{subjects[0]} is what {declaration.name} is about, so it cannot be "
            "chosen for all its runs: leave it out."
        )
    for panel, line, given in declaration.at(scale):
        names.append(f"{panel.title}, {line.label}")
        if not _matches(only, names[-1]):
            continue
        asked = {"num_seeds": SEEDS[scale], **given, **chosen}
        cell = _cell(asked, cells, accelerator, names[-1])
        shared = {k: v for k, v in asked.items() if k in _METHOD or k not in line.given}
        plain = cell if shared == asked else _cell(shared, cells, accelerator, "")
        found.append(Entry(panel.title, line, cell, _source(cell.resolved), plain))
    if not found:
        raise ValueError(
            f"--only={only} leaves nothing of {declaration.name}: its lines at "
            f"--scale={scale} are " + "; ".join(names) + "."
        )
    return found


def tuned(
    found: Sequence[Entry],
    cells: Path,
    train: Callable[[list[Cell]], list[tuple[Cell, Run]]],
) -> list[Entry]:
    """The same lines with the best rates of a sweep, of the same size for each method.

    A method is swept once for each data set, setting and model: an ablation shares its
    rates, as in the papers.

    Args:
      found: The lines.
      cells: Where runs are kept.
      train: Runs cells.
    """
    best, result = {}, []
    for entry in found:
        key = method(entry.cell.config)
        if key not in best:
            best[key] = _best(train(trials(entry, cells)))
        rates = best[key]
        config = entry.cell.config.replace(**rates)
        cell = entry.cell._replace(
            resolved=entry.cell.resolved._replace(config=config),
            folder=cells / grid.fingerprint(config),
        )
        source = f"tuned: best of {len(_WIDE_FACTORS)} on the test split"
        result.append(entry._replace(cell=cell, rates=source))
    return result


def trials(entry: Entry, cells: Path) -> list[Cell]:
    """What a method's rates are chosen from."""
    config = entry.plain.config
    if config.algo in _WITHOUT_EPS:
        choices = [{"local_lr": config.local_lr * factor} for factor in _WIDE_FACTORS]
    else:
        choices = [
            {"local_lr": config.local_lr * factor, "eps": eps}
            for factor in _FACTORS
            for eps in _EPSILONS
        ]
    short = config.replace(
        rounds=max(1, config.rounds // _SHARE),
        num_seeds=1,
        seed=_TRIAL_SEED,
        target=None,
        stop_at_target=False,
    )
    found = []
    for rates in choices:
        trial = short.replace(**rates)
        values = {"line": config.algo, "eps": "", **rates}
        about = Resolved(trial, dict(entry.plain.resolved.sources), [])
        found.append(Cell(values, about, cells / grid.fingerprint(trial)))
    return found


def method(config: Config) -> tuple[str | None, ...]:
    """What shares its rates: the method, on the same data, setting and model."""
    return tuple(getattr(config, name) for name in _METHOD)


def _subjects(declaration: Declaration) -> set[str]:
    """What lines differ in, and whatever makes a run the paper's."""
    lines = [line.given for panel in declaration.panels for line in panel.lines]
    every = {name for given in lines for name in given}
    alike = {name for name in every if len({str(g.get(name)) for g in lines}) == 1}
    return every - (alike - set(_METHOD))


def _matches(only: str, name: str) -> bool:
    try:
        return re.search(only, name) is not None
    except re.error as error:
        raise ValueError(
            f"--only={only} is not a regular expression: {error}. Put a backslash "
            "before the brackets and dots that are meant as they are."
        ) from error


def _cell(asked, cells: Path, accelerator: bool, name: str) -> Cell:
    # The data set is always named, so nothing stands in for one that is missing.
    (cell,) = grid.cells(
        Grid(asked, {}), cells, dataset=asked["dataset"], accelerator=accelerator
    )
    return cell._replace(values={"line": name})


def _source(resolved: Resolved) -> str:
    texts = {resolved.sources.get(name, "ours, see below") for name in _RATES}
    ignored = "the default of all algorithms"
    return "; ".join(sorted(text for text in texts if text != ignored))


def _best(results: Sequence[tuple[Cell, Run]]) -> dict[str, float]:
    cell, run = max(results, key=lambda pair: _merit(pair[1]))
    if _merit(run) == float("-inf"):
        raise ValueError(
            f"all trials of {cell.config.algo} diverged: set local_lr, or leave --tune "
            "out for the papers' rates."
        )
    return {name: getattr(cell.config, name) for name in _RATES}


def _merit(run: Run) -> float:
    """Final accuracy, or the loss downwards; nothing where it diverged."""
    accuracy, loss = run.summary["final_accuracy"], run.summary["final_loss"]
    if run.summary.get("diverged_at") is not None:
        return float("-inf")
    return accuracy if accuracy is not None else -loss
