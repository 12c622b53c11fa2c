"""A grid of runs from a command line whose flags have several values."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from afga_jax.algorithms import Options
from afga_jax.algorithms.options import numbers
from afga_jax.algorithms.registry import own_options
from afga_jax.population import availability
from afga_jax.runs import flags
from afga_jax.runs.config import Config, Field, fields
from afga_jax.runs.experiment import Experiment
from afga_jax.runs.settings import Resolved, resolve


class Grid(NamedTuple):
    """What to try.

    Attributes:
      given: The choices that all runs share, by the names of `Config`.
      axes: The values of each swept field, in the order of the command line.
    """

    given: dict[str, Any]
    axes: dict[str, list[Any]]


class Cell(NamedTuple):
    """One run of a grid.

    Attributes:
      values: The run's values of the swept fields.
      resolved: The complete configuration, sources and notes.
      folder: The run's folder, named by its configuration.
      experiment: What is trained, where it is one's own; None: the configuration says.
    """

    values: dict[str, Any]
    resolved: Resolved
    folder: Path
    experiment: Experiment | None = None

    @property
    def config(self) -> Config:
        return self.resolved.config

    @property
    def label(self) -> str:
        """`local_lr=0.1 eps=1e-08`, or what is the same for all: the algorithm."""
        texts = [f"{name}={_shown(value)}" for name, value in self.values.items()]
        return " ".join(texts) or self.config.algo


def read(arguments: Sequence[str], *, usage: str, dataset: str | None = None) -> Grid:
    """Reads a command line; a value with commas is an axis.

    Commas in whole-number lists (`--hidden=64,32`) belong to the value; there, a colon
    separates values (`--hidden=64,32:128`).

    Args:
      arguments: The command line with the program's name first.
      usage: The lines above the flags on the help page.
      dataset: The data set whose defaults the help page has, if none is given.

    Raises:
      ValueError: A flag or one of its values is wrong; in one line.
    """
    program, *rest = arguments
    known = {field.name: field for field in fields()}
    shared, axes = [program], {}
    for argument in _joined(rest, known):
        name, separator, text = argument.lstrip("-").partition("=")
        pieces = _pieces(known.get(name), text) if separator else []
        if len(pieces) > 1:
            axes[name] = [_parsed(program, name, piece) for piece in pieces]
        else:
            shared.append(argument)
            axes.pop(name, None)  # the last one counts, as with any flag
    given = _given(shared, usage, dataset)
    return Grid({k: v for k, v in given.items() if k not in axes}, axes)


def cells(
    grid: Grid, out: Path, *, dataset: str, accelerator: bool = False
) -> list[Cell]:
    """All runs of a grid; those that can share their programs follow each other.

    Args:
      grid: What to try, from `read`.
      out: The folder that holds the cells' folders.
      dataset: The data set that is meant where none is given.
      accelerator: Whether this machine has one.

    Raises:
      ValueError: A combination is wrong; the message names it.
    """
    by_name: dict[str, Cell] = {}
    for combination in itertools.product(*grid.axes.values()):
        values = dict(zip(grid.axes, combination, strict=True))
        try:
            asked = {**grid.given, **values}
            resolved = resolve(asked, dataset=dataset, accelerator=accelerator)
        except ValueError as error:
            raise ValueError(f"{error} (at {values})") from error
        name = fingerprint(resolved.config)
        # Two spellings of one configuration are one cell.
        by_name.setdefault(name, Cell(values, resolved, out / name))
    return grouped(by_name.values())


def grouped(cells: Iterable[Cell]) -> list[Cell]:
    """The same cells; those that can share their programs follow each other."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        key = fingerprint(cell.config, but_for=_traced(cell))
        groups.setdefault(key, []).append(cell)
    return [cell for group in groups.values() for cell in group]


def fingerprint(config: Config, but_for: Sequence[str] = ()) -> str:
    """A short name of all that decides a run's numbers.

    >>> first, second = Config(seed=1, out="here"), Config(seed=1, out="there")
    >>> fingerprint(first) == fingerprint(second)
    True
    >>> fingerprint(first) == fingerprint(second.replace(seed=2))
    False
    """
    left_out = {field.name for field in fields() if field.neutral} | set(but_for)
    content = config.to_dict()
    for values in (content, content.get("parts", {})):
        for name in left_out:
            values.pop(name, None)
    if config.availability is not None:  # what the file says, not only its name
        table = availability.read(config.availability, config.hours_per_round)
        content["availability_digest"] = table.digest
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _traced(cell: Cell) -> Sequence[str]:
    """Options whose value is no part of a compiled program."""
    if cell.experiment is not None:
        return numbers(cell.experiment.algorithm.options)
    own = own_options().items()
    return [*numbers(Options), *(name for name, one in own if one.metadata["traced"])]


def _joined(arguments: Sequence[str], known: Mapping[str, Field]) -> list[str]:
    """`--name value` as `--name=value`."""
    joined: list[str] = []
    waits = False
    for argument in arguments:
        is_flag = argument.startswith("-")
        if waits and not is_flag:
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
        field = known.get(argument.lstrip("-")) if is_flag else None
        waits = field is not None and field.kind is not bool
    return joined


def _pieces(field: Field | None, text: str) -> list[str]:
    """The values of a flag; paths are never split."""
    if field is None or field.neutral or (field.kind is str and not field.choices):
        return [text]
    return text.split(":" if field.kind is tuple else ",")


def _parsed(program: str, name: str, text: str) -> Any:
    value = _given([program, f"--{name}={text}"])[name]
    Config.from_dict({name: value})  # bounds, before the first cell runs
    return value


def _given(
    arguments: Sequence[str], usage: str = "", dataset: str | None = None
) -> dict[str, Any]:
    values = flags.define()
    flags.parse(arguments, values, usage=usage, dataset=dataset)
    return flags.given(values)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
