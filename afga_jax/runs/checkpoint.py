"""States on disk: written whole or not at all, checked when read.

Orbax writes a state beside its place and renames it when all of it is there, so a
program that dies while it saves leaves the older states as they were. Each state gets a
list of its files' checksums: one that was cut, lost or altered later is noticed. And
each says of itself what it belongs to: its round, the format, the version that wrote
it, and what its owner adds.
"""

import contextlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import logging

from afga_jax import checks
from afga_jax.runs.record import write_json
from afga_jax.typing import PyTree

#: Format of what is saved; a state of another one is refused.
FORMAT = 4

#: `(what a state says of itself, its folder)`; raises where it does not belong here.
Accept = Callable[[dict[str, Any], Path], None]

_PREFIX = "round"
_CHECKSUMS = "checksums.json"


class CheckpointError(ValueError):
    """Saved states cannot be read, or do not belong to the run."""


class Checkpoints:
    """The newest states of a run, one folder for each.

    Args:
      folder: The folder of all states, made when first needed.
      keep: Number of states that are kept; older ones are removed.

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
        self._damaged: list[int] = []

    def save(
        self, step: int, tree: PyTree, about: dict[str, Any] | None = None
    ) -> None:
        """Saves a state, and then removes those that are too many or damaged.

        Args:
          step: The state's number, larger than those before.
          tree: Arrays and numbers. Random keys are no arrays: store their seed.
          about: What the state says of itself, as JSON has it, for `accept`.
        """
        leaves = jax.tree.map(_on_host, tree)
        args = _orbax().args
        content = args.Composite(state=args.StandardSave(leaves))
        # In a file that Orbax writes anyway: an item of its own would take longer.
        own = {"format": FORMAT, "version": version("afga-jax"), "round": step}
        own |= about or {}
        try:
            for number in self._damaged:
                self._manager().delete(number)
            self._damaged = []
            self._manager().save(step, args=content, custom_metadata=own)
            if jax.process_index() == 0:
                _write_checksums(self._path(step))
        except jax.errors.JaxRuntimeError:
            raise
        except Exception as error:  # of many kinds, by what Orbax was doing
            raise CheckpointError(
                f"the state of round {step} cannot be saved in {self.folder} "
                f"({_reason(error)}): make room, or make it writable, and resume; the "
                "states before are whole."
            ) from error

    def restore(
        self, like: PyTree | None = None, accept: Accept | None = None
    ) -> tuple[int, PyTree] | None:
        """Reads the newest state that is whole.

        Newer ones that are not are reported, and removed by the next `save`: the run
        goes on from an older state and will save them again.

        Args:
          like: A tree of the same structure, shapes and types; arrays or
            `jax.ShapeDtypeStruct`. None: dictionaries and lists stand for whatever was
            saved.
          accept: Looks at what the state says of itself before anything is restored.

        Returns:
          Its step and its state as NumPy arrays; None where nothing was saved.

        Raises:
          CheckpointError: None of the saved states is whole, or the newest is of
            another round or format than it should be.
        """
        damaged: dict[int, str] = {}
        for step in reversed(self.steps()):
            try:
                about, tree = self._read(step, like)
            except CheckpointError:
                raise
            except Exception as error:  # whatever Orbax runs into in half a file
                damaged[step] = _reason(error)
                continue
            if accept is not None:
                accept(about, self._path(step))
            for number, reason in damaged.items():
                logging.warning(
                    "the state of round %d in %s is damaged (%s): going on from round "
                    "%d instead.",
                    *(number, self.folder, reason, step),
                )
            self._damaged = list(damaged)
            return step, tree
        if damaged:
            listed = "; ".join(f"round {step}: {why}" for step, why in damaged.items())
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
        if self.folder.exists() and not self.folder.is_dir():
            raise CheckpointError(
                f"{self.folder} is a file, but it must be the folder of the run's "
                "states: restore it from a copy, or start a new run elsewhere."
            )
        return sorted(self._manager().all_steps())

    def _read(self, step: int, like: PyTree | None) -> tuple[dict[str, Any], PyTree]:
        """What a state says of itself, and the state."""
        path = self._path(step)
        _verify_checksums(path)
        if not any(path.iterdir()):
            raise ValueError("it is empty")
        with _unnoted():
            about = self._manager().metadata(step).custom_metadata or {}
        self._check_own(step, about)
        args, empty = _orbax().args, None
        if like is not None:
            empty = jax.tree.map(lambda x: np.zeros(np.shape(x), x.dtype), like)
        content = args.Composite(state=args.StandardRestore(empty))
        saved = self._manager().restore(step, args=content)
        if empty is not None:
            check_shapes(empty, saved.state)
        return about, saved.state

    def _check_own(self, step: int, about: dict[str, Any]) -> None:
        path = self._path(step)
        if about.get("format") != FORMAT:
            known = about.get("format", "of an older version")
            raise CheckpointError(
                f"{path} has the format {known}, but only {FORMAT} is read: go on with "
                f"the version that wrote it ({about.get('version', 'not recorded')}), "
                "or start a new run elsewhere."
            )
        if about.get("round") != step:
            raise CheckpointError(
                f"{path} is the state of round {about.get('round')}, not {step}: "
                "rename it back, or start a new run elsewhere."
            )

    def _path(self, step: int) -> Path:
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
            try:
                self._opened = orbax.CheckpointManager(self.folder, options=options)
            except OSError:
                raise
            except Exception as error:  # of what it reads of each state at once
                raise CheckpointError(
                    f"the states in {self.folder} cannot be read ({_reason(error)}): "
                    "restore the folder from a copy, or start a new run elsewhere."
                ) from error
        return self._opened


def check_shapes(wanted: PyTree, actual: PyTree) -> None:
    """Refuses a tree whose arrays have other shapes or types than wanted."""

    def check(wanted, actual):
        if (wanted.shape, wanted.dtype) != (actual.shape, actual.dtype):
            raise ValueError(
                f"{actual.dtype} of shape {actual.shape} instead of {wanted.dtype} of "
                f"shape {wanted.shape}"
            )

    jax.tree.map(check, wanted, actual)


@contextlib.contextmanager
def _unnoted() -> Iterator[None]:
    """Without Orbax's warning that what a state says of itself is not the state."""
    logger = logging.get_absl_logger()

    def keep(line):
        return f"{os.sep}orbax{os.sep}" not in line.pathname

    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


