"""A data set by its name: prepared by TFDS, decoded before, or fetched on first use.

What TFDS has prepared comes first, then the decoded cache, then the network. Prepared
sets are decoded once and kept in the same cache. `status` and `verify` tell where a
data set is and whether it is whole.
"""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from absl import logging

from afga_jax.data import archives, cache, catalog, fetch, prepared
from afga_jax.data.catalog import Arrays, DataError, ImageSpec, Spec, reason
from afga_jax.data.dataset import Dataset
from afga_jax.data.shakespeare import Role, unpack


@dataclasses.dataclass(frozen=True)
class Access:
    """Where data sets may come from.

    Attributes:
      data_dir: Folder of sets that TFDS has prepared; None: `TFDS_DATA_DIR`, or TFDS's
        folder in the home. It is only read.
      cache_dir: Folder of the decoded cache; None: `AFGA_CACHE_DIR`, or `afga_jax` in
        the user's cache folder.
      offline: Whether the network is left alone; None: whether `AFGA_OFFLINE` says so.
      timeout: Seconds without an answer after which a connection counts as dropped.
      attempts: Number of attempts for each download.
    """

    data_dir: str | Path | None = None
    cache_dir: str | Path | None = None
    offline: bool | None = None
    timeout: float = 30.0
    attempts: int = 4

    def __post_init__(self):
        tfds_dir = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
        data_dir = Path(self.data_dir or tfds_dir).expanduser()
        if self.data_dir and not data_dir.is_dir():
            raise DataError(
                f"the data folder {data_dir} does not exist; give the folder of TFDS's "
                "data sets, or leave it out."
            )
        for name, value in (("timeout", self.timeout), ("attempts", self.attempts)):
            if not value > 0:
                raise DataError(f"{name} is {value}; it must be greater than 0.")
        cache_dir = Path(self.cache_dir or cache.default_folder()).expanduser()
        offline = self.offline
        if offline is None:
            word = os.environ.get("AFGA_OFFLINE", "").lower()
            offline = word not in ("", "0", "false", "no")
        object.__setattr__(self, "data_dir", data_dir)
        object.__setattr__(self, "cache_dir", cache_dir)
        object.__setattr__(self, "offline", offline)


def load(name: str, access: Access | None = None) -> Dataset:
    """Loads a labelled image set; the first time on a machine, it is fetched.

    Args:
      name: `"cifar10"`, `"cifar100"`, `"fashion_mnist"` or `"mnist"`.
      access: Where it may come from; None: what the environment says.

    Returns:
      The data set, its samples in the order of the original archives.

    Raises:
      DataError: It is not there and cannot be fetched, or it is damaged.
    """
    spec = catalog.find(name)
    if not isinstance(spec, ImageSpec):
        raise DataError(f"{name} is a text, not a set of images; use `load_roles`.")
    arrays = load_arrays(spec, access or Access())
    try:
        names = {"label_names": tuple(arrays["label_names"].tolist())}
        return Dataset(name, **{**arrays, **names}, num_classes=spec.num_classes)
    except ValueError as error:
        raise DataError(f"the prepared set is damaged: {error}") from error


def load_roles(access: Access | None = None) -> list[Role]:
    """Loads Shakespeare's speaking roles; the first time, the works are fetched.

    Args:
      access: Where they may come from; None: what the environment says.

    Returns:
      LEAF's 1129 roles in order of first appearance.

    Raises:
      DataError: They are not there and cannot be fetched, or they are damaged.
    """
    return unpack(load_arrays(catalog.find("shakespeare"), access or Access()))


def load_arrays(spec: Spec, access: Access) -> Arrays:
    """The decoded content of a data set, from the first place that has it.

    Args:
      spec: The data set.
      access: Where it may come from.

    Returns:
      Images, labels and label names, or packed roles.
    """
    found = prepared.find(spec, access.data_dir)
    readable = found if found and found.readable else None
    arrays = _cached(spec, access, readable)
    if arrays is not None:
        return arrays
    if readable:
        return _decode_prepared(spec, access, readable)
    if access.offline:
        raise _missing(spec, access, "and the network is switched off")
    return _fetch(spec, access)


