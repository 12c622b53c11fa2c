"""The folder of a run: what is there already, and whether it may go on.

A run's identity names the settings that may not change, the data, and what a file of
who is there says. It is written into `config.json` and into every state, which also
notes the lines of the metrics that belong to it: what was exchanged, edited or lost
does not go on unnoticed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from afga_jax.runs import record
from afga_jax.runs.config import Config, differences, fields, neutral
from afga_jax.runs.record import Run
from afga_jax.runs.summary import FINAL_ROUNDS

#: Where runs go that are not told where.
RUNS = Path("runs")

# They only decide when to stop, so they may differ when a run goes on.
_STOPPING = ("target", "stop_at_target")


def unused(config: Config, runs: Path = RUNS, *, dataset: str | None = None) -> Path:
    """A folder for a new run, which is not there yet.

    Args:
      config: The run's configuration.
      runs: The folder of all runs.
      dataset: Name of the run's data in the folder's; None: the configuration's.
    """
    number, name = 1, _name(config, dataset)
    while (folder := runs / (name if number == 1 else f"{name}_{number}")).exists():
        number += 1
    return folder


def newest(config: Config, runs: Path = RUNS) -> Path | None:
    """The folder of the last such run that was begun; None: there is none.

    A run for which digits stood in is one, too.
    """
    folders = [
        path
        for name in (_name(config), _name(config, f"digits_for_{config.dataset}"))
        for path in (runs / name, *runs.glob(f"{name}_*"))
        if path.exists() and record.exists(path) and _is_of(path, name)
    ]
    stamp = lambda path: (path / "config.json").stat().st_mtime  # noqa: E731
    return max(folders, key=stamp, default=None)


def existing(out: Path, resume: bool) -> Run | None:
    """The run that a folder holds; None: there is none, and nothing of one.

    Raises:
      ValueError: There is one and it is not to be resumed, or only parts of one.
    """
    if not record.exists(out):
        if parts := record.leftovers(out):
            raise ValueError(
                f"{out} has {' and '.join(parts)} of a run, but no config.json: "
                "restore it from a copy, or choose another folder."
            )
        return None
    run = record.read(out)
    if not resume:
        at = run.metrics[-1]["round"] if run.metrics else 0
        raise ValueError(
            f"out = {str(out)!r} holds a run already, evaluated to round {at} of "
            f"{run.config.get('rounds')}: resume to go on with it, or choose another "
            "folder."
        )
    if run.identity is None:
        raise ValueError(
            f"{out / 'config.json'} is of an older format, so its run cannot go on: "
            "use the version that began it, or start a new run elsewhere."
        )
    return run


def identity(config: Config, data: int, availability: str | None = None) -> str:
    """Names a run: the settings that may not change when it goes on, and its data.

    Args:
      config: Complete settings.
      data: Checksum of the data (`experiment.checksum`).
      availability: Digest of who is there when (`Availability.digest`); None: all are.

    Returns:
      The SHA-256 of all, as canonical JSON.
    """
    kept = config.to_dict()
    for name in (*neutral(), *_STOPPING):
        del kept[name]
    for field in fields("conditions"):
        # So that runs from before there was such a condition can go on.
        if kept.get(field.name) is None:
            kept.pop(field.name, None)
    if config.lr_schedule == "constant":
        del kept["rounds"]
    named = {"settings": kept, "data": data}
    if availability is not None:
        named["availability"] = availability
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()


def check_begun(
    before: Run, config: Config, own: str, out: Path, availability: str | None = None
) -> None:
    """Refuses to go on with other settings or data than those of the run.

    Args:
      before: What the folder holds.
      config: Settings to go on with.
      own: Identity by these settings and the data that are there now.
      out: The run's folder.
      availability: As for `identity`.
    """
    check_same(Config.from_dict(before.config), config, out)
    if (before.facts or {}).get("availability", availability) != availability:
        raise ValueError(
            f"{config.availability} has others there than when the run in "
            f"{str(out)!r} began: restore it, or start a new run elsewhere."
        )
    if before.identity != own:
        raise ValueError(
            f"{out / 'config.json'} is of a run on another data set than what is there "
            "now, or of another version, so the run cannot go on: restore the data, or "
            "start a new run elsewhere."
        )


def check_state(
    about: Mapping[str, Any], path: Path, before: Run | None, own: str
) -> None:
    """Refuses a state that is of another run, or whose metrics are not there.

    Args:
      about: What the state says of itself.
      path: The state's folder.
      before: What the run's folder holds.
      own: The run's identity.
    """
    out = path.parents[1]
    if about.get("identity") != own:
        raise ValueError(
            f"{path} is a state of another run than {out / 'config.json'} describes: "
            "restore what belongs together, or start a new run elsewhere."
        )
    noted = record.unpacked(about["lines"])
    # A round that is still to be evaluated may have been, by a program that was killed.
    last = about["round"] - (record.DUE in about)
    lines = [line for line in record.lines_of(out) if line[0] <= last]
    # A run that was given more rounds drops lines that only its old end asked for.
    config = Config.from_dict(before.config) if before else None
    due = [line for line in noted if config and evaluates(config, line[0])]
    if lines not in (noted, due):
        raise ValueError(
            f"{out / 'metrics.jsonl'} does not have the {len(noted)} lines that belong "
            f"to the state of round {about['round']}, as they were written: restore it "
            "from a copy, or start a new run elsewhere."
        )


def check_unsaved(before: Run | None, out: Path) -> None:
    """Refuses to start again where states must have been saved, and are not there.

    Args:
      before: What the folder holds; None: nothing.
      out: The run's folder.
    """
    if before is None:
        return
    config = Config.from_dict(before.config)
    last = max((row["round"] for row in before.metrics), default=0)
    if before.summary or last > (config.checkpoint_every or config.eval_every):
        raise ValueError(
            f"{out / record.STATES} has no state, but the run was evaluated to round "
            f"{last}: restore it from a copy, or start a new run elsewhere."
        )


def evaluates(config: Config, round: int) -> bool:
    """Whether a round, counted from 1, is evaluated.

    Every `eval_every`-th is, and the last five, whose mean is the final accuracy.
    """
    return round % config.eval_every == 0 or round > config.rounds - FINAL_ROUNDS


def refused(before: Config, now: Config) -> dict[str, tuple]:
    """Settings that differ and would make the run another one.

    Neutral ones (folders, network, cache, `checkpoint_every`) may differ, and so may
    `target` and `stop_at_target`. There may be more rounds with a constant learning
    rate; the other schedules depend on their number.
    """
    differ = differences(before, now)
    if now.rounds > before.rounds and now.lr_schedule == "constant":
        differ.pop("rounds", None)
    return {name: pair for name, pair in differ.items() if name not in _STOPPING}


def check_same(before: Config, now: Config, out: Path) -> None:
    """Refuses to go on with other settings, and names them."""
    if differ := refused(before, now):
        if set(differ) == {"traced_round"}:
            raise ValueError(
                f"the run in {str(out)!r} has the same options and shapes, but its "
                "rounds compute something else: a model, loss, optimizer, topology or "
                "another function differs. Go on with its own, or choose another "
                "folder for these."
            )
        differ.pop("traced_round", None)  # it follows from what has a name
        listed = ", ".join(f"{k} {was!r} → {new!r}" for k, (was, new) in differ.items())
        raise ValueError(
            f"the run in {str(out)!r} has other settings: {listed}. Go on with its "
            "own, or choose another folder for these."
        )


@contextlib.contextmanager
def alone(out: Path) -> Iterator[None]:
    """Two programs must not write into one folder; the lock dies with its holder.

    A folder that was made for it and has nothing else in the end is removed.
    """
    lock, is_new = out / ".lock", not out.exists()
    with contextlib.ExitStack() as stack:
        while True:
            out.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(lock.open("w"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ValueError(
                    f"another program is running in {str(out)!r}: wait for it, or "
                    "choose another folder."
                ) from error
            # Its last holder may have removed it since it was opened.
            if lock.exists() and os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                break
        try:
            yield
        finally:
            if is_new and [path.name for path in out.iterdir()] == [lock.name]:
                lock.unlink()
                out.rmdir()


def _name(config: Config, dataset: str | None = None) -> str:
    return f"{dataset or config.dataset}_{config.algo}"


def _is_of(path: Path, name: str) -> bool:
    """`cifar10_afga_2` is; `cifar10_afga_adapted` is of another algorithm."""
    return path.name == name or path.name.removeprefix(f"{name}_").isdigit()
