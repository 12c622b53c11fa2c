"""The folder of a run: what is there already, and whether it may go on."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from afga_jax import record
from afga_jax.config import Config, differences
from afga_jax.record import Run

#: Where runs go that are not told where.
RUNS = Path("runs")

# They only decide when to stop, so they may differ when a run goes on.
_STOPPING = ("target", "stop_at_target")


def unused(config: Config, runs: Path = RUNS) -> Path:
    """A folder for a new run, which is not there yet."""
    number, name = 1, _name(config)
    while (folder := runs / (name if number == 1 else f"{name}_{number}")).exists():
        number += 1
    return folder


def newest(config: Config, runs: Path = RUNS) -> Path:
    """The folder of the last such run that was begun; a new one where there is none."""
    name = _name(config)
    found = [path for path in (runs / name, *runs.glob(f"{name}_*")) if path.exists()]
    found = [path for path in found if record.exists(path) and _is_of(path, name)]
    if not found:
        return unused(config, runs)
    return max(found, key=lambda path: (path / "config.json").stat().st_mtime)


def existing(out: Path, resume: bool) -> Run | None:
    """The run that a folder holds.

    Raises:
      ValueError: There is one, and it is not to be resumed.
    """
    if not record.exists(out):
        return None
    found = record.read(out)
    if not resume:
        at = found.metrics[-1]["round"] if found.metrics else 0
        raise ValueError(
            f"out = {str(out)!r} holds a run already, evaluated to round {at} of "
            f"{found.config.get('rounds')}: resume to go on with it, or choose another "
            "folder."
        )
    return found


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
        listed = ", ".join(f"{k} {was!r} → {new!r}" for k, (was, new) in differ.items())
        raise ValueError(
            f"the run in {str(out)!r} has other settings: {listed}. Go on with its "
            "own, or choose another folder for these."
        )


@contextlib.contextmanager
def alone(out: Path) -> Iterator[None]:
    """Two programs must not write into one folder; the lock dies with its holder."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(
                f"another program is running in {str(out)!r}: wait for it, or choose "
                "another folder."
            ) from error
        yield


def discard(out: Path) -> None:
    """Removes a folder in which nothing is left but the lock."""
    if [path.name for path in out.iterdir()] == [".lock"]:
        (out / ".lock").unlink()
        out.rmdir()


def _name(config: Config) -> str:
    return f"{config.dataset}_{config.algo}"


def _is_of(path: Path, name: str) -> bool:
    """`cifar10_afga_2` is; `cifar10_afga_adapted` is of another algorithm."""
    return path.name == name or path.name.removeprefix(f"{name}_").isdigit()
