"""Defaults of a run from one table: the papers' settings in three sizes.

Learning rates are in `rates`, all else in the rows of `table`, `tuned` and `demo`, each
with its source. What the user gave goes before the table, the table before the
algorithm's own defaults.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from afga_jax.algorithms import Options, lookup
from afga_jax.algorithms.registry import owners_of
from afga_jax.data.own import IMAGES, OWN_DATASETS
from afga_jax.runs.config import Config, fields
from afga_jax.runs.settings import rates
from afga_jax.runs.settings.demo import DEMO
from afga_jax.runs.settings.table import PAPERS, SETTING_OF, SMALL, SMOKE, TableRow
from afga_jax.runs.settings.tuned import TUNED

__all__ = ["Resolved", "choices", "decided", "resolve", "stood_in", "unused"]

#: The one table of defaults; a later row that fits goes before an earlier one.
ROWS = (*PAPERS, *SMALL, *TUNED, *DEMO, *SMOKE)

# Only the papers' data sets have a size `paper` that differs from `small`.
_OF_PAPERS = (*IMAGES, "shakespeare")
# Rows ask for these, so they are settled first, in this order.
_FIRST = ("setting", "partition", "model", "clustering")
_WHERE = ("algo", "setting", "scale")
# A field, and the field with the values that make use of it.
_USED_WITH = {
    "alpha": ("partition", ["dirichlet", "dirichlet_client"]),
    "num_shards": ("partition", ["shards"]),
    "shard_size": ("partition", ["shards"]),
    "shards_per_client": ("partition", ["shards"]),
    "rho_device": ("partition", ["major_class"]),
    "rho_cluster": ("clustering", ["major_class"]),
    "dimension": ("dataset", ["quadratic", "logistic"]),
    "sigma_g": ("dataset", ["quadratic", "logistic"]),
    "sigma": ("dataset", ["quadratic", "logistic"]),
    "variance": ("dataset", ["gaussians"]),
    "momentum": ("local_optimizer", ["momentum"]),
    "lr_decay": ("lr_schedule", ["step"]),
    "lr_decay_every": ("lr_schedule", ["step"]),
}


class Resolved(NamedTuple):
    """A complete configuration and how it came about.

    Attributes:
      config: The configuration with all defaults filled in.
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
      given: The user's choices by the names of `Config`; None: not chosen.
      dataset: The data set meant where none is given.
      accelerator: Whether this machine has one; it decides the size where none is
        given.

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
    run, notes = Config.from_dict(given).to_dict(), []
    fill = _Filling(run, frozenset(given))
    fill.put("dataset", dataset, "the command's own")
    missing_is_fine = "dataset" not in given and dataset in IMAGES
    fill.put("stand_in", missing_is_fine, "whether --dataset is given")
    scale = "paper" if accelerator and run["dataset"] in _OF_PAPERS else "small"
    fill.put("scale", scale, "whether there is an accelerator")
    if "scale" not in given and not accelerator and run["dataset"] in _OF_PAPERS:
        notes.append(
            "no accelerator here, so --scale=small, a CPU in minutes; --scale=paper is "
            "the papers' size."
        )
    own_rows = [
        TableRow("the plugin's own", {"dataset": k}, {"model": "mlp", **own.defaults})
        for k, own in OWN_DATASETS.items()
    ]
    rows = (*PAPERS, *SMALL, *TUNED, *DEMO, *own_rows, *SMOKE)
    fill.rows(SETTING_OF, ["setting"])
    for name in _FIRST:
        fill.rows(rows, [name])
    fill.rates()
    fill.rows(rows, [name for name in run if name not in _FIRST])
    fill.own_defaults()
    config = Config.from_dict(run)
    notes += _nearest(config, fill.sources) + unused(config, given)
    notes += _divided(config, given)
    return Resolved(config, fill.sources, notes)


def choices(config: Config) -> dict[str, Any]:
    """What sets a configuration apart from its setting's defaults.

    >>> choices(resolve({"algo": "afga", "local_lr": 0.5}).config)
    {'algo': 'afga', 'setting': '2', 'scale': 'small', 'local_lr': 0.5}
    """
    where = {name: getattr(config, name) for name in _WHERE}
    usual = resolve(where, dataset=config.dataset).config
    names = [field.name for field in fields()]
    return where | {
        name: value
        for name in names
        if name not in (*_WHERE, "dataset", "stand_in")
        and (value := getattr(config, name)) not in (None, getattr(usual, name))
    }


