"""Which data sets are at hand, and whether they are whole."""

from collections.abc import Callable
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
      note: What else there is to know, e.g. of a set that cannot be read.
    """

    name: str
    state: str
    where: Path | None
    size: int
    download: tuple[fetch.Original, ...] = ()
    note: str = ""


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
        return Status(name, "prepared", found.folder, size)
    header = cache.peek(name, access.cache_dir)
    if header and usable(spec, header, None):
        path = cache.path_of(name, access.cache_dir)
        return Status(name, "cached", path, path.stat().st_size)
    note = f"{found.folder} is {found.form}, which needs TensorFlow" if found else ""
    return Status(name, "missing", None, 0, fetch.originals(spec), note)


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
    reports, damages = [], []
    for where, read in _places(spec, access):
        try:
            reports.append(f"{where}: {_report(spec, where, read())}")
        except DataError as error:
            damages.append(str(error))
    if damages:
        raise DataError(" ".join(damages))
    if not reports:
        raise missing(spec, access, "so there is nothing to verify")
    return reports


def _places(spec: Spec, access: Access) -> list[tuple[Path, Callable[[], Arrays]]]:
    """Where the data set is, and how to read it there."""
    places = []
    found = prepared.find(spec, access.data_dir)
    if found and found.readable:
        places.append((found.folder, lambda: prepared.read(spec, found)))
    path = cache.path_of(spec.name, access.cache_dir)
    if path.exists():
        places.append((path, lambda: cache.read(spec.name, access.cache_dir)[0]))
    return places


def _report(spec: Spec, where: Path, arrays: Arrays) -> str:
    if problems := content.problems(spec, arrays):
        raise DataError(f"{spec.name} in {where} is damaged: {'; '.join(problems)}.")
    if isinstance(spec, ImageSpec):
        counts = ", ".join(f"{count:,} {split}" for split, count in spec.counts.items())
        return f"{counts}, {spec.num_classes} classes, content as known"
    return f"{spec.roles:,} roles, {spec.samples:,} samples, content as known"
