"""Decoded data sets on disk: written whole or not at all, checked whenever read.

One file per data set, `<folder>/<name>.npz`, uncompressed and without pickle. Its
header names the data set, where the content came from and a digest of every array; a
file that does not live up to its header is refused, and whoever asked rebuilds it.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import logging

from afga_jax.data.store.catalog import (
    Content,
    DataError,
    differences,
    digests_of,
    reason,
)

# Raised when the meaning of the stored arrays changes, so that old files are rebuilt.
FORMAT = 1
_HEADER = "header"


class Header(NamedTuple):
    """What a stored data set says of itself.

    Attributes:
      origin: Name of where the content came from, as given to `write`.
      digests: Digest of each array, see `catalog.digests_of`.
    """

    origin: str
    digests: Mapping[str, str]


def default_folder() -> Path:
    """The cache folder: `AFGA_CACHE_DIR`, or `afga_jax` in the user's cache folder."""
    if chosen := os.environ.get("AFGA_CACHE_DIR"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "afga_jax"


def path_of(name: str, folder: Path) -> Path:
    """The file that holds a decoded data set."""
    return folder / f"{name}.npz"


def read(name: str, folder: Path) -> tuple[Content, Header] | None:
    """Reads a decoded data set and checks it against its own header.

    Args:
      name: Name of the data set.
      folder: Folder of the cache.

    Returns:
      Its content and its header, or None where there is no file.

    Raises:
      DataError: The file is truncated, altered, of another data set or another format.
    """
    path = path_of(name, folder)
    try:
        # NumPy would leave a file open that is not what it expects.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as content:
            # A stored member cannot claim more bytes than the file has.
            if any(member.compress_type for member in content.zip.infolist()):
                raise ValueError("it has compressed members")
            header = _parse(content[_HEADER], name)
            arrays = {key: content[key] for key in content.files if key != _HEADER}
    except FileNotFoundError:
        return None
    # A file that is foreign or cut short sets off errors of many kinds.
    except Exception as error:
        raise DataError(f"{path} is damaged: {reason(error)}.") from error
    if damaged := differences(digests_of(arrays), header.digests):
        raise DataError(f"{path} is damaged: {', '.join(damaged)} changed.")
    return arrays, header


def peek(name: str, folder: Path) -> Header | None:
    """What a stored data set says of itself; None: nothing that could be read."""
    try:
        with np.load(path_of(name, folder), allow_pickle=False) as content:
            return _parse(content[_HEADER], name)
    except Exception:
        return None


def write(
    name: str, folder: Path, content: Content, origin: str, scratch: Path
) -> None:
    """Writes a decoded data set so that it appears whole or not at all.

    Args:
      name: Name of the data set.
      folder: Folder of the cache.
      content: Decoded arrays; no Python objects.
      origin: Name of where the content came from.
      scratch: Folder that `workspace` yields.
    """
    header = {
        "format": FORMAT,
        "name": name,
        "origin": origin,
        "digests": digests_of(content),
    }
    stored = {_HEADER: np.array(json.dumps(header)), **content}
    unfinished = scratch / "decoded.npz"
    with open(unfinished, "wb") as file:
        np.savez(file, allow_pickle=False, **stored)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path_of(name, folder))


@contextlib.contextmanager
def workspace(name: str, folder: Path) -> Iterator[Path]:
    """An empty folder for work on one data set that one process at a time can have.

    Waits while another process works on the same data set. The folder is removed at the
    end; what a killed process left is removed by the next one.

    Args:
      name: Name of the data set.
      folder: Folder of the cache; created where it is missing.

    Yields:
      The folder, on the same file system as the cache.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / f".{name}.lock", name):
        scratch = folder / f".{name}.partial"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _parse(stored: np.ndarray, name: str) -> Header:
    header = json.loads(str(stored))
    if (header["name"], header["format"]) != (name, FORMAT):
        raise ValueError(
            f"it holds {header['name']!r} in format {header['format']!r}, not {name!r} "
            f"in format {FORMAT}"
        )
    return Header(str(header["origin"]), dict(header["digests"]))


@contextlib.contextmanager
def _locked(path: Path, name: str) -> Iterator[None]:
    # The kernel drops the lock of a killed process, so a stale file never blocks.
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logging.warning("Another process works on %s; waiting for it.", name)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Its owner may have removed the file between our open and our lock.
        if os.fstat(descriptor).st_nlink:
            break
        os.close(descriptor)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)