class Status(NamedTuple):
    """Where a data set is.

    Attributes:
      state: `"prepared"` (by TFDS), `"cached"` (decoded), or `"missing"`.
      where: Its folder or file; None: missing.
      size: Its bytes on the disk; 0: missing.
      download: The files that a fetch would download.
      note: What else there is to know, e.g. of a set that cannot be read.
    """

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
      The place that `load` would take it from.
    """
    spec = catalog.find(name)
    found = prepared.find(spec, access.data_dir)
    if found and found.readable:
        size = sum(file.stat().st_size for file in found.folder.iterdir())
        return Status("prepared", found.folder, size)
    header = cache.peek(name, access.cache_dir)
    if header and _usable(spec, header, None):
        path = cache.path_of(name, access.cache_dir)
        return Status("cached", path, path.stat().st_size)
    note = f"{found.folder} is {found.form}, which needs TensorFlow" if found else ""
    return Status("missing", None, 0, fetch.originals(spec), note)


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
    places: list[tuple[Path, Callable[[], Arrays]]] = []
    found = prepared.find(spec, access.data_dir)
    if found and found.readable:
        places.append((found.folder, lambda: prepared.read(spec, found)))
    path = cache.path_of(name, access.cache_dir)
    if path.exists():
        places.append((path, lambda: cache.read(name, access.cache_dir)[0]))
    reports, damages = [], []
    for where, read in places:
        try:
            if problems := "; ".join(catalog.problems(spec, read())):
                raise DataError(f"{name} in {where} is damaged: {problems}.")
            reports.append(f"{where}: {spec.counted}, content as known")
        except DataError as error:
            damages.append(str(error))
    if damages:
        raise DataError(" ".join(damages))
    if not reports:
        raise _missing(spec, access, "so there is nothing to verify")
    return reports


def _usable(spec: Spec, header: cache.Header, found: prepared.Prepared | None) -> bool:
    """Whether a cached content may serve.

    It may where it was decoded from just the prepared set that was found. Without one,
    it must be the data set itself, wherever it came from.
    """
    if found:
        return header.origin == found.origin
    return not spec.digests or not catalog.differences(header.digests, spec.digests)


def _missing(spec: Spec, access: Access, reason: str) -> DataError:
    """The error for a data set that is nowhere; one line with the ways to get it."""
    found = prepared.find(spec, access.data_dir)
    there = f" (only as {found.form}, which needs TensorFlow)" if found else ""
    return DataError(
        f"{spec.name} is neither prepared under {access.data_dir}{there} nor in the "
        f"cache {access.cache_dir}, {reason}. Get it with a network by `python -m "
        f"experiments.data fetch {spec.name}`, or point --data_dir or TFDS_DATA_DIR to "
        f"a folder where TFDS has prepared {spec.prepared_name} as array_record."
    )


def _cached(
    spec: Spec, access: Access, found: prepared.Prepared | None
) -> Arrays | None:
    try:
        entry = cache.read(spec.name, access.cache_dir)
    except DataError as error:
        logging.warning("%s It is made anew.", error)
        return None
    if entry is None:
        return None
    arrays, header = entry
    return arrays if _usable(spec, header, found) else None


def _decode_prepared(spec: Spec, access: Access, found: prepared.Prepared) -> Arrays:
    arrays = prepared.read(spec, found)
    try:
        with cache.workspace(spec.name, access.cache_dir) as scratch:
            cache.write(spec.name, access.cache_dir, arrays, found.origin, scratch)
    except OSError as error:
        logging.warning(
            "%s is not kept for the next run: %s cannot be written (%s).",
            spec.name,
            access.cache_dir,
            error.strerror,
        )
    return arrays


def _fetch(spec: Spec, access: Access) -> Arrays:
    try:
        with cache.workspace(spec.name, access.cache_dir) as scratch:
            # Another process may have fetched it while this one waited.
            arrays = _cached(spec, access, None)
            if arrays is None:
                arrays = _download_and_decode(spec, access, scratch)
                origin = f"originals of {spec.name}"
                cache.write(spec.name, access.cache_dir, arrays, origin, scratch)
            return arrays
    except OSError as error:
        cause = error.strerror or reason(error)
        raise _missing(spec, access, f"which cannot be written ({cause})") from error


def _download_and_decode(spec: Spec, access: Access, folder: Path) -> Arrays:
    try:
        files = {
            original.name: fetch.download(
                spec.name,
                original,
                folder,
                timeout=access.timeout,
                attempts=access.attempts,
            )
            for original in fetch.originals(spec)
        }
        arrays = archives.decode(spec, files)
    except DataError as error:
        raise _missing(spec, access, f"and cannot be fetched ({error})") from error
    if problems := "; ".join(catalog.problems(spec, arrays)):
        raise _missing(spec, access, f"and what was fetched is not it ({problems})")
    return arrays
