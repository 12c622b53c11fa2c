"""The papers' data sets on this machine: list them, fetch one, check one.

    python -m experiments.data                  # what is where
    python -m experiments.data fetch cifar10    # get it, unless it is there
    python -m experiments.data verify cifar10   # counts, labels, digests

Exit code 0: done; 1: a data set is missing, damaged or cannot be fetched, said in one
line; 2: the command was not understood.
"""

import dataclasses
import os
import sys
from collections.abc import Sequence

from absl import app, flags

from afga_jax.data import catalog, sources
from afga_jax.data.catalog import DataError
from experiments.command import plain_notes

_FIELDS = dataclasses.fields(sources.Access)
_USAGE = "python -m experiments.data [list | fetch NAME... | verify NAME...]"


def execute(command: str, names: Sequence[str], access: sources.Access) -> int:
    """Runs one command.

    Args:
      command: `list`, `fetch` or `verify`.
      names: The data sets that it is about.
      access: Where they may come from.

    Returns:
      The exit code.
    """
    if command not in _COMMANDS or (command == "list") != (not names):
        print(f"error: usage: {_USAGE}", file=sys.stderr)
        return 2
    try:
        return _COMMANDS[command](names, access)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; nothing half-fetched is left.", file=sys.stderr)
        return 130


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags: not on import, since other programs use these names too."""
    flags.DEFINE_string(
        "data_dir", None, "Folder of TFDS's sets; or TFDS_DATA_DIR.", values
    )
    flags.DEFINE_string(
        "cache_dir", None, "Folder of decoded sets; or AFGA_CACHE_DIR.", values
    )
    flags.DEFINE_bool(
        "offline", None, "Leave the network alone; or AFGA_OFFLINE=1.", values
    )
    flags.DEFINE_float(
        "timeout", 30.0, "Seconds to wait for a server's answer.", flag_values=values
    )
    flags.DEFINE_integer(
        "attempts", 4, "Attempts for each download.", flag_values=values
    )


def main(arguments: Sequence[str], values: flags.FlagValues = flags.FLAGS) -> int:
    """Runs the command line.

    Args:
      arguments: The program's name and what is left beside the flags.
      values: The flags.

    Returns:
      The exit code.
    """
    command, *names = arguments[1:] or ["list"]
    given = {field.name: values[field.name].value for field in _FIELDS}
    try:
        access = sources.Access(**given)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return execute(command, names, access)


def run() -> None:
    """Entry point of the command line."""
    define_flags(flags.FLAGS)
    plain_notes()
    app.run(main)


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
        print(f"{spec.name}: {status.state}, {_size(status.size)}, {status.where}")
    return 0


def _verify(names: Sequence[str], access: sources.Access) -> int:
    failures = 0
    for spec in [catalog.find(name) for name in names]:
        try:
            for line in sources.verify(spec.name, access):
                print(f"{spec.name}: whole: {line}")
        except DataError as error:
            failures += 1
            print(f"error: {error}", file=sys.stderr)
    return 1 if failures else 0


def _where(status: sources.Status) -> str:
    if status.where is not None:
        return str(status.where)
    sizes = [original.size for original in status.download]
    total = "size not registered" if None in sizes else _size(sum(sizes))
    urls = [original.urls[0] for original in status.download]
    if len(urls) == 1:
        download = f"{total}: {urls[0]}"
    else:
        download = f"{total} in {len(urls)} files: {os.path.dirname(urls[0])}"
    return f"{download} ({status.note})" if status.note else download


def _size(number: int) -> str:
    return f"{number / 1e6:,.1f} MB" if number else "-"


_COMMANDS = {"list": _list, "fetch": _fetch, "verify": _verify}

if __name__ == "__main__":
    run()
