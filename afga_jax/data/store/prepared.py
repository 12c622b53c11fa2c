"""Data sets in a folder that is only read: as TFDS prepared them, or as published."""

import contextlib
import hashlib
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from afga_jax.data.store import archives
from afga_jax.data.store.catalog import (
    Content,
    DataError,
    ImageSpec,
    Spec,
    problems,
    reason,
)
from afga_jax.data.text.shakespeare import Role, pack

# Forms that TFDS reads without TensorFlow.
_READABLE = ("array_record", "parquet")
_IMAGE_FORMATS = ("PNG", "WEBP")
_CHUNK = 1000


class Prepared(NamedTuple):
    """One prepared version of a data set.

    Attributes:
      folder: Folder of the version.
      form: TFDS's name of the file format.
      origin: Name that changes whenever the folder's files do.
    """

    folder: Path
    form: str
    origin: str

    @property
    def readable(self) -> bool:
        """Whether it can be read without TensorFlow."""
        return self.form in _READABLE


def find(spec: Spec, data_dir: Path) -> Prepared | None:
    """The newest prepared version of a data set.

    Args:
      spec: Description of the data set.
      data_dir: Folder of TFDS data sets; of one that is published as Parquet files, the
        folder of its name has these, or a folder as its publisher's.

    Returns:
      The version, or None where nothing is prepared.
    """
    if spec.tables:
        paths = [Path(path) for path, _ in spec.tables.files.values()]
        own = data_dir / spec.name
        for place in (own / paths[0].parent, own):
            if all((place / path.name).is_file() for path in paths):
                return Prepared(place, "parquet", f"files {_stamp(place)}")
        return None
    versions = [
        (tuple(map(int, folder.name.split("."))), folder)
        for folder in (data_dir / spec.prepared_name).glob("*.*.*")
        # TFDS works in folders named "3.0.2.incomplete..." until a set is whole.
        if re.fullmatch(r"\d+\.\d+\.\d+", folder.name)
        and (folder / "dataset_info.json").is_file()
    ]
    if not versions:
        return None
    folder = max(versions)[1]
    try:
        info = json.loads((folder / "dataset_info.json").read_text())
        form = str(info.get("fileFormat", "tfrecord"))
    except (OSError, ValueError, AttributeError) as error:
        raise _damaged(spec, folder, error) from error
    return Prepared(folder, form, f"prepared {_stamp(folder)}")


def read(spec: Spec, prepared: Prepared) -> Content:
    """Decodes a prepared set.

    Args:
      spec: Description of the data set.
      prepared: Prepared version, from `find`.

    Returns:
      Images, labels and label names, or the packed roles.
    """
    if spec.tables:
        folder = prepared.folder
        names = [Path(path).name for path, _ in spec.tables.files.values()]
        content = archives.decode(spec, {name: folder / name for name in names})
        if differences := "; ".join(problems(spec, content)):
            raise DataError(
                f"{spec.name}: the files in {folder} are not it ({differences}); take "
                "them away and let it be fetched."
            )
        return content
    # A second to import, and needless where the decoded cache has the data set.
    import tensorflow_datasets as tfds

    with _without_hints():
        try:
            builder = tfds.builder_from_directory(prepared.folder)
            if isinstance(spec, ImageSpec):
                return _read_images(spec, builder)
            source = builder.as_data_source(split="train")
            records = source.__getitems__(list(range(len(source))))
            texts = ([each[name].decode() for name in Role._fields] for each in records)
            return pack([Role(*text) for text in texts])
        # Record readers and decoders raise whatever their libraries raise.
        except Exception as error:
            raise _damaged(spec, prepared.folder, error) from error


def _stamp(folder: Path) -> str:
    """Changes with a file's name, size or time; reading every byte would take long."""
    stats = [(file.name, file.stat()) for file in sorted(folder.iterdir())]
    rows = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    return hashlib.sha256(json.dumps([folder.name, *rows]).encode()).hexdigest()[:32]


def _read_images(spec: ImageSpec, builder) -> Content:
    import tensorflow_datasets as tfds
    from PIL import Image
    from tensorflow_datasets.core import hashing

    arrays: dict[str, np.ndarray] = {}
    for split in spec.counts:
        # TFDS's own decoder tries every image format: nearly twice the time.
        decoders = {"image": tfds.decode.SkipDecoding()}
        source = builder.as_data_source(split=split, decoders=decoders)
        inputs = np.empty((len(source), *spec.shape), np.uint8)
        targets = np.empty(len(source), np.int32)
        positions = np.arange(len(source))
        if not builder.info.disable_shuffling:
            # TFDS sorts records by a salted hash.
            key = hashing.Hasher(split).hash_key
            positions = np.array(sorted(positions.tolist(), key=key))
        starts = range(0, len(source), _CHUNK)
        title = {"desc": f"{spec.name} {split}", "unit": " images"}
        # It takes a while, so a terminal gets a progress bar.
        for start in tqdm(starts, **title, unit_scale=_CHUNK, disable=None):
            rows = range(start, min(start + _CHUNK, len(source)))
            records = source.__getitems__(list(rows))
            if "id" in records[0]:
                positions[rows] = [_position(record["id"]) for record in records]
            files = (io.BytesIO(record["image"]) for record in records)
            pixels = [np.asarray(Image.open(f, formats=_IMAGE_FORMATS)) for f in files]
            inputs[positions[rows]] = np.reshape(pixels, (len(rows), *spec.shape))
            targets[positions[rows]] = [record["label"] for record in records]
        if np.any(np.sort(positions) != np.arange(len(source))):
            raise ValueError(f"the ids of split {split} do not count its records")
        arrays |= {f"{split}_inputs": inputs, f"{split}_targets": targets}
    return arrays | {"label_names": np.array(builder.info.features["label"].names)}


def _position(identifier: bytes) -> int:
    return int(identifier.rsplit(b"_", 1)[1])


@contextlib.contextmanager
def _without_hints() -> Iterator[None]:
    """Drops two hints about speed that are meant for those who prepare data sets."""

    def wanted(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        return "group size" not in message and "OpenCV" not in message

    logger = logging.getLogger("absl")
    logger.addFilter(wanted)
    try:
        yield
    finally:
        logger.removeFilter(wanted)


def _damaged(spec: Spec, folder: Path, error: Exception) -> DataError:
    return DataError(
        f"{spec.name}: the prepared set in {folder} is damaged ({reason(error)}); "
        "prepare it anew with TFDS, or take it away and let it be fetched."
    )
