"""The data sets on this machine: list them, fetch one, check one, look at a split.

    python -m experiments.data                  # what is where
    python -m experiments.data fetch cifar10    # get it, unless it is there
    python -m experiments.data verify cifar10   # counts, labels, digests

Exit code 0: done; 1: a data set is missing, damaged or cannot be fetched, said in one
line; 2: the command was not understood.
"""

import os
import sys
from collections.abc import Sequence

from afga_jax.data.store import catalog, sources
from afga_jax.data.store.catalog import DataError
from afga_jax.runs import command, flags
from afga_jax.runs.config import Field, fields

_FIELDS = (
    *(f for f in fields("data") if f.name in ("data_dir", "cache_dir", "offline")),
    Field("timeout", float, 30.0, "data", "Seconds to wait for a server's answer."),
    Field("attempts", int, 4, "data", "Attempts for each download."),
    *(f for f in fields("run") if f.name == "plugin"),
)
_USAGE = "python -m experiments.data [list | fetch NAME... | verify NAME...]"


def main(arguments: Sequence[str] | None = None) -> None:
    """Ends the program with the command's exit code."""
    sys.exit(command.execute(data, arguments))


def data(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    values = flags.define(_FIELDS)
    try:
        words = flags.parse(arguments, values, usage=__doc__, words=True, known=_FIELDS)
    except ValueError as error:
        raise command.UsageError(str(error)) from error
    verb, *names = words or ["list"]
    given = flags.given(values, _FIELDS)
    given.pop("plugin", None)  # it was imported before
    return execute(verb, names, sources.Access(**given))


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