def decided() -> frozenset[str]:
    """The fields whose default the table decides."""
    rows = [name for row in ROWS for name in row.values]
    return frozenset([*rows, "local_lr", "server_lr"])


def stood_in(config: Config) -> Config:
    """The same run on the built-in digits: their defaults, the user's choices."""
    chosen = choices(config)
    # Sizes of a model are meant for that model.
    if any(field.name in chosen for field in fields("model")):
        chosen["model"] = config.model
    return resolve(chosen, dataset="digits").config.replace(stand_in=True)


def unused(config: Config, given: Iterable[str]) -> list[str]:
    """A line for each given field that has no effect, because another leaves it out.

    >>> unused(Config(algo="afga", mu=0.1), ["mu"])
    ["mu has no effect with algo = 'afga'; it needs fedprox."]
    """
    own, lines = config.own_options(), []
    for name in given:
        other, values = _USED_WITH.get(name, ("algo", owners_of(name)))
        if not values or name in own or getattr(config, other) in values:
            continue
        lines.append(
            f"{name} has no effect with {other} = {getattr(config, other)!r}; it needs "
            f"{' or '.join(values)}."
        )
    return lines


class _Filling:
    """Fills in a run's values, but for those that the user asked for."""

    def __init__(self, run: dict[str, Any], asked: frozenset[str]):
        self.run, self.asked = run, asked
        self.sources: dict[str, str] = {}

    def put(self, name: str, value: Any, source: str) -> None:
        if name in self.asked or (name == "participation" and "active" in self.asked):
            return
        self.run[name] = value
        self.sources[name] = source

    def rows(self, rows: Iterable[TableRow], names: Collection[str]) -> None:
        """What the rows that fit say of these fields."""
        algorithm = lookup(self.run["algo"])
        kind = {"family": algorithm.family, "theory": algorithm.theory}
        for row in rows:
            if row.fits(self.run | kind):
                for name in row.values:
                    if name in names:
                        self.put(name, row.values[name], row.source)

    def rates(self) -> None:
        """The learning rates of the setting's paper, or the nearest."""
        run = self.run
        model = run["model"] or ""
        nearest = rates.find(run["setting"], run["algo"], run["dataset"], model)
        if nearest is not None:
            smaller = "" if run["scale"] == "paper" else ", carried over from its size"
            source = nearest.source + smaller
            self.put("local_lr", nearest.local_lr, source)
            self.put("server_lr", nearest.server_lr, source)

    def own_defaults(self) -> None:
        """The algorithm's own defaults, then those of all algorithms."""
        algorithm = lookup(self.run["algo"])
        if "num_clusters" not in algorithm.defaults:
            self.put("num_clusters", 1, "the algorithm has one cluster")
        chosen = {name: value for name, value in self.run.items() if value is not None}
        declared = algorithm.own_options(chosen).items()
        own = algorithm.defaults | {name: one.default for name, one in declared}
        common = {field.name: field.default for field in dataclasses.fields(Options)}
        names = {field.name for field in fields()}
        for values, source in (
            (own, "the algorithm's own default"),
            (common, "the default of all algorithms"),
        ):
            for name, value in values.items():
                is_plain = isinstance(value, bool | int | float | str)
                if is_plain and name in names and self.run.get(name) is None:
                    self.put(name, value, source)


def _divided(config: Config, given: Iterable[str]) -> list[str]:
    """Says so where clusters are asked for that the algorithm does not have.

    >>> _divided(Config(algo="afga", num_clusters=2), ["num_clusters"])
    ['num_clusters = 2: afga has one; here it samples and mixes within each of 2.']
    """
    own = lookup(config.algo).defaults
    if "num_clusters" not in given or "num_clusters" in own or config.num_clusters == 1:
        return []
    return [
        f"num_clusters = {config.num_clusters}: {config.algo} has one; here it "
        f"samples and mixes within each of {config.num_clusters}."
    ]


def _nearest(config: Config, sources: Mapping[str, str]) -> list[str]:
    """Says so where a value is only the nearest that a paper gives."""
    by_source: dict[str, list[str]] = {}
    for name, source in sources.items():
        if source.startswith("nearest"):
            by_source.setdefault(source, []).append(name)
    return [
        ", ".join(f"{name} = {getattr(config, name)}" for name in names)
        + f": the papers give none for this run; {source}."
        for source, names in by_source.items()
    ]
