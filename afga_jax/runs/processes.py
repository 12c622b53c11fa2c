"""Runs over several processes, on one machine or many: who joins, who writes.

Every process runs the same program on its own devices and reads the same folders. The
first one alone prints and writes; all of them save and restore states together. What
depends on a clock or on signals is agreed on before anybody acts on it, since devices
that do not do the same wait for each other for ever.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from afga_jax.runs import record
from afga_jax.runs.record import Record, Row
from afga_jax.runs.trackers import Tracker

#: The flags that say who joins; they are no part of what a run is.
FLAGS = ("coordinator", "num_processes", "process_id")
#: Left to `jax.distributed`, which knows Slurm, TPU pods and others.
AUTO = "auto"

# Seconds to find each other, and until a process that is gone is noticed.
_TO_JOIN, _TO_NOTICE = 60, 45
# Letters of what a library says about a connection.
_LONGEST = 200


def join(given: Mapping[str, Any]) -> dict[str, Any]:
    """Joins the other processes, if there are any; call it before JAX does anything.

    Args:
      given: The user's choices.

    Returns:
      The choices without those that say who joins.

    Raises:
      ValueError: They do not fit together, or the coordinator does not answer.
    """
    asked = {name: given[name] for name in FLAGS if given.get(name) is not None}
    rest = {name: value for name, value in given.items() if name not in FLAGS}
    if not asked:
        return rest
    _check(asked)
    # Of CPU devices; other platforms have their own.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    where = {"coordinator_address": asked["coordinator"]}
    where |= {name: asked[name] for name in FLAGS[1:] if name in asked}
    refusal = (
        f"coordinator = {asked['coordinator']!r} could not be joined by all within "
        f"{_TO_JOIN} s: start every process with the same address, at which process 0 "
        "can be reached, and with a number of its own"
    )
    # JAX itself would end the process with a trace of its inside.
    late = threading.Timer(_TO_JOIN, leave, (1, f"error: {refusal}."))
    late.daemon = True
    late.start()
    try:
        jax.distributed.initialize(
            **({} if asked["coordinator"] == AUTO else where),
            initialization_timeout=2 * _TO_JOIN,
            heartbeat_timeout_seconds=_TO_NOTICE,
        )
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{refusal} ({error}).") from error
    finally:
        late.cancel()
    return rest


def are_several() -> bool:
    """Whether this is one of several processes."""
    return jax.process_count() > 1


def is_first() -> bool:
    """Whether this process prints and writes; alone, it does."""
    return jax.process_index() == 0


def meet(where: str) -> None:
    """Waits until all processes have come here."""
    if are_several():
        _together().sync_global_devices(where)


def agreed(value: float) -> float:
    """The first process's value of something that each has measured."""
    if not are_several():
        return value
    return float(_together().broadcast_one_to_all(np.float32(value)))


def any_of(value: bool) -> bool:
    """Whether it is so in any process."""
    if not are_several():
        return value
    return bool(_together().process_allgather(np.asarray(value)).any())


def lost(reason: str, command: str) -> str:
    """What to say where devices of other processes no longer answer."""
    return (
        "this process stops, because another one has, or cannot be reached "
        f"({reason[:_LONGEST]}): start all of them again, each with its process_id: "
        f"{command}"
    )


def leave(code: int, message: str | None = None) -> None:
    """Ends the process at once; an orderly end would wait for threads and fellows."""
    with contextlib.suppress(OSError, ValueError):  # nobody may read them any more
        if message is not None:
            print(message, file=sys.stderr)
        sys.stderr.flush()
        sys.stdout.flush()
    os._exit(code)


def writer_of(folder: Path, tracker: Tracker | None = None) -> Record:
    """What a process writes a run's files with: only the first one does."""
    return Record(folder, tracker) if is_first() else _Reader(folder)


class _Reader(Record):
    """Reads a run's files as they are, and writes none."""

    def configure(self, config: dict[str, Any], **more: Any) -> None:
        del config, more

    def resume(self, keep: Callable[[Row], bool]) -> list[Row]:
        if not record.exists(self.folder):
            return []
        return [row for row in record.read(self.folder).metrics if keep(row)]

    def write(self, rows):
        return record.plain(rows)

    def write_clients(self, arrays: Mapping[str, Any]) -> None:
        del arrays

    def summarise(self, summary: dict[str, Any]) -> None:
        del summary

    def discard(self) -> None:
        self.close()


def _together():
    # Imported late: most runs are alone.
    from jax.experimental import multihost_utils

    return multihost_utils


def _check(asked: Mapping[str, Any]) -> None:
    address = asked.get("coordinator")
    if address is None:
        raise ValueError(
            f"{' and '.join(asked)} given, but no coordinator: set it to HOST:PORT of "
            f"process 0, or to {AUTO} under Slurm or on a TPU pod."
        )
    if address == AUTO:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(
            f"coordinator = {address!r}, but it must be HOST:PORT of process 0, for "
            f"example 10.0.0.1:1234, or {AUTO}."
        )
    if missing := [name for name in FLAGS[1:] if name not in asked]:
        raise ValueError(
            f"coordinator = {address!r}, but {' and '.join(missing)} must be given, "
            f"too: or take coordinator={AUTO}."
        )
    if asked["process_id"] >= asked["num_processes"]:
        raise ValueError(
            f"process_id = {asked['process_id']}, but it must be < num_processes = "
            f"{asked['num_processes']}: number the processes from 0."
        )
