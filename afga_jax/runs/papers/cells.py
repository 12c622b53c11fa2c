"""From a declaration to runs, with the papers' rates."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from afga_jax.settings import Resolved
from experiments import grid
from experiments.grid import Cell, Grid
from experiments.papers.declaration import Declaration, Line

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


class Entry(NamedTuple):
    """A line with the run that it stands for.

    Attributes:
      panel: The panel's title.
      line: As declared.
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
        shared["setting"] = _SETTINGS.get(shared["setting"], shared["setting"])
        shared["algo"] = _VARIANTS.get(shared["algo"], shared["algo"])
        plain = cell if shared == asked else _cell(shared, cells, accelerator, "")
        found.append(Entry(panel.title, line, cell, _source(cell.resolved), plain))
    if not found:
        raise ValueError(
            f"--only={only} leaves nothing of {declaration.name}: its lines at "
            f"--scale={scale} are " + "; ".join(names) + "."
        )
    return found


def method(entry: Entry) -> tuple[str | None, ...]:
    """What a line shares its rates with, by name."""
    return tuple(getattr(entry.plain.config, name) for name in _METHOD)


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
    texts = {resolved.sources.get(name, "ours, see below") for name in RATES}
    ignored = "the default of all algorithms"
    return "; ".join(sorted(text for text in texts if text != ignored))
