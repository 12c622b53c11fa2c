"""Defaults of a run from one table: the papers' settings in three sizes.

`rates` has the learning rates, `table` all else, both with their sources. What the user
gave goes before the table, the table before the algorithm's own defaults.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from afga_jax.algorithms import ALGORITHMS, Options
from afga_jax.config import Config, fields
from afga_jax.settings import rates
from afga_jax.settings.table import ROWS, SETTING_OF, Row

#: Data sets of the papers; only these have a size `paper`.
_OF_PAPERS = ("cifar10", "cifar100", "fashion_mnist", "mnist", "shakespeare")
# Rows may ask for these, so they are settled first, in this order.
_FIRST = ("setting", "scale", "partition", "model", "clustering")
_STAND_IN_FOR = ("cifar10", "cifar100", "fashion_mnist", "mnist")


class Resolved(NamedTuple):
    """A complete configuration and how it came about.

    Attributes:
      config: With all defaults filled in.
      sources: Where each value that was not given is from.
      notes: What the user should be told, one line each.
    """

    config: Config
    sources: dict[str, str]
    notes: list[str]


def resolve(
    given: Mapping[str, Any], *, dataset: str = "cifar10", accelerator: bool = False
) -> Resolved:
    """Fills in what was not given.

    Args:
      given: The user's choices by the names of `Config`.
      dataset: The data set meant where none is given.
      accelerator: Whether there is one; it decides the size where none is given.

    Returns:
      The configuration, sources and notes.

    >>> resolved = resolve({"algo": "cafga"})
    >>> config = resolved.config
    >>> config.setting, config.scale, config.num_clients, config.local_lr
    ('2', 'small', 50, 2.0)
    >>> resolved.sources["num_clients"]
    'AFGA §6'
    """
    given = {name: value for name, value in given.items() if value is not None}
    run = Config.from_dict(given).to_dict()
    asked = frozenset(given)
    sources, notes = {}, []
    if "dataset" not in asked:
        run["dataset"] = dataset
        sources["dataset"] = "the command's own"
    if "stand_in" not in asked:
        run["stand_in"] = "dataset" not in asked and dataset in _STAND_IN_FOR
    if "scale" not in asked:
        run["scale"], note = _scale(run["dataset"], accelerator)
        sources["scale"] = "by the machine"
        notes += note
    fill = _Filling(run, asked, sources)
    fill.rows(SETTING_OF, ["setting"])
    for name in _FIRST:
        fill.rows(ROWS, [name])
    notes += fill.rates()
    fill.rows(ROWS, [name for name in run if name not in _FIRST])
    fill.own_defaults()
    return Resolved(Config.from_dict(run), sources, notes)


def choices(config: Config) -> dict[str, Any]:
    """What sets a configuration apart from its setting's defaults.

    >>> choices(resolve({"algo": "afga", "local_lr": 0.5}).config)
    {'algo': 'afga', 'setting': '2', 'scale': 'small', 'local_lr': 0.5}
    """
    base = {name: getattr(config, name) for name in ("algo", "setting", "scale")}
    usual = resolve(base, dataset=config.dataset).config
    names = [one.name for one in fields() if one.name not in base]
    names = [name for name in names if name not in ("dataset", "stand_in")]
    changed = {
        name: getattr(config, name)
        for name in names
        if getattr(config, name) != getattr(usual, name)
        and getattr(config, name) is not None
    }
    return base | changed


def decided() -> frozenset[str]:
    """The fields whose default the table decides."""
    rows = [name for row in (*SETTING_OF, *ROWS) for name in row.values]
    return frozenset([*rows, "scale", "local_lr", "server_lr"])


def stood_in(config: Config) -> Config:
    """The same run on the built-in digits: their defaults, the user's choices."""
    moved = resolve(choices(config), dataset="digits").config
    return moved.replace(stand_in=True)


class _Filling:
    """Fills a run's values in place, from the table down to plain defaults."""

    def __init__(self, run: dict, asked: frozenset, sources: dict):
        self.run, self.asked, self.sources = run, asked, sources

    def rows(self, rows: list[Row], names: Iterable[str]) -> None:
        for row in rows:
            if not row.fits(self.run):
                continue
            for name, value in row.values.items():
                if name in names:
                    self._set(name, value, row.source)

    def rates(self) -> list[str]:
        """Learning rates; a note where they are only the nearest."""
        run = self.run
        found = rates.find(
            run["setting"], run["algo"], run["dataset"], run["model"] or ""
        )
        if found is None:
            return []
        self._set("local_lr", found.local_lr, found.source)
        self._set("server_lr", found.server_lr, found.source)
        return []

    def own_defaults(self) -> None:
        """The algorithm's own defaults, then those of all algorithms."""
        run, own = self.run, getattr(ALGORITHMS[self.run["algo"]], "defaults", {})
        if "num_clusters" not in own:
            self._set("num_clusters", 1, "the algorithm has one cluster")
        for name, value in own.items():
            if run.get(name) is None:
                self._set(name, value, "the algorithm's own")
        for one in dataclasses.fields(Options):
            if one.name in run and run[one.name] is None and _is_plain(one.default):
                self._set(one.name, one.default, "the default of all algorithms")

    def _set(self, name: str, value: Any, source: str) -> None:
        if name in self.asked or (name == "participation" and "active" in self.asked):
            return
        self.run[name] = value
        self.sources[name] = source


def _scale(dataset: str, accelerator: bool) -> tuple[str, list[str]]:
    if dataset not in _OF_PAPERS:
        return "small", []
    if accelerator:
        return "paper", []
    note = (
        "no accelerator here, so --scale=small, a CPU in minutes; --scale=paper is the "
        "papers' size."
    )
    return "small", [note]


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)
