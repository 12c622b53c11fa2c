"""States on disk: written whole or not at all, checked when read.

Orbax writes a state beside its place and renames it when all of it is there, so a
program that dies while it saves leaves the older states as they were. Each state gets a
list of its files' checksums: one that was cut, lost or altered later is noticed.
"""

import json
import os
import zlib
from pathlib import Path

import jax
import numpy as np
from absl import logging

from afga_jax import checks
from afga_jax.typing import PyTree

_PREFIX = "round"
_CHECKSUMS = "checksums.json"


class CheckpointError(ValueError):
    """There are saved states, but none of them can be read."""


class Checkpoints:
    """The newest states of a run, one folder for each.

    Args:
      folder: Made when first needed.
      keep: States that are kept; older ones are removed.

    >>> import tempfile
    >>> checkpoints = Checkpoints(tempfile.mkdtemp())
    >>> for step in range(3):
    ...     checkpoints.save(step, {"x": np.full(2, step)})
    >>> checkpoints.steps()
    [1, 2]
    >>> checkpoints.restore({"x": np.zeros(2, int)})
    (2, {'x': array([2, 2])})
    """

    def __init__(self, folder: str | Path, keep: int = 2):
        checks.integer("keep", keep)
        self.folder = Path(folder).absolute()
        self._keep = keep
        self._opened = None

    def save(self, step: int, tree: PyTree) -> None:
        """Saves a state, and then removes those that are too many.

        Args:
          step: Its number, larger than those before.
          tree: Arrays and numbers. Random keys are no arrays: store their seed.
        """
        leaves = jax.tree.map(_on_host, tree)
        self._manager().save(step, args=_orbax().args.StandardSave(leaves))
        if jax.process_index() == 0:
            _write_checksums(self._place(step))

    def restore(self, like: PyTree | None = None) -> tuple[int, PyTree] | None:
        """Reads the newest state that is whole.

        Newer ones that are not are reported and removed: the run goes on from an older
        state and will save them again.

        Args:
          like: A tree of the same structure, shapes and types; arrays or
            `jax.ShapeDtypeStruct`. None: dictionaries and lists stand for whatever was
            saved.

        Returns:
          Its step and its state as NumPy arrays; None where nothing was saved.

        Raises:
          CheckpointError: None of the saved states is whole.
        """
        damaged = []
        for step in reversed(self.steps()):
            try:
                tree = self._read(step, like)
            except Exception as error:  # whatever Orbax runs into in half a file
                reason = " ".join(str(error).split())[:200]
                damaged.append((step, reason or type(error).__name__))
                continue
            for bad, reason in damaged:
                logging.warning(
                    "the state of round %d in %s is damaged (%s): going on from round "
                    "%d instead.",
                    *(bad, self.folder, reason, step),
                )
                self._manager().delete(bad)
            return step, tree
        if damaged:
            listed = "; ".join(f"round {step}: {reason}" for step, reason in damaged)
            raise CheckpointError(
                f"no saved state in {self.folder} can be read ({listed}): restore the "
                "folder from a copy, or start a new run elsewhere."
            )
        return None

    def steps(self) -> list[int]:
        """What is saved, oldest first."""
        # Several processes must ask alike, whenever each of them sees the folder.
        if not self.folder.exists() and jax.process_count() == 1:
            return []
        return sorted(self._manager().all_steps())

    def _read(self, step: int, like: PyTree | None) -> PyTree:
        _verify_checksums(self._place(step))
        arguments = _orbax().args.StandardRestore
        if like is None:
            return self._manager().restore(step, args=arguments())
        empty = jax.tree.map(lambda x: np.zeros(np.shape(x), x.dtype), like)
        tree = self._manager().restore(step, args=arguments(empty))
        check_shapes(empty, tree)
        return tree

    def _place(self, step: int) -> Path:
        return self.folder / f"{_PREFIX}_{step}"

    def _manager(self):
        # Opened late: it makes the folder, and removes what a killed program left.
        if self._opened is None:
            orbax = _orbax()
            options = orbax.CheckpointManagerOptions(
                max_to_keep=self._keep,
                step_prefix=_PREFIX,
                enable_async_checkpointing=False,
                cleanup_tmp_directories=True,
            )
            self._opened = orbax.CheckpointManager(self.folder, options=options)
        return self._opened


def check_shapes(wanted: PyTree, found: PyTree) -> None:
    """Refuses a tree whose arrays have other shapes or types than wanted."""

    def check(wanted, found):
        if (wanted.shape, wanted.dtype) != (found.shape, found.dtype):
            raise ValueError(
                f"{found.dtype} of shape {found.shape} instead of {wanted.dtype} of "
                f"shape {wanted.shape}"
            )

    jax.tree.map(check, wanted, found)


def _on_host(x) -> np.ndarray | jax.Array:
    """In NumPy; of what several processes share, each keeps and saves its part."""
    spread = isinstance(x, jax.Array) and not x.is_fully_addressable
    return x if spread and not x.is_fully_replicated else np.asarray(x)


def _write_checksums(folder: Path) -> None:
    path = folder / _CHECKSUMS
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(_checksums(folder), indent=1))
    os.replace(unfinished, path)


def _verify_checksums(folder: Path) -> None:
    """Before Orbax reads: it would print a page for every file it cannot read."""
    path = folder / _CHECKSUMS
    if not path.exists():  # killed right after Orbax had finished: the state is whole
        return
    wanted, found = json.loads(path.read_text()), _checksums(folder)
    changed = sorted(name for name in wanted if found.get(name) != wanted[name])
    if changed:
        lost = "lost" if changed[0] not in found else "altered"
        raise ValueError(f"{changed[0]} was {lost}")


def _checksums(folder: Path) -> dict[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file())
    own = {_CHECKSUMS, Path(_CHECKSUMS).with_suffix(".tmp").name}
    return {
        path.relative_to(folder).as_posix(): zlib.crc32(path.read_bytes())
        for path in files
        if path.name not in own
    }


def _orbax():
    # Imported late: half a second that the first round should not wait for.
    import orbax.checkpoint

    return orbax.checkpoint
