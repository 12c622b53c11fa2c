"""The original archives, decoded with NumPy; nothing is unpacked onto the disk.

`fetch` has compared an archive with its registered checksum before it comes here. For
one without, and for a mistake in the table: members are taken by their exact names, no
more of one is read than the data set can have, and no format that can run code (pickle)
is read.
"""

import gzip
import math
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from afga_jax.data.store.catalog import Content, DataError, ImageSpec, Spec, reason
from afga_jax.data.text.shakespeare import pack, parse, plays_sha256

_WORKS = "100.txt"
# The complete works are 5.5 MB.
_TEXT_LIMIT = 20 << 20
_NAMES_LIMIT = 1 << 16


class _CifarLayout(NamedTuple):
    """Where the archive of a binary version keeps what.

    Attributes:
      folder: Name of the folder of all members.
      members: Names of the members of each split; a record is label bytes, then pixels.
      label_bytes: Number of label bytes, of which the last is the label.
      names: Name of the member with the names of the classes.
    """

    folder: str
    members: Mapping[str, Sequence[str]]
    label_bytes: int
    names: str


_CIFAR = {
    "cifar10": _CifarLayout(
        folder="cifar-10-batches-bin",
        members={
            "train": [f"data_batch_{number}.bin" for number in range(1, 6)],
            "test": ["test_batch.bin"],
        },
        label_bytes=1,
        names="batches.meta.txt",
    ),
    "cifar100": _CifarLayout(
        folder="cifar-100-binary",
        members={"train": ["train.bin"], "test": ["test.bin"]},
        label_bytes=2,
        names="fine_label_names.txt",
    ),
}

_IDX_PREFIX = {"train": "train", "test": "t10k"}


def decode(spec: Spec, files: Mapping[str, Path]) -> Content:
    """Decodes the originals of a data set.

    Args:
      spec: Description of the data set.
      files: Paths of the originals, by file name.

    Returns:
      The same arrays as `prepared.read` gives.

    Raises:
      DataError: An archive is truncated or not what the data set needs.
    """
    try:
        if isinstance(spec, ImageSpec) and spec.form == "idx":
            return _decode_idx(spec, files)
        (path,) = files.values()
        if isinstance(spec, ImageSpec):
            return _decode_cifar(spec, _CIFAR[spec.name], path)
        return pack(parse(_zipped_works(path, spec.plays_sha256)))
    # Each library has errors of its own for a broken archive.
    except Exception as error:
        raise DataError(
            f"{spec.name}: cannot read {', '.join(files)}: {reason(error)}."
        ) from error


def _decode_cifar(spec: ImageSpec, layout: _CifarLayout, path: Path) -> Content:
    arrays: dict[str, np.ndarray] = {}
    rows: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for split, members in layout.members.items():
        inputs = np.empty((spec.counts[split], *spec.shape), np.uint8)
        targets = np.empty(spec.counts[split], np.int32)
        arrays |= {f"{split}_inputs": inputs, f"{split}_targets": targets}
        parts = (np.split(array, len(members)) for array in (inputs, targets))
        rows |= dict(zip(members, zip(*parts, strict=True), strict=True))
    # In stored order: to go back would be to expand the archive again.
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            folder, _, name = member.name.rpartition("/")
            content = archive.extractfile(member) if member.isfile() else None
            if content is None or folder != layout.folder:
                continue
            if name == layout.names:
                lines = content.read(_NAMES_LIMIT).decode("utf-8").splitlines()
                arrays["label_names"] = np.array([line for line in lines if line])
            elif name in rows:
                _read_records(content, name, layout.label_bytes, *rows.pop(name))
    if missing := [*rows, *([] if "label_names" in arrays else [layout.names])]:
        raise ValueError(f"{', '.join(missing)} missing")
    return arrays


def _read_records(
    content: IO[bytes],
    name: str,
    label_bytes: int,
    inputs: np.ndarray,
    targets: np.ndarray,
) -> None:
    """Reads one member into its rows of the split."""
    count, height, width, channels = inputs.shape
    size = count * (label_bytes + height * width * channels)
    block = content.read(size + 1)
    if len(block) != size:
        word = "fewer" if len(block) < size else "more"
        raise ValueError(f"{name} has {word} than {count} records")
    records = np.frombuffer(block, np.uint8).reshape(count, -1)
    planes = records[:, label_bytes:].reshape(count, channels, height, width)
    inputs[:] = planes.transpose(0, 2, 3, 1)
    targets[:] = records[:, label_bytes - 1]


def _decode_idx(spec: ImageSpec, files: Mapping[str, Path]) -> Content:
    arrays = {"label_names": np.array(spec.label_names)}
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
        if file.read(len(header)) != header:
            raise ValueError(f"{path.name} does not start as idx of shape {shape}")
        content = file.read(math.prod(shape) + 1)
    if len(content) != math.prod(shape):
        raise ValueError(f"{path.name} does not hold {math.prod(shape)} bytes of data")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _zipped_works(path: Path, sha256: str) -> str:
    with zipfile.ZipFile(path) as archive, archive.open(_WORKS) as file:
        content = file.read(_TEXT_LIMIT + 1)
    if len(content) > _TEXT_LIMIT:
        raise ValueError(f"{_WORKS} is longer than {_TEXT_LIMIT:,} bytes")
    text = content.decode("utf-8-sig")
    if (plays := plays_sha256(text)) != sha256:
        raise ValueError(
            f"{_WORKS} is not the edition that LEAF splits: sha256 of its plays is "
            f"{plays}, registered is {sha256}"
        )
    return text
