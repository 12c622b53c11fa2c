"""The original archives, decoded with NumPy; nothing is unpacked onto the disk.

An archive comes from the network, so it is read as if somebody had made it to do harm:
members are streamed, never extracted; a member that points outside, or that is not a
plain file, condemns the archive; no more bytes are expanded than the data set can have;
and no format that can run code (pickle) is read.
"""

import contextlib
import gzip
import math
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

import numpy as np

from afga_jax.data.cache import Arrays
from afga_jax.data.catalog import DataError, ImageSpec, Spec, TextSpec
from afga_jax.data.roles import pack
from afga_jax.data.shakespeare import parse

# Tar headers, label names and read-me files come on top of the samples.
_SLACK = 1 << 20
# The complete works are 5.5 MB.
_TEXT_LIMIT = 20 << 20
_RECORDS_AT_ONCE = 1000


class _CifarLayout(NamedTuple):
    """Where the binary version keeps what: records are label bytes, then the pixels."""

    members: Mapping[str, Sequence[str]]
    label_bytes: int
    label_byte: int
    names_member: str


_CIFAR = {
    "cifar10": _CifarLayout(
        members={
            "train": [f"data_batch_{number}.bin" for number in range(1, 6)],
            "test": ["test_batch.bin"],
        },
        label_bytes=1,
        label_byte=0,
        names_member="batches.meta.txt",
    ),
    "cifar100": _CifarLayout(
        members={"train": ["train.bin"], "test": ["test.bin"]},
        label_bytes=2,
        label_byte=1,
        names_member="fine_label_names.txt",
    ),
}

_IDX_PREFIX = {"train": "train", "test": "t10k"}


def decode(
    spec: Spec, files: Mapping[str, Path], label_names: Sequence[str] = ()
) -> Arrays:
    """Decodes the originals of a data set.

    Args:
      spec: The data set.
      files: The originals by file name.
      label_names: Names of the classes, for a form that does not hold them.

    Returns:
      The same arrays as `prepared.read` gives.

    Raises:
      DataError: An archive is truncated, unsafe, or not what the data set needs.
    """
    with _readable(spec, files):
        if isinstance(spec, TextSpec):
            (path,) = files.values()
            return pack(parse(_zipped_text(path)))
        if spec.form == "cifar":
            (path,) = files.values()
            return _decode_cifar(spec, _CIFAR[spec.name], path)
        return _decode_idx(spec, files, label_names)


def _decode_cifar(spec: ImageSpec, layout: _CifarLayout, path: Path) -> Arrays:
    record_bytes = layout.label_bytes + math.prod(spec.shape)
    limit = sum(spec.counts.values()) * record_bytes + _SLACK
    arrays: dict[str, np.ndarray] = {}
    for split, count in spec.counts.items():
        arrays[f"{split}_inputs"] = np.empty((count, *spec.shape), np.uint8)
        arrays[f"{split}_targets"] = np.empty(count, np.int32)
    places: dict[str, Any] = {}
    for split, members in layout.members.items():
        size = spec.counts[split] // len(members)
        places |= {
            member: (split, slice(number * size, (number + 1) * size))
            for number, member in enumerate(members)
        }
    for name, member in _tar_members(path, limit):
        if name == layout.names_member:
            lines = member.read().decode("utf-8").splitlines()
            arrays["label_names"] = np.array([line for line in lines if line])
        elif name in places:
            split, rows = places.pop(name)
            inputs = arrays[f"{split}_inputs"][rows]
            targets = arrays[f"{split}_targets"][rows]
            _fill(inputs, targets, member, layout, name)
    missing = [*places, *({"label_names"} - arrays.keys())]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing")
    return arrays


