"""Checksums that nobody has published: recorded at the first fetch, then compared.

One file per data set, `<cache>/<name>.sha256`, as `sha256sum` writes it. That the first
fetch brought the right files it cannot tell; that later ones bring the same, it can.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from absl import logging

from afga_jax.data.store.fetch import Original


def path_of(name: str, folder: Path) -> Path:
    """The file that has a data set's checksums."""
    return folder / f"{name}.sha256"


def known(
    name: str, folder: Path, originals: Iterable[Original]
) -> tuple[Original, ...]:
    """Files with the checksums that an earlier fetch recorded.

    Args:
      name: Name of the data set.
      folder: Folder of the cache.
      originals: Files to download.

    Returns:
      The same files; those without a checksum have the recorded one, if there is one.
    """
    path = path_of(name, folder)
    lines = path.read_text().splitlines() if path.is_file() else []
    sums = {file: sha256 for sha256, _, file in (x.partition("  ") for x in lines)}
    return tuple(
        original._replace(sha256=sums[original.name], recorded=path)
        if original.sha256 is None and original.name in sums
        else original
        for original in originals
    )


def write(name: str, folder: Path, files: Mapping[str, Path], scratch: Path) -> None:
    """Records the checksums of files that arrived, and says that nobody vouches.

    Args:
      name: Name of the data set.
      folder: Folder of the cache.
      files: Paths of the files without a checksum so far, by their names.
      scratch: Folder that `cache.workspace` yields.
    """
    import pooch

    lines = [f"{pooch.file_hash(str(path))}  {file}\n" for file, path in files.items()]
    unfinished = scratch / "recorded.sha256"
    unfinished.write_text("".join(lines))
    os.replace(unfinished, path_of(name, folder))
    logging.warning(
        "%s is unverified: no checksum of its files is published. Today's are in %s, "
        "and every later fetch is compared with them.",
        name,
        path_of(name, folder),
    )
