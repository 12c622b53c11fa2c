"""A data set by its name: prepared by TFDS, decoded before, or fetched on first use.

What is in the folder of prepared sets comes first (TFDS's, or the Parquet files of a
set that is published as such), then the decoded cache, then the network. Prepared sets
are decoded once and kept in the same cache. `status` and `verify` tell where a
data set is and whether it is whole.
"""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from absl import logging

from afga_jax.data.dataset import Dataset
from afga_jax.data.store import archives, cache, catalog, fetch, prepared
from afga_jax.data.store.catalog import Content, DataError, ImageSpec, Spec, reason
from afga_jax.data.store.prepared import Prepared
from afga_jax.data.text.shakespeare import Role, unpack

_NAMES = ("label_names", "client_names")
_TEST_FRACTION = 0.2


@dataclasses.dataclass(frozen=True)
class Access:
    """Where data sets may come from.

    Attributes:
      data_dir: Folder of sets that TFDS has prepared, or of folders with the Parquet
        files of a set, which is only read; None: `TFDS_DATA_DIR`, or TFDS's folder in
        the home.
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
        word = os.environ.get("AFGA_OFFLINE", "").lower()
        offline = word not in ("", "0", "false", "no")
        object.__setattr__(self, "data_dir", data_dir)
        object.__setattr__(self, "cache_dir", cache_dir)
        if self.offline is None:
            object.__setattr__(self, "offline", offline)


def load(name: str, access: Access | None = None) -> Dataset:
    """Loads a labelled image set; the first time on a machine, it is fetched.

    Args:
      name: `"cifar10"`, `"cifar100"`, `"fashion_mnist"`, `"mnist"`, `"femnist"`,
        `"tiny_imagenet"` or `"cinic10"`.
      access: Where it may come from; None: what the environment says.

    Returns:
      The data set, its samples in the order of the original archives. Of FEMNIST, which
      has no samples for testing, every fifth of each writer is for testing.

    Raises:
      DataError: It is not there and cannot be fetched, or it is damaged.
    """
    spec = catalog.find(name)
    if not isinstance(spec, ImageSpec):
        raise DataError(f"{name} is a text, not a set of images; use `load_roles`.")
    content = load_arrays(spec, access or Access())
    try:
        if "test_inputs" not in content:
            content = _held_back(content)
        names = {key: tuple(content[key].tolist()) for key in _NAMES if key in content}
        return Dataset(name, **{**content, **names}, num_classes=spec.num_classes)
    except ValueError as error:
        raise DataError(f"the prepared set is damaged: {error}") from error


def _held_back(content: Content) -> Content:
    """The same with every fifth sample of each client for testing."""
    from afga_jax.data.tables.build import held_back

    held = held_back(content["train_clients"], _TEST_FRACTION)
    names = ("inputs", "targets", "clients")
    kept = {f"train_{name}": content[f"train_{name}"][~held] for name in names}
    test = {f"test_{name}": content[f"train_{name}"][held] for name in names[:2]}
    return {**content, **kept, **test}


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


def load_arrays(spec: Spec, access: Access) -> Content:
    """The decoded content of a data set, from the first source that has it.

    Args:
      spec: Description of the data set.
      access: Where it may come from.

    Returns:
      Images, labels and label names, or packed roles.
    """
    version = _readable(spec, access)
    content = _cached(spec, access, version)
    if content is not None:
        return content
    if version:
        return _decode_prepared(spec, access, version)
    if access.offline:
        raise _missing(spec, access, "and the network is switched off")
    return _fetch(spec, access)


class Status(NamedTuple):
    """Where a data set is.

    Attributes:
      state: `"prepared"` (by TFDS, or files that lie there), `"cached"` (decoded), or
        `"missing"`.
      where: Path of its folder or file; None: missing.
      size: Number of its bytes on the disk; 0: missing.
      download: Files that a fetch would download.
      note: Reason why a prepared set cannot be read, or that nobody vouches for it;
        empty: there is nothing to say.
    """

    state: str
    where: Path | None
    size: int
    download: tuple[fetch.Original, ...] = ()
    note: str = ""


def status(name: str, access: Access) -> Status:
    """Tells where a data set is, without reading it.

    Args:
      name: Name of the data set.
      access: Where it may be.

    Returns:
      Where `load` would take it from.
    """
    spec = catalog.find(name)
    note = "unverified" if spec.unverified else ""
    if version := _readable(spec, access):
        size = sum(file.stat().st_size for file in version.folder.iterdir())
        return Status("prepared", version.folder, size, note=note)
    header = cache.peek(name, access.cache_dir)
    if header and _usable(spec, header, None):
        path = cache.path_of(name, access.cache_dir)
        return Status("cached", path, path.stat().st_size, note=note)
    other = prepared.find(spec, access.data_dir)
    note = f"{other.folder} is {other.form}, which needs TensorFlow" if other else ""
    return Status("missing", None, 0, fetch.originals(spec), note)


def verify(name: str, access: Access) -> list[str]:
    """Checks every copy of a data set: counts, labels and digests of the content.

    Args:
      name: Name of the data set.
      access: Where it may be; the network is not touched.

    Returns:
      One line per copy, saying where it is and what it holds.

    Raises:
      DataError: The data set is nowhere, or a copy of it is damaged.
    """
    spec = catalog.find(name)
    copies: list[tuple[Path, Callable[[], Content]]] = []
    if version := _readable(spec, access):
        copies.append((version.folder, lambda: prepared.read(spec, version)))
    path = cache.path_of(name, access.cache_dir)
    if path.exists():
        copies.append((path, lambda: cache.read(name, access.cache_dir)[0]))
    reports, damages = [], []
    for where, read in copies:
        try:
            if problems := "; ".join(catalog.problems(spec, read())):
                raise DataError(f"{name} in {where} is damaged: {problems}.")
            known = "unverified" if spec.unverified else "as known"
            reports.append(f"{where}: {spec.counts_in_words}, content {known}")
        except DataError as error:
            damages.append(str(error))
    if damages:
        raise DataError(" ".join(damages))
    if not reports:
        raise _missing(spec, access, "so there is nothing to verify")
    return reports


def _readable(spec: Spec, access: Access) -> Prepared | None:
    """The newest prepared version, unless it needs TensorFlow."""
    version = prepared.find(spec, access.data_dir)
    return version if version and version.readable else None


def _usable(spec: Spec, header: cache.Header, version: Prepared | None) -> bool:
    """Whether a cached content may serve.

    It may where it was decoded from just this prepared version. Without one, it must be
    the data set itself, wherever it came from.
    """
    if version:
        return header.origin == version.origin
    return not spec.digests or not catalog.differences(header.digests, spec.digests)


def _missing(spec: Spec, access: Access, reason: str) -> DataError:
    """The error for a data set that is nowhere; one line with the ways to get it."""
    other = prepared.find(spec, access.data_dir)
    form = f" (only as {other.form}, which needs TensorFlow)" if other else ""
    call = f"load({spec.name!r})" if isinstance(spec, ImageSpec) else "load_roles()"
    where = f"where TFDS has prepared {spec.prepared_name} as array_record"
    if spec.tables:
        names = [original.name for original in fetch.originals(spec)]
        where = f"that has {' and '.join(names)} in a folder {spec.name}"
    return DataError(
        f"{spec.name} is neither prepared under {access.data_dir}{form} nor in the "
        f"cache {access.cache_dir}, {reason}. With a network, `afga_jax.data.{call}` "
        f"fetches it; or let `data_dir` or TFDS_DATA_DIR name a folder {where}."
    )


def _cached(spec: Spec, access: Access, version: Prepared | None) -> Content | None:
    try:
        entry = cache.read(spec.name, access.cache_dir)
    except DataError as error:
        logging.warning("%s It is made anew.", error)
        return None
    usable = entry and _usable(spec, entry[1], version)
    return entry[0] if usable else None


def _decode_prepared(spec: Spec, access: Access, version: Prepared) -> Content:
    content = prepared.read(spec, version)
    try:
        with cache.workspace(spec.name, access.cache_dir) as scratch:
            cache.write(spec.name, access.cache_dir, content, version.origin, scratch)
    except OSError as error:
        logging.warning(
            "%s is not kept for the next run: %s cannot be written (%s).",
            spec.name,
            access.cache_dir,
            error.strerror,
        )
    return content


def _fetch(spec: Spec, access: Access) -> Content:
    try:
        with cache.workspace(spec.name, access.cache_dir) as scratch:
            # Another process may have fetched it while this one waited.
            content = _cached(spec, access, None)
            if content is None:
                content = _download_and_decode(spec, access, scratch)
                origin = f"originals of {spec.name}"
                cache.write(spec.name, access.cache_dir, content, origin, scratch)
            return content
    except OSError as error:
        cause = error.strerror or reason(error)
        raise DataError(
            f"{spec.name} cannot be fetched, because the cache {access.cache_dir} "
            f"cannot be written ({cause}): make room there, or let `cache_dir` or "
            "AFGA_CACHE_DIR name another folder."
        ) from error


def _download_and_decode(spec: Spec, access: Access, folder: Path) -> Content:
    options = {"timeout": access.timeout, "attempts": access.attempts}
    originals = fetch.originals(spec)
    if spec.unverified:
        originals = fetch.with_recorded(spec.name, access.cache_dir, originals)
    try:
        files = {
            original.name: fetch.download(spec.name, original, folder, **options)
            for original in originals
        }
        content = archives.decode(spec, files)
    except DataError as error:
        raise _missing(spec, access, f"and cannot be fetched ({error})") from error
    if problems := "; ".join(catalog.problems(spec, content)):
        raise _missing(spec, access, f"and what was fetched is not it ({problems})")
    unknown = {file.name: files[file.name] for file in originals if not file.sha256}
    if unknown and spec.unverified:
        fetch.record(spec.name, access.cache_dir, unknown, folder)
    return content
