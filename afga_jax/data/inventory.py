"""Which data sets are at hand, and whether they are whole."""

from pathlib import Path
from typing import NamedTuple

from afga_jax.data import cache, catalog, content, fetch, prepared
from afga_jax.data.cache import Arrays
from afga_jax.data.catalog import DataError, ImageSpec, Spec
from afga_jax.data.sources import Access, missing, usable


class Status(NamedTuple):
    """Where a data set is.

    Attributes:
      name: The data set.
      state: `"prepared"` (by TFDS), `"cached"` (decoded), or `"missing"`.
      where: Its folder or file; None: missing.
      size: Its bytes on the disk; 0: missing.
      download: The files that a fetch would download.
    """

    name: str
    state: str
    where: Path | None
    size: int
    download: tuple[fetch.Original, ...]


def status(name: str, access: Access) -> Status:
    """Tells where a data set is, without reading it.

    Args:
      name: The data set.
      access: Where it may be.

    Returns:
      The place that `sources.load` would take it from.
    """
    spec = catalog.find(name)
    found = prepared.find(spec, access.data_dir)
    if found and found.readable:
        size = sum(file.stat().st_size for file in found.folder.iterdir())
        return Status(name, "prepared", found.folder, size, ())
    header = cache.peek(name, access.cache_dir)
    if header and usable(spec, header, None):
        path = cache.path_of(name, access.cache_dir)
        return Status(name, "cached", path, path.stat().st_size, ())
    return Status(name, "missing", None, 0, fetch.registered(spec).originals)


def verify(name: str, access: Access) -> list[str]:
    """Checks a data set wherever it is: counts, labels and digests of the content.

    Args:
      name: The data set.
      access: Where it may be; the network is not touched.

    Returns:
      One line per place, saying what was found there.

    Raises:
      DataError: The data set is nowhere, or something of it is damaged.
    """
    spec = catalog.find(name)
    lines, damages = [], []
    found = prepared.find(spec, access.data_dir)
    if found and found.readable:
        arrays = prepared.read(spec, found)
        _judge(spec, arrays, found.folder, lines, damages)
    entry = cache.read(name, access.cache_dir)
    if entry is not None:
        path = cache.path_of(name, access.cache_dir)
        _judge(spec, entry[0], path, lines, damages)
    if damages:
        raise DataError(" ".join(damages))
    if not lines:
        raise missing(spec, access, "so there is nothing to verify")
    return lines


def _judge(spec: Spec, arrays: Arrays, where: Path, lines: list, damages: list) -> None:
    if found := content.problems(spec, arrays):
        damages.append(f"{spec.name} in {where} is damaged: {'; '.join(found)}.")
    elif isinstance(spec, ImageSpec):
        counts = ", ".join(f"{count:,} {split}" for split, count in spec.counts.items())
        lines.append(f"{where}: {counts}, {spec.num_classes} classes, content as known")
    else:
        lines.append(
            f"{where}: {spec.roles:,} roles, {spec.samples:,} samples, content as known"
        )
