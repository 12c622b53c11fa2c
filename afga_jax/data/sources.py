"""A data set by its name: prepared by TFDS, decoded before, or fetched on first use.

What TFDS has prepared comes first, then the decoded cache, then the network. Prepared
sets are decoded once and kept in the same cache.
"""

import dataclasses
import os
from pathlib import Path

from absl import logging

from afga_jax.data import archives, cache, catalog, content, fetch, prepared
from afga_jax.data.cache import Arrays
from afga_jax.data.catalog import DataError, ImageSpec, Spec
from afga_jax.data.dataset import Dataset
from afga_jax.data.roles import unpack
from afga_jax.data.shakespeare import Role


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
        data_dir = Path(self.data_dir or prepared.default_folder()).expanduser()
        if self.data_dir and not data_dir.is_dir():
            raise DataError(
                f"the data folder {data_dir} does not exist; give the folder of TFDS's "
                "data sets, or leave it out."
            )
        for name, value in (("timeout", self.timeout), ("attempts", self.attempts)):
            if not value > 0:
                raise DataError(f"{name} is {value}; it must be greater than 0.")
        cache_dir = Path(self.cache_dir or cache.default_folder()).expanduser()
        offline = _offline_by_environment() if self.offline is None else self.offline
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
        return Dataset(
            name,
            train_inputs=arrays["train_inputs"],
            train_targets=arrays["train_targets"],
            test_inputs=arrays["test_inputs"],
            test_targets=arrays["test_targets"],
            num_classes=spec.num_classes,
            label_names=tuple(arrays["label_names"].tolist()),
        )
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


def load_or_digits(
    name: str | None, default: str, access: Access | None = None
) -> tuple[Dataset, str]:
    """Loads the data set asked for, or where none was asked for, what is to be had.

    Args:
      name: The user's choice; None: the user left it alone.
      default: What is meant then.
      access: Where it may come from; None: what the environment says.

    Returns:
      The data set and a note for the user, empty unless the built-in digits stand in.

    Raises:
      DataError: The user's own choice cannot be had.
    """
    if name is not None:
        return load(name, access), ""
    try:
        return load(default, access), ""
    except DataError as error:
        from afga_jax.data.builtin import digits

        note = (
            f"{default} cannot be had, so THIS RUN USES THE BUILT-IN DIGITS INSTEAD; "
            f"its numbers say nothing about {default}. {error}"
        )
        return digits(), note


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
        raise missing(spec, access, "and the network is switched off")
    return _fetch(spec, access)


def usable(spec: Spec, header: cache.Header, found: prepared.Prepared | None) -> bool:
    """Whether a cached content may serve.

    Args:
      spec: The data set.
      header: What the cache says of the content.
      found: The prepared set, which is preferred; None: there is none to be read.

    Returns:
      True where it was decoded from just this prepared set. Without one, true where it
      is the data set itself, wherever it came from.
    """
    if found:
        return header.origin == found.origin
    return not spec.digests or not cache.differences(header.digests, spec.digests)


def missing(spec: Spec, access: Access, reason: str) -> DataError:
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
    return arrays if usable(spec, header, found) else None


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
    originals = fetch.originals(spec)
    try:
        with cache.workspace(spec.name, access.cache_dir) as scratch:
            # Another process may have fetched it while this one waited.
            arrays = _cached(spec, access, None)
            if arrays is None:
                arrays = _download_and_decode(spec, originals, access, scratch)
                origin = f"originals of {spec.name}"
                cache.write(spec.name, access.cache_dir, arrays, origin, scratch)
            return arrays
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise missing(spec, access, f"which cannot be written ({reason})") from error


def _download_and_decode(
    spec: Spec,
    originals: tuple[fetch.Original, ...],
    access: Access,
    scratch: Path,
) -> Arrays:
    try:
        files = {
            original.name: fetch.download(
                spec.name,
                original,
                scratch,
                timeout=access.timeout,
                attempts=access.attempts,
            )
            for original in originals
        }
        arrays = archives.decode(spec, files, fetch.label_names(spec))
    except DataError as error:
        raise missing(spec, access, f"and cannot be fetched ({error})") from error
    if found := content.problems(spec, arrays):
        raise missing(
            spec, access, f"and what was fetched is not it ({'; '.join(found)})"
        )
    return arrays


def _offline_by_environment() -> bool:
    return os.environ.get("AFGA_OFFLINE", "").lower() not in ("", "0", "false", "no")
