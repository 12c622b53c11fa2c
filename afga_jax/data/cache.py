"""Decoded data sets on disk: written whole or not at all, checked whenever read.

One file per data set, `<folder>/<name>.npz`, uncompressed and without pickle. Its
header names the data set, where the content came from and a digest of every array; a
file that does not live up to its header is refused, and whoever asked rebuilds it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import logging

from afga_jax.data.catalog import DataError

Arrays = Mapping[str, np.ndarray]

# Raised when the meaning of the stored arrays changes, so that old files are rebuilt.
FORMAT = 1
_HEADER = "header"

# Whatever a reader of foreign or half a file may run into.
_UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    EOFError,
    MemoryError,
    SyntaxError,
    zipfile.BadZipFile,
)


class Header(NamedTuple):
    """What a stored data set says of itself.

    Attributes:
      origin: Where the content came from, as told to `write`.
      digests: `array_digest` of each array.
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


def array_digest(array: np.ndarray) -> str:
    """The first 128 bits of the SHA-256 of an array's type, shape and content.

    Args:
      array: Any array without Python objects.

    Returns:
      32 hexadecimal digits.

    Example:
      >>> array_digest(np.arange(3)) == array_digest(np.arange(3.0))
      False
    """
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()[:32]


def read(name: str, folder: Path) -> tuple[Arrays, Header] | None:
    """Reads a decoded data set and checks it against its own header.

    Args:
      name: Name of the data set.
      folder: The cache folder.

    Returns:
      Its content and its header, or None where there is no file.

    Raises:
      DataError: The file is truncated, altered, of another data set or another format.
    """
    path = path_of(name, folder)
    try:
        arrays = _load(path)
        header = _parse(arrays.pop(_HEADER), name)
    except FileNotFoundError:
        return None
    except _UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path} is damaged: {reason}.") from error
    found = {key: array_digest(array) for key, array in arrays.items()}
    if damaged := differences(found, header.digests):
        raise DataError(f"{path} is damaged: {', '.join(damaged)} changed.")
    return arrays, header


def peek(name: str, folder: Path) -> Header | None:
    """What a stored data set says of itself; None: nothing that could be read."""
    try:
        with np.load(path_of(name, folder), allow_pickle=False) as content:
            return _parse(content[_HEADER], name)
    except _UNREADABLE:
        return None


def differences(found: Mapping[str, str], expected: Mapping[str, str]) -> list[str]:
    """Names of the arrays whose digest differs or that only one side has."""
    names = sorted(found.keys() | expected.keys())
    return [name for name in names if found.get(name) != expected.get(name)]


def write(name: str, folder: Path, arrays: Arrays, origin: str, scratch: Path) -> None:
    """Writes a decoded data set so that it appears whole or not at all.

    Args:
      name: Name of the data set.
      folder: The cache folder.
      arrays: The content; no Python objects.
      origin: Where the content came from.
      scratch: The folder given by `workspace`.
    """
    header = {
        "format": FORMAT,
        "name": name,
        "origin": origin,
        "digests": {key: array_digest(array) for key, array in arrays.items()},
    }
    unfinished = scratch / "decoded.npz"
    with open(unfinished, "wb") as file:
        np.savez(
            file,
            allow_pickle=False,
            **{_HEADER: np.array(json.dumps(header))},
            **arrays,
        )
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path_of(name, folder))
    _sync_folder(folder)


@contextlib.contextmanager
def workspace(name: str, folder: Path) -> Iterator[Path]:
    """An empty folder for work on one data set that one process at a time can have.

    Waits while another process works on the same data set. The folder is removed at the
    end; what a killed process left is removed by the next one.

    Args:
      name: Name of the data set.
      folder: The cache folder; made where it is missing.

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


def _load(path: Path) -> dict[str, np.ndarray]:
    with open(path, "rb") as file:
        with zipfile.ZipFile(file) as members:
            # A stored member cannot claim more bytes than the file has.
            if any(m.compress_type != zipfile.ZIP_STORED for m in members.infolist()):
                raise ValueError("it has compressed members")
        file.seek(0)
        with np.load(file, allow_pickle=False) as content:
            return {key: content[key] for key in content.files}


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
        # The one before may have removed the file between our open and our lock.
        if _is_file_at(descriptor, path):
            break
        os.close(descriptor)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _is_file_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