def _reason(error: Exception) -> str:
    """One line of an error; of what the system refused, just that."""
    if code := re.search(r"os_error_code='(\d+)'", str(error)):
        return os.strerror(int(code[1]))
    return " ".join(str(error).split())[:200] or type(error).__name__


def _on_host(x) -> np.ndarray | jax.Array:
    """In NumPy; of what several processes share, each keeps and saves its part."""
    spread = isinstance(x, jax.Array) and not x.is_fully_addressable
    return x if spread and not x.is_fully_replicated else np.asarray(x)


def _write_checksums(folder: Path) -> None:
    write_json(folder / _CHECKSUMS, _checksums(folder))


def _verify_checksums(folder: Path) -> None:
    """Before Orbax reads: it would print a page for every file it cannot read."""
    path = folder / _CHECKSUMS
    if not path.exists():  # killed right after Orbax had finished: the state is whole
        return
    wanted, actual = json.loads(path.read_text()), _checksums(folder)
    changed = sorted(name for name in wanted if actual.get(name) != wanted[name])
    if changed:
        lost = "lost" if changed[0] not in actual else "altered"
        raise ValueError(f"{changed[0]} was {lost}")


def _checksums(folder: Path) -> dict[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): zlib.crc32(path.read_bytes())
        for path in files
        if _CHECKSUMS not in path.name  # nor what a killed program left of writing it
    }


def _orbax():
    # Imported late: half a second that the first round should not wait for.
    import orbax.checkpoint

    return orbax.checkpoint