def _fill(inputs, targets, member, layout: _CifarLayout, name: str) -> None:
    """Reads the records of one member into its rows of the split."""
    height, width, channels = inputs.shape[1:]
    record_bytes = layout.label_bytes + height * width * channels
    for start in range(0, len(targets), _RECORDS_AT_ONCE):
        rows = slice(start, min(start + _RECORDS_AT_ONCE, len(targets)))
        block = member.read((rows.stop - rows.start) * record_bytes)
        if len(block) != (rows.stop - rows.start) * record_bytes:
            raise ValueError(f"{name} has fewer than {len(targets)} records")
        records = np.frombuffer(block, np.uint8).reshape(-1, record_bytes)
        targets[rows] = records[:, layout.label_byte]
        planes = records[:, layout.label_bytes :].reshape(-1, channels, height, width)
        inputs[rows] = planes.transpose(0, 2, 3, 1)
    if member.read(1):
        raise ValueError(f"{name} has more than {len(targets)} records")


def _decode_idx(
    spec: ImageSpec, files: Mapping[str, Path], label_names: Sequence[str]
) -> Arrays:
    arrays = {"label_names": np.array(label_names)}
    for split, count in spec.counts.items():
        prefix = _IDX_PREFIX[split]
        images = files[f"{prefix}-images-idx3-ubyte.gz"]
        labels = files[f"{prefix}-labels-idx1-ubyte.gz"]
        inputs = _read_idx(images, (count, *spec.shape[:2]))
        arrays[f"{split}_inputs"] = inputs.reshape(count, *spec.shape)
        arrays[f"{split}_targets"] = _read_idx(labels, (count,)).astype(np.int32)
    return arrays


def _read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Reads a gzipped idx file of bytes: 0, 0, type 8, rank, then big-endian sizes."""
    header = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes()
    with gzip.open(path) as file:
        found = file.read(len(header))
        if found != header:
            raise ValueError(f"{path.name} does not start as idx of shape {shape}")
        content = file.read(math.prod(shape) + 1)
    if len(content) != math.prod(shape):
        raise ValueError(f"{path.name} does not hold {math.prod(shape)} bytes of data")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _zipped_text(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            _refuse_outside(member.filename)
        texts = [member for member in members if member.filename.endswith(".txt")]
        if len(texts) != 1:
            raise ValueError(f"it holds {len(texts)} text files instead of one")
        with archive.open(texts[0]) as file:
            content = file.read(_TEXT_LIMIT + 1)
    if len(content) > _TEXT_LIMIT:
        raise ValueError(f"{texts[0].filename} is longer than {_TEXT_LIMIT:,} bytes")
    return content.decode("utf-8-sig")


def _tar_members(path: Path, limit: int) -> Iterator[tuple[str, IO[bytes]]]:
    """Base name and content of each plain file of a gzipped tar, in stored order."""
    with gzip.open(path) as expanded:
        stream = _Limited(expanded, limit)
        # The stream has the one method that is called in this mode.
        with tarfile.open(fileobj=cast(Any, stream), mode="r|") as archive:
            for member in archive:
                _refuse_outside(member.name)
                if not (member.isfile() or member.isdir()):
                    raise ValueError(f"member {member.name!r} is not a plain file")
                content = archive.extractfile(member)
                if content is not None:
                    yield PurePosixPath(member.name).name, content
        # gzip compares its own checksum only at the very end.
        while stream.read(1 << 16):
            pass


class _Limited:
    """A stream that refuses to give more than `limit` bytes."""

    def __init__(self, stream, limit: int):
        self._stream, self._limit, self._left = stream, limit, limit

    def read(self, size: int) -> bytes:
        content = self._stream.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise ValueError(f"it expands to more than {self._limit:,} bytes")
        return content


def _refuse_outside(name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name:
        raise ValueError(f"member {name!r} points outside the archive's folder")


@contextlib.contextmanager
def _readable(spec: Spec, files: Mapping[str, Path]) -> Iterator[None]:
    """Turns whatever a broken archive sets off into one line that names it."""
    failure: Exception
    try:
        yield
    # zipfile: RuntimeError for an encrypted member, NotImplementedError (a subclass)
    # for a compression that it does not know.
    except (OSError, EOFError, ValueError, KeyError, RuntimeError) as error:
        failure = error
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        failure = error
    else:
        return
    reason = " ".join(str(failure).split()) or type(failure).__name__
    raise DataError(
        f"{spec.name}: cannot read {', '.join(files)}: {reason}."
    ) from failure
