"""A run on disk: what was asked, what was measured, what came out.

    config.json     the settings, their sources, versions, facts about data and theory
    metrics.jsonl   a line for each seed at each evaluated round
    tensorboard/    the same for TensorBoard (`runs.trackers`)
    clients.npz     every client's metrics at the newest of these rounds, if asked for
    checkpoints/    the newest states (`runs.checkpoint`)
    summary.json    the result, once there is one

`metrics.jsonl` is the truth; what trackers are told comes from it. `config.json` and
`summary.json` carry checksums, of the one itself and of the metrics that the other was
made of: who edits one of them is told so when it is read.
"""

import contextlib
import importlib.metadata
import io
import json
import math
import os
import platform
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from absl import logging

from afga_jax.runs.summary import summarise

if TYPE_CHECKING:
    from afga_jax.runs.trackers import Tracker

Row = dict[str, Any]

#: Round and checksum of a line of the metrics.
Line = tuple[int, int]

#: Name under which a state notes what it knows of a round still to be evaluated.
DUE = "due"

_CONFIG, _METRICS, _SUMMARY = "config.json", "metrics.jsonl", "summary.json"
#: Folder of TensorBoard's events.
EVENTS = "tensorboard"
#: File that knows how trackers call the run.
TRACKERS = "trackers.json"
#: Picture of a run that has ended.
CURVES = "curves.png"
#: File of every client's metrics.
CLIENTS = "clients.npz"
#: Folder of the newest states.
STATES = "checkpoints"
# Letters of what a tracker says when it fails.
_LONGEST = 300
_NUMBER = int | float | None
# What a summary says beside what the metrics give.
_SUMMARISED = {"rounds": int, "wall_seconds": int | float, "finished": bool}
_PACKAGES = ("afga-jax", "jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint")


class RecordError(ValueError):
    """A folder does not hold a run, or its files cannot be read."""


class Run(NamedTuple):
    """What is known of a run.

    Attributes:
      config: Values of all settings by their names.
      metrics: A dictionary for each seed at each evaluated round.
      summary: The result of the run; None: there is none yet.
      facts: Facts about the data, the model and the theory's conditions.
      folder: Folder of the run; None: the run is in memory only.
      identity: Name of the settings that may not change and of the data
        (`runs.folder`); None: the run is of an older format, and cannot go on.
      versions: Packages that it ran with, and the kind of machine.
    """

    config: dict[str, Any]
    metrics: list[Row]
    summary: dict[str, Any] | None = None
    facts: dict[str, Any] | None = None
    folder: Path | None = None
    identity: str | None = None
    versions: dict[str, str] | None = None


