"""The papers' data sets on this machine: list them, fetch one, check one.

    python -m experiments.data                  # what is where
    python -m experiments.data fetch cifar10    # get it, unless it is there
    python -m experiments.data verify cifar10   # counts, labels, digests

Exit code 0: done; 1: a data set is missing, damaged or cannot be fetched, said in one
line; 2: the command was not understood.
"""

import logging as standard_logging
import sys
from collections.abc import Sequence

from absl import app, flags, logging

from afga_jax.data import inventory, sources
from afga_jax.data.catalog import CATALOG, DataError, find

_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of sets prepared by TFDS; default: TFDS_DATA_DIR."
)
_CACHE_DIR = flags.DEFINE_string(
    "cache_dir", None, "Folder of the decoded cache; default: AFGA_CACHE_DIR."
)
_OFFLINE = flags.DEFINE_bool(
    "offline", None, "Leave the network alone; default: AFGA_OFFLINE."
)
_TIMEOUT = flags.DEFINE_float(
    "timeout", 30.0, "Seconds without an answer until a download is tried again."
)
_ATTEMPTS = flags.DEFINE_integer("attempts", 4, "Attempts for each download.")

_USAGE = "python -m experiments.data [list | fetch NAME... | verify NAME...]"


def main(arguments: Sequence[str]) -> int:
    """Runs one command.

    Args:
      arguments: The program's name, the command and names of data sets.

    Returns:
      The exit code.
    """
    command, *names = arguments[1:] or ["list"]
    if command not in _COMMANDS or (command == "list") != (not names):
        print(f"error: usage: {_USAGE}", file=sys.stderr)
        return 2
    try:
        access = sources.Access(
            data_dir=_DATA_DIR.value,
            cache_dir=_CACHE_DIR.value,
            offline=_OFFLINE.value,
            timeout=_TIMEOUT.value,
            attempts=_ATTEMPTS.value,
        )
        return _COMMANDS[command](names, access)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; nothing half-fetched is left.", file=sys.stderr)
        return 130


def run() -> None:
    """Entry point of the command line."""
    # Notes of this program read like its other lines; those of the libraries below are
    # not for its users.
    logging.set_verbosity(logging.WARNING)
    logging.get_absl_handler().setFormatter(
        standard_logging.Formatter("note: %(message)s")
    )
    app.run(main)


def _list(names: Sequence[str], access: sources.Access) -> int:
    del names
    rows = [("data set", "state", "size", "where, or what a fetch would download")]
    for name in CATALOG:
        status = inventory.status(name, access)
        rows.append((name, status.state, _size(status.size), _where(status)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, state, size, where in rows:
        columns = (name.ljust(widths[0]), state.ljust(widths[1]), size.rjust(widths[2]))
        print("  ".join((*columns, where)))
    print(f"\nprepared sets: {access.data_dir}\ndecoded cache: {access.cache_dir}")
    return 0


def _fetch(names: Sequence[str], access: sources.Access) -> int:
    for spec in [find(name) for name in names]:
        sources.load_arrays(spec, access)
        status = inventory.status(spec.name, access)
        print(f"{spec.name}: {status.state}, {_size(status.size)}, {status.where}")
    return 0


def _verify(names: Sequence[str], access: sources.Access) -> int:
    failures = 0
    for spec in [find(name) for name in names]:
        try:
            for line in inventory.verify(spec.name, access):
                print(f"{spec.name}: whole: {line}")
        except DataError as error:
            failures += 1
            print(f"error: {error}", file=sys.stderr)
    return 1 if failures else 0


def _where(status: inventory.Status) -> str:
    if status.where is not None:
        return str(status.where)
    sizes = [original.size for original in status.download]
    total = "size not registered" if None in sizes else _size(sum(sizes))
    files = [original.urls[0] for original in status.download]
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"{total}: {files[0]}{more}"


def _size(number: int) -> str:
    return f"{number / 1e6:,.1f} MB" if number else "-"


_COMMANDS = {"list": _list, "fetch": _fetch, "verify": _verify}

if __name__ == "__main__":
    run()
