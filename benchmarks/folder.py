"""What a run folder that knows itself adds to a round, a checkpoint and a start.

    python -m benchmarks.folder
    python -m benchmarks.folder --dataset=cifar10 --rows=3000

Each line has the milliseconds that are added and those of the whole, of one run on
this machine: to a round, a checksum of its line of metrics; to a checkpoint, what the
state says of itself, as the median difference of real saves with and without it, in
turns; to a start, the identity of settings and data, and the reading of a folder with
that many lines. Checksums of a state's files, which notice damage, were there before
and have a line of their own.
"""

import argparse
import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax

from afga_jax.runs import checkpoint, devices, folder, record
from afga_jax.runs.checkpoint import Checkpoints
from afga_jax.runs.experiment import checksum, from_config
from afga_jax.runs.loop import Training
from afga_jax.runs.programs import Programs
from afga_jax.runs.record import Record
from afga_jax.runs.settings import resolve

REPEATS, PAIRS = 7, 24


def milliseconds(call: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median of some calls."""
    durations = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        durations.append(time.perf_counter() - started)
    return 1000 * statistics.median(durations)


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--scale", default="small")
    parser.add_argument("--rows", type=int, default=300)
    asked = parser.parse_args()
    devices.use()
    started = time.perf_counter()
    given = {"dataset": asked.dataset, "scale": asked.scale, "algo": "afga"}
    experiment = from_config(resolve(given, dataset=asked.dataset).config)
    programs = Programs(experiment, devices.execution_of(experiment.config))
    training = Training(experiment.config, programs)
    training.start()
    training.advance(1)
    start = 1000 * (time.perf_counter() - started)
    round_ = milliseconds(lambda: training.advance(1))
    row = {"seed": 0, "round": 1, **training.measure()[0]}
    print(f"{asked.dataset}, {asked.scale}, {asked.rows} lines of metrics")
    print("| to a | added, ms | whole, ms | share |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        with Record(out) as writer:
            writer.configure(experiment.config.to_dict(), facts=experiment.facts)
            for number in range(1, asked.rows + 1):
                writer.write([{**row, "round": number}])
            lines = writer.lines
        line = (out / "metrics.jsonl").read_text().splitlines()[0]
        _print("round", milliseconds(lambda: record.noted(row, line)), round_)
        _print_checkpoint(training, lines, out)
        added = milliseconds(lambda: _start(experiment, out), 3)
        _print("start", added, start + added)


def _print_checkpoint(training: Training, lines: list, out: Path) -> None:
    """Real saves of one state, with and without what it says of itself, in turns."""
    args, tree = checkpoint._orbax().args, training._saved()
    tree = jax.tree.map(checkpoint._on_host, tree)
    about = {"identity": training.identity, "lines": record.packed(lines)}
    managers = {
        name: Checkpoints(out / name)._manager() for name in ("plain", "knowing")
    }
    durations: dict[str, list[float]] = {name: [] for name in managers}
    for step in range(PAIRS + 1):
        for name, manager in managers.items():
            save = functools.partial(
                manager.save,
                step,
                args=args.Composite(state=args.StandardSave(tree)),
                custom_metadata=about if name == "knowing" else None,
            )
            durations[name].append(milliseconds(save, 1))
    # The first of each opens the folder.
    pairs = zip(durations["plain"][1:], durations["knowing"][1:], strict=True)
    added = sorted(knowing - plain for plain, knowing in pairs)
    whole = statistics.median(durations["knowing"][1:])
    _print("checkpoint", statistics.median(added), whole)
    quarter = len(added) // 4
    print(
        f"(half of the {PAIRS} pairs: {added[quarter]:.1f} to {added[-quarter]:.1f} ms)"
    )
    path = out / "knowing" / f"round_{PAIRS}"
    files = milliseconds(lambda: checkpoint._write_checksums(path))
    _print("checkpoint, for its files", files, whole)


def _start(experiment, out: Path) -> None:
    folder.identity(experiment.config, checksum(experiment))
    record.read(out)
    record.lines_of(out)


def _print(name: str, added: float, whole: float) -> None:
    print(f"| {name} | {added:.3f} | {whole:.1f} | {added / whole:.2%} |", flush=True)


if __name__ == "__main__":
    main()