class Record:
    """Writes a run's files; `with` closes them.

    Args:
      folder: Folder of the run, which the first file creates.
      tracker: Who is told the same; None: nobody is.

    Attributes:
      lines: Round and checksum of every line of the metrics so far, for the states.
    """

    def __init__(self, folder: str | Path, tracker: "Tracker | None" = None):
        self.folder = Path(folder)
        self.lines: list[Line] = []
        self._metrics: IO[str] | None = None
        self._tracker = tracker
        self._settings: dict[str, Any] = {}
        self._finished = False

    def __enter__(self) -> "Record":
        return self

    def __exit__(self, kind: Any = None, *error: Any) -> None:
        if kind is KeyboardInterrupt:
            self._tracker = None  # it may take its time, and the user has none
        self.close()

    def configure(self, config: dict[str, Any], **more: Any) -> None:
        """Writes `config.json`: the settings, `versions`, and what else is given.

        What an earlier program wrote there beside these stays.
        """
        self._settings = config
        before = _read_json(self.folder / _CONFIG) or {}
        before.pop("checksum", None)
        content = {**before, "config": config, "versions": versions(), **more}
        content["checksum"] = _checksum(json.dumps(content, sort_keys=True))
        write_json(self.folder / _CONFIG, content)

    def resume(self, keep: Callable[[Row], bool]) -> list[Row]:
        """Cuts the metrics back to what a checkpoint knows of.

        Args:
          keep: True for the lines to keep.

        Returns:
          The lines that stay.
        """
        self._close_metrics()
        pairs = [p for p in _read_metrics(self.folder / _METRICS) if keep(p[0])]
        kept = [row for row, _ in pairs]
        # First: a summary belongs to the metrics that it was made of.
        (self.folder / _SUMMARY).unlink(missing_ok=True)
        write_text(self.folder / _METRICS, _joined(line for _, line in pairs))
        self.lines = [noted(*pair) for pair in pairs]
        self._tell(lambda tracker: tracker.begin(self._settings, kept))
        return kept

    def write(self, rows: Iterable[Row]) -> list[Row]:
        """Appends lines to the metrics and returns them as a reader will see them."""
        if self._metrics is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._metrics = (self.folder / _METRICS).open("a")
        rows = plain(rows)
        lines = [json.dumps(row) for row in rows]
        try:
            self._metrics.write(_joined(lines))
            self._metrics.flush()
        except OSError as error:
            raise _of_file(error, self.folder / _METRICS) from None
        self.lines += [noted(*pair) for pair in zip(rows, lines, strict=True)]
        self._tell(lambda tracker: tracker.write(rows))
        return rows

    def write_clients(self, arrays: Mapping[str, Any]) -> None:
        """Writes `clients.npz` in place of an earlier round's.

        Args:
          arrays: `round`, `seeds`, the clients' `sizes`, and metrics
            `[seeds, clients]` by name.
        """
        file = io.BytesIO()
        np.savez(file, **arrays)
        write_bytes(self.folder / CLIENTS, file.getvalue())

    def sync(self) -> None:
        """Returns when all lines are on the disk, for a checkpoint to rely on."""
        if self._metrics is not None:
            os.fsync(self._metrics.fileno())

    def summarise(self, summary: dict[str, Any]) -> None:
        """Writes `summary.json`, with the checksum of the metrics it was made of."""
        pairs = _read_metrics(self.folder / _METRICS)
        metrics = _checksum(_joined(line for _, line in pairs))
        write_json(self.folder / _SUMMARY, {**summary, "metrics": metrics})
        self._finished = bool(summary.get("finished"))
        paths = [self.folder / name for name in (CURVES, CLIENTS)]
        there = [path for path in paths if path.exists()]
        self._tell(lambda tracker: tracker.attach(there))

    def discard(self) -> None:
        """Removes what was written; for a run that fails before its first round."""
        self.close()
        shutil.rmtree(self.folder / EVENTS, ignore_errors=True)
        for name in (_METRICS, CLIENTS, TRACKERS, _SUMMARY, _CONFIG):
            (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Closes all files; `write` opens them again, but tells no tracker."""
        self._close_metrics()
        self._tell(lambda tracker: tracker.close(self._finished))
        self._tracker = None

    def _close_metrics(self) -> None:
        metrics, self._metrics = self._metrics, None
        with contextlib.suppress(OSError):  # a full disk, which was said before
            if metrics is not None:
                metrics.close()

    def _tell(self, news: "Callable[[Tracker], None]") -> None:
        """The one place where a tracker may fail: said once, then it is left alone."""
        if self._tracker is None:
            return
        try:
            news(self._tracker)
        except Exception as error:
            name, text = type(self._tracker).__name__, " ".join(str(error).split())
            self._tracker = None
            logging.warning(
                "%s is left alone, and the run goes on without it (%s: %s).",
                *(name, type(error).__name__, text[:_LONGEST]),
            )


def plain(rows: Iterable[Row]) -> list[Row]:
    """Lines of metrics as a reader will see them."""
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def noted(row: Row, line: str) -> Line:
    """What a state notes of a line of the metrics, to know it again."""
    return row["round"], zlib.crc32(line.encode())


def packed(lines: Sequence[Line]) -> str:
    """Notes of lines as one text, which is quicker to save than many numbers.

    >>> unpacked(packed([(1, 255), (5, 16)]))
    [(1, 255), (5, 16)]
    """
    return " ".join(f"{round}:{checksum:x}" for round, checksum in lines)


def unpacked(text: str) -> list[Line]:
    """The inverse of `packed`."""
    pairs = (note.split(":") for note in text.split())
    return [(int(round), int(checksum, 16)) for round, checksum in pairs]


def lines_of(folder: str | Path) -> list[Line]:
    """What states would note of the metrics in a folder."""
    return [noted(*pair) for pair in _read_metrics(Path(folder) / _METRICS)]


def read(folder: str | Path) -> Run:
    """Reads a run, finished or not.

    Raises:
      RecordError: There is no run in the folder, or it cannot be read.
    """
    folder = Path(folder)
    content = _read_json(folder / _CONFIG)
    if content is None or not isinstance(content.get("config"), dict):
        raise RecordError(
            f"{folder} holds no run ({_CONFIG} is missing or another program's): give "
            "the folder of a run."
        )
    if not isinstance(content.get("facts", {}), dict):
        raise RecordError(f"{folder / _CONFIG} cannot be read: facts is no object.")
    known = content.pop("checksum", None)
    if known not in (None, _checksum(json.dumps(content, sort_keys=True))):
        raise RecordError(
            f"{folder / _CONFIG} was changed after the run had written it: restore it "
            "from a copy, or start a new run elsewhere."
        )
    pairs, summary = _read_metrics(folder / _METRICS), _read_json(folder / _SUMMARY)
    if summary is not None:
        _check_summary(folder, summary, pairs)
    return Run(
        config=content["config"],
        metrics=[row for row, _ in pairs],
        summary=summary,
        facts=content.get("facts"),
        folder=folder,
        identity=None if known is None else content.get("identity"),
        versions=content.get("versions"),
    )


def read_clients(folder: str | Path) -> dict[str, np.ndarray]:
    """What `Record.write_clients` wrote last.

    Raises:
      RecordError: The file cannot be read.
    """
    path = Path(folder) / CLIENTS
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        if not {"round", "seeds", "sizes", "loss"} <= set(arrays):
            raise ValueError("it lacks entries")
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise RecordError(f"{path} cannot be read: {error}.") from error
    return arrays


def leftovers(folder: str | Path) -> list[str]:
    """Names of a run's files that are there, whether or not `config.json` is."""
    folder = Path(folder)
    names = [name for name in (_METRICS, _SUMMARY) if (folder / name).exists()]
    states = folder / STATES
    if states.is_file() or (states.is_dir() and any(states.iterdir())):
        names.append(STATES)
    return names


def exists(folder: str | Path) -> bool:
    """True if a run was begun in the folder."""
    return (Path(folder) / _CONFIG).exists()


def versions() -> dict[str, str]:
    """What a result may depend on beside the settings."""
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    return {**machine, **packages, "device": device}


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file whole or not at all."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all; folders are made."""
    unfinished = path.with_name(f".{path.name}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _of_file(error, path) from None
        raise


def _of_file(error: OSError, path: Path) -> OSError:
    """The same error with a path: Python leaves it out where a file is full."""
    if error.errno is None or error.filename:
        return error
    return OSError(error.errno, error.strerror, str(path))


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise RecordError(f"{path} cannot be read: it holds no object.")
    return content


def _read_metrics(path: Path) -> list[tuple[Row, str]]:
    """All lines; a last one that a killed program left unfinished does not count."""
    if not path.exists():
        return []
    try:
        *lines, _ = path.read_text().split("\n")
        rows = [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}.") from error
    for number, row in enumerate(rows, 1):
        if not _is_row(row):
            raise RecordError(
                f"{path} cannot be read: line {number} has no round, no seed, or a "
                "value that is no number."
            )
    return list(zip(rows, lines, strict=True))


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict):
        return False
    counts = [type(row.get(name)) is int for name in ("seed", "round")]
    return all(counts) and all(isinstance(x, _NUMBER) for x in row.values())


def _check_summary(folder: Path, summary: Row, pairs: list[tuple[Row, str]]) -> None:
    """Refuses a summary that is not what the metrics give, or of another shape."""
    path, restore = folder / _SUMMARY, "restore both from a copy"
    metrics = _checksum(_joined(line for _, line in pairs))
    if summary.pop("metrics", metrics) != metrics:
        raise RecordError(
            f"{folder / _METRICS} does not have the lines, as they were written, that "
            f"{path} was made of: {restore}."
        )
    target = summary.get("target")
    known = isinstance(target, _NUMBER) and all(
        isinstance(summary.get(name), kinds) for name, kinds in _SUMMARISED.items()
    )
    given = summarise([row for row, _ in pairs], target=target) if known else {}
    given.pop("rounds", None)  # also those that were not evaluated count
    wrong = [name for name in given if (name, given[name]) not in summary.items()]
    if wrong or not known:
        what = f"its {wrong[0]} is another" if wrong else "it lacks entries"
        raise RecordError(
            f"{path} is not the summary of {folder / _METRICS} ({what}): {restore}."
        )


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _plain(value: Any) -> Any:
    """A Python number; what is not finite has no place in JSON and is None."""
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
