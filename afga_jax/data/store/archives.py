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
from typing import NamedTuple, cast

import numpy as np

from afga_jax.data.dataset import Dataset
from afga_jax.data.store.catalog import (
    Content,
    DataError,
    ImageSpec,
    Spec,
    Tables,
    reason,
)
from afga_jax.data.tables import from_parquet
from afga_jax.data.text.shakespeare import pack, parse, plays_sha256

_WORKS = "100.txt"
# The complete works are 5.5 MB.
_TEXT_LIMIT = 20 << 20


class _CifarLayout(NamedTuple):
    """Where the archive of a binary version keeps what.

    Attributes:
      folder: Name of the folder of all members.
      train: Names of the members with training records; a record is label bytes, then
        pixels.
      test: Name of the member with test records.
      label_bytes: Number of label bytes, of which the last is the label.
      names: Name of the member with the names of the classes.
    """

    folder: str
    train: Sequence[str]
    test: str
    label_bytes: int
    names: str


_BATCHES = [f"data_batch_{number}.bin" for number in range(1, 6)]
_CIFAR = {
    "cifar10": _CifarLayout(
        "cifar-10-batches-bin", _BATCHES, "test_batch.bin", 1, "batches.meta.txt"
    ),
    "cifar100": _CifarLayout(
        "cifar-100-binary", ["train.bin"], "test.bin", 2, "fine_label_names.txt"
    ),
}


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
        if isinstance(spec, ImageSpec) and spec.tables:
            return _decode_tables(spec.tables, spec.num_classes, files)
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
    wanted = (*layout.train, layout.test, layout.names)
    record = layout.label_bytes + math.prod(spec.shape)
    members = {}
    # In stored order: to go back would be to expand the archive again.
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            folder, _, name = member.name.rpartition("/")
            file = archive.extractfile(member) if member.isfile() else None
            if file and folder == layout.folder and name in wanted:
                members[name] = file.read(sum(spec.counts.values()) * record)
    if missing := [name for name in wanted if name not in members]:
        raise ValueError(f"{', '.join(missing)} missing")
    lines = members[layout.names].decode().splitlines()
    arrays = {"label_names": np.array([line for line in lines if line])}
    height, width, channels = spec.shape
    for split, names in (("train", layout.train), ("test", [layout.test])):
        count = spec.counts[split] // len(names)
        for name in names:
            if (excess := len(members[name]) - count * record) != 0:
                word = "fewer" if excess < 0 else "more"
                raise ValueError(f"{name} has {word} than {count} records")
        content = b"".join(members.pop(name) for name in names)
        records = np.frombuffer(content, np.uint8).reshape(-1, record)
        planes = records[:, layout.label_bytes :].reshape(-1, channels, height, width)
        arrays[f"{split}_inputs"] = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        labels = records[:, layout.label_bytes - 1]
        arrays[f"{split}_targets"] = labels.astype(np.int32)
    return arrays


def _decode_idx(spec: ImageSpec, files: Mapping[str, Path]) -> Content:
    arrays = {"label_names": np.array(spec.label_names)}
    for split, count in spec.counts.items():
        prefix = "train" if split == "train" else "t10k"
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


def _decode_tables(
    tables: Tables, num_classes: int, files: Mapping[str, Path]
) -> Content:
    paths = {split: files[Path(path).name] for split, (path, _) in tables.files.items()}
    read = from_parquet(
        paths["train"],
        test=paths.get("test"),
        input="image",
        label=tables.label,
        client=tables.client,
        num_classes=num_classes,
        test_fraction=0,
    )
    dataset = cast(Dataset, read)  # there is a column of labels
    arrays = {"label_names": np.array(dataset.label_names)}
    for split in paths:
        arrays[f"{split}_inputs"] = getattr(dataset, f"{split}_inputs")
        arrays[f"{split}_targets"] = getattr(dataset, f"{split}_targets")
    if dataset.train_clients is not None:
        arrays["train_clients"] = dataset.train_clients
        arrays["client_names"] = np.array(dataset.client_names)
    return arrays


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
