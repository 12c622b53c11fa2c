"""What a run folder that knows itself adds to a round, a checkpoint and a start.

    python -m benchmarks.folder
    python -m benchmarks.folder --dataset=cifar10 --rows=3000

Each line has the milliseconds of what is added, done by itself, and those of the whole,
medians on this machine. To a round: a checksum of its line of metrics. To a checkpoint:
the notes of all lines and the identity, in a file of JSON that Orbax writes anyway. It
is written, read and written again with them and without them by turns, and the median
of the differences counts; in the difference of two whole saves so little cannot be
seen. To a start: the identity of settings and data, and the reading of a folder with
that many lines. Checksums of a state's files, which notice damage, have a line of their
own.
"""

import argparse
import itertools
import json
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
from afga_jax.runs.trackers import TensorBoard

REPEATS = 15


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
        with Record(out, TensorBoard(out)) as writer:
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
    """Real saves of one state, and what it says of itself without the state."""
    states, steps = Checkpoints(out / record.STATES), itertools.count(1)
    tree = jax.device_get(training._saved())

    def about() -> dict[str, str]:
        return {"identity": training.identity, "lines": record.packed(lines)}

    def write(content: Callable[[], dict[str, str]]) -> None:
        (out / "about").write_text(json.dumps(content()))
        read = json.loads((out / "about").read_text())
        (out / "about").write_text(json.dumps(read))

    states.save(0, tree, about())  # opens the folder
    whole = milliseconds(lambda: states.save(next(steps), tree, about()))
    pairs = [
        (milliseconds(lambda: write(about), 1), milliseconds(lambda: write(dict), 1))
        for _ in range(20 * REPEATS)
    ]
    added = statistics.median(noted - empty for noted, empty in pairs)
    _print("checkpoint", added, whole)
    newest = out / record.STATES / f"round_{REPEATS}"
    files = milliseconds(lambda: checkpoint._write_checksums(newest))
    _print("checkpoint, for its files", files, whole)


def _start(experiment, out: Path) -> None:
    folder.identity(experiment.config, checksum(experiment.clients, experiment.test))
    record.read(out)
    record.lines_of(out)


def _print(name: str, added: float, whole: float) -> None:
    print(f"| {name} | {added:.3f} | {whole:.1f} | {added / whole:.2%} |", flush=True)


if __name__ == "__main__":
    main()
