"""A run on disk: what was asked, what was measured, what came out.

    config.json     the settings, their sources, versions, facts about data and theory
    metrics.jsonl   a line for each seed at each evaluated round
    tensorboard/    the same for TensorBoard
    clients.npz     every client's metrics at the newest of these rounds, if asked for
    checkpoints/    the newest states (`runs.checkpoint`)
    summary.json    the result, once there is one

`metrics.jsonl` is the truth; the events for TensorBoard are written from it.
"""

import importlib.metadata
import io
import json
import math
import os
import platform
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import numpy as np
import tensorboardX

Row = dict[str, Any]

#: Round and checksum of a line of the metrics.
Line = tuple[int, int]

_CONFIG, _METRICS, _SUMMARY = "config.json", "metrics.jsonl", "summary.json"
_EVENTS, _CLIENTS = "tensorboard", "clients.npz"
#: Folder of the newest states.
STATES = "checkpoints"
_PACKAGES = ("afga-jax", "jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint")


class RecordError(ValueError):
    """A folder does not hold a run, or its files cannot be read."""


class Run(NamedTuple):
    """What is known of a run.

    Attributes:
      config: The settings, all of them.
      metrics: A dictionary for each seed at each evaluated round.
      summary: The result; None: there is none yet.
      facts: About the data, the model and the theory's conditions.
      folder: The run's folder; None: the run is in memory only.
      identity: Names the settings that may not change and the data (`runs.folder`).
    """

    config: dict[str, Any]
    metrics: list[Row]
    summary: dict[str, Any] | None = None
    facts: dict[str, Any] | None = None
    folder: Path | None = None
    identity: str | None = None


class Record:
    """Writes a run's files; `with` closes them.

    Args:
      folder: The run's folder, which the first file creates.

    Attributes:
      lines: What a state notes of each line of the metrics.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.lines: list[Line] = []
        self._metrics: IO[str] | None = None
        self._writers: dict[int, tensorboardX.SummaryWriter] = {}

    def __enter__(self) -> "Record":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def configure(self, config: dict[str, Any], **more: Any) -> None:
        """Writes `config.json`: the settings, `versions`, and what else is given.

        What an earlier program wrote there beside these stays.
        """
        before = _read_json(self.folder / _CONFIG) or {}
        content = {**before, "config": config, "versions": versions(), **more}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / _CONFIG, content)

    def resume(self, keep: Callable[[Row], bool]) -> list[Row]:
        """Cuts the metrics back to what a checkpoint knows of.

        Args:
          keep: True for the lines to keep.

        Returns:
          The lines that stay.
        """
        self.close()
        pairs = [
            (row, line)
            for row, line in _read_metrics(self.folder / _METRICS)
            if keep(row)
        ]
        kept = [row for row, _ in pairs]
        text = "".join(line + "\n" for _, line in pairs)
        write_text(self.folder / _METRICS, text)
        self.lines = [noted(row, line) for row, line in pairs]
        shutil.rmtree(self.folder / _EVENTS, ignore_errors=True)
        (self.folder / _SUMMARY).unlink(missing_ok=True)
        for row in kept:
            self._events(row)
        return kept

    def write(self, rows: Iterable[Row]) -> list[Row]:
        """Appends lines to the metrics and returns them as a reader will see them."""
        if self._metrics is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._metrics = (self.folder / _METRICS).open("a")
        rows = plain(rows)
        for row in rows:
            line = json.dumps(row)
            self._metrics.write(line + "\n")
            self.lines.append(noted(row, line))
            self._events(row)
        self._metrics.flush()
        return rows

    def write_clients(self, arrays: Mapping[str, Any]) -> None:
        """Writes `clients.npz` in place of an earlier round's.

        Args:
          arrays: `round`, `seeds`, the clients' `sizes`, and metrics
            `[seeds, clients]` by name.
        """
        file = io.BytesIO()
        np.savez(file, **arrays)
        write_bytes(self.folder / _CLIENTS, file.getvalue())

    def sync(self) -> None:
        """Returns when all lines are on the disk, for a checkpoint to rely on."""
        if self._metrics is not None:
            os.fsync(self._metrics.fileno())

    def summarise(self, summary: dict[str, Any]) -> None:
        """Writes `summary.json`."""
        write_json(self.folder / _SUMMARY, summary)

    def discard(self) -> None:
        """Removes what was written; for a run that fails before its first round."""
        self.close()
        shutil.rmtree(self.folder / _EVENTS, ignore_errors=True)
        for name in (_METRICS, _CLIENTS, _SUMMARY, _CONFIG):
            (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Closes all files; `write` opens them again."""
        if self._metrics is not None:
            self._metrics.close()
        for writer in self._writers.values():
            writer.close()
        self._metrics, self._writers = None, {}

    def _events(self, row: Row) -> None:
        seed = row["seed"]
        if seed not in self._writers:
            folder = self.folder / _EVENTS / f"seed_{seed}"
            self._writers[seed] = tensorboardX.SummaryWriter(str(folder))
        for name, value in row.items():
            if name not in ("seed", "round") and value is not None:
                self._writers[seed].add_scalar(name, value, row["round"])


def plain(rows: Iterable[Row]) -> list[Row]:
    """Lines of metrics as a reader will see them."""
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def noted(row: Row, line: str) -> Line:
    """What a state notes of a line of the metrics, to know it again."""
    return row["round"], zlib.crc32(line.encode())


def lines_of(folder: str | Path) -> list[Line]:
    """What states would note of the metrics in a folder."""
    pairs = _read_metrics(Path(folder) / _METRICS)
    return [noted(row, line) for row, line in pairs]


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
            "the folder that a run was told by --out."
        )
    if not isinstance(content.get("facts", {}), dict):
        raise RecordError(f"{folder / _CONFIG} cannot be read: facts is no object.")
    return Run(
        config=content["config"],
        metrics=[row for row, _ in _read_metrics(folder / _METRICS)],
        summary=_read_json(folder / _SUMMARY),
        facts=content.get("facts"),
        folder=folder,
        identity=content.get("identity"),
    )


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
    packages = {"python": platform.python_version(), "machine": platform.machine()}
    for name in _PACKAGES:
        packages[name] = importlib.metadata.version(name)
    device = jax.devices()[0]
    return {**packages, "device": f"{jax.device_count()} x {device.device_kind}"}


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file whole or not at all."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    unfinished = path.with_name(f".{path.name}.tmp")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


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
    numbers = [
        value is None or isinstance(value, int | float) for value in row.values()
    ]
    return all(counts) and all(numbers)


def _plain(value: Any) -> Any:
    """A Python number; what is not finite has no place in JSON and is None."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
