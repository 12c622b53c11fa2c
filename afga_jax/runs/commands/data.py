"""The data sets on this machine: list them, fetch one, check one, look at a split.

    python -m experiments.data                  # what is where
    python -m experiments.data fetch cifar10    # get it, unless it is there
    python -m experiments.data verify cifar10   # counts, labels, digests
    python -m experiments.data show --dataset=digits --partition=shards

The last one shows who would hold which labels in a run, all of whose flags it takes:
`show --help` lists them.

Exit code 0: done; 1: a data set is missing, damaged or cannot be fetched, said in one
line; 2: the command was not understood.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from afga_jax.data import partition
from afga_jax.data.store import catalog, sources
from afga_jax.data.store.catalog import DataError
from afga_jax.runs import command, flags, settings
from afga_jax.runs.config import Config, Field, fields
from afga_jax.runs.experiment.workload import dealt

_FIELDS = (
    *(f for f in fields("data") if f.name in ("data_dir", "cache_dir", "offline")),
    Field("timeout", float, 30.0, "data", "Seconds to wait for a server's answer."),
    Field("attempts", int, 4, "data", "Attempts for each download."),
    *(f for f in fields("run") if f.name == "plugin"),
)
_USAGE = "python -m experiments.data [list | fetch NAME... | verify NAME... | show]"
# What `show` shows where no data set is named.
_SHOWN = "digits"
_PICTURE = Field("out", str, None, "run", "File of the picture; else below runs.")


def data(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    if "show" in arguments[1:]:
        return _show(arguments)
    verb, *names, given = _read(arguments, _FIELDS, ["list"])
    given.pop("plugin", None)  # it was imported before
    return execute(verb, names, sources.Access(**given))


def _read(
    arguments: Sequence[str], known: Sequence[Field], words: list[str], **about: Any
) -> list[Any]:
    """Words that are no flags, or those given here, and at last what the flags say."""
    values = flags.define(known)
    with command.reading():
        found = flags.parse(
            arguments, values, usage=__doc__, words=True, known=known, **about
        )
    return [*(found or words), flags.given(values, known)]


def execute(verb: str, names: Sequence[str], access: sources.Access) -> int:
    """Does one thing with data sets.

    Args:
      verb: `list`, `fetch` or `verify`.
      names: The data sets that it is about.
      access: Where data sets may come from.

    Returns:
      The exit code.
    """
    if verb not in _VERBS or (verb == "list") != (not names):
        raise command.UsageError(f"usage: {_USAGE}")
    try:
        return _VERBS[verb](names, access)
    except KeyboardInterrupt:
        command.say("\nstopped; nothing half-fetched is left.")
        return 130


def _list(names: Sequence[str], access: sources.Access) -> int:
    del names
    rows = [("data set", "state", "size", "where, or what a fetch would download")]
    for name in catalog.CATALOG:
        status = sources.status(name, access)
        rows.append((name, status.state, _size(status.size), _where(status)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, state, size, where in rows:
        columns = (name.ljust(widths[0]), state.ljust(widths[1]), size.rjust(widths[2]))
        print("  ".join((*columns, where)))
    print(f"\nprepared sets: {access.data_dir}\ndecoded cache: {access.cache_dir}")
    return 0


def _fetch(names: Sequence[str], access: sources.Access) -> int:
    for spec in [catalog.find(name) for name in names]:
        sources.load_arrays(spec, access)
        status = sources.status(spec.name, access)
        print(f"{spec.name}: {status.state}, {_size(status.size)}, {_where(status)}")
    return 0


def _verify(names: Sequence[str], access: sources.Access) -> int:
    failures = 0
    for spec in [catalog.find(name) for name in names]:
        try:
            for line in sources.verify(spec.name, access):
                print(f"{spec.name}: whole: {line}")
        except DataError as error:
            failures += 1
            command.say(f"error: {error}")
    return 1 if failures else 0


def _show(arguments: Sequence[str]) -> int:
    """Who would hold which labels, in the terminal and as a picture."""
    config, path = shown(arguments)
    access = sources.Access(config.data_dir, config.cache_dir, config.offline)
    assignment, labels, names = dealt(config, access)
    title = f"{config.dataset}, {config.partition}, {config.num_clients} clients"
    partition.show(assignment, labels, label_names=names, path=path, title=title)
    print(f"\npicture: {path}")
    return 0


def shown(arguments: Sequence[str]) -> tuple[Config, Path]:
    """What `show` is asked for: a run's settings, and the file of the picture."""
    known = [*(field for field in fields() if field.name != "out"), _PICTURE]
    *words, given = _read(arguments, known, [], dataset=_SHOWN)
    if words != ["show"]:
        raise command.UsageError(f"usage: {_USAGE}")
    out = given.pop("out", None)
    config = settings.resolve(given, dataset=_SHOWN).config
    for line in settings.unused(config, given):
        command.say(f"note: {line}")
    path = Path(out or f"runs/{config.dataset}_{config.partition}")
    return config, path if path.suffix else path.with_suffix(".png")


def _where(status: sources.Status) -> str:
    if status.where is not None:
        return f"{status.where} ({status.note})" if status.note else str(status.where)
    sizes = [original.size or original.about for original in status.download]
    total = "size not registered" if None in sizes else _size(sum(filter(None, sizes)))
    if any(original.about for original in status.download):
        total = f"about {total}"
    urls = [original.urls[0] for original in status.download]
    if len(urls) == 1:
        download = f"{total}: {urls[0]}"
    else:
        download = f"{total} in {len(urls)} files: {os.path.dirname(urls[0])}"
    return f"{download} ({status.note})" if status.note else download


def _size(number: int) -> str:
    return f"{number / 1e6:,.1f} MB" if number else "-"


_VERBS = {"list": _list, "fetch": _fetch, "verify": _verify}
