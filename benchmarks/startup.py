"""How long until the first round is done, and what a round costs beside computing.

    python -m benchmarks.startup                       # CIFAR-10, small, CAFGA
    python -m benchmarks.startup --dataset=digits --repeats=5

Each start is a process of its own: *cold* with no compiled program kept, *warm* with
those of the cold start before it. The decoded data set is there in both. Cold and warm
take turns. The overhead is all that Python and the disk do for a round, evaluation
excluded: the calls of `Training` with a program that returns at once, and a checkpoint
shared by the rounds that it covers.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from absl import app, flags

_DATASET = flags.DEFINE_string("dataset", "cifar10", "Data set.")
_ALGO = flags.DEFINE_string("algo", "cafga", "Algorithm.")
_REPEATS = flags.DEFINE_integer("repeats", 3, "Cold and warm starts of each.")
_CHILD = flags.DEFINE_string("child", None, "Be a start, with programs kept here.")


def child(programs: str) -> dict[str, float]:
    """One start; seconds since the process began, and CPU seconds."""
    import jax

    from afga_jax.runs import devices, runner
    from afga_jax.runs.checkpoint import Checkpoints
    from afga_jax.runs.experiment import from_config
    from afga_jax.runs.loop import Training
    from afga_jax.runs.programs import Programs
    from afga_jax.runs.settings import resolve

    devices.use()
    seconds = {"import": _since_start()}
    given = {"algo": _ALGO.value, "scale": "small", "dataset": _DATASET.value}
    config = resolve(given).config
    runner.keep_programs(config)
    jax.config.update("jax_compilation_cache_dir", programs)
    compiled = Programs(from_config(config), devices.execution_of(config))
    training = Training(config, compiled)
    seconds["build"] = _since_start()
    training.start()
    jax.block_until_ready(training.state)
    seconds["init"] = _since_start()
    training.advance(1)
    seconds |= {"first round": _since_start(), "first cpu": time.process_time()}
    laps = [_timed(lambda: training.advance(1)) for _ in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        states = Checkpoints(folder)
        # The first time also imports what saves.
        training.save(states, [])
        training.advance(1)
        saving = _timed(lambda: training.save(states, []))
    host = _host_seconds(training)
    every = config.checkpoint_every or config.eval_every
    seconds["round"] = statistics.median(laps)
    seconds["overhead"] = host + saving / every
    return seconds


def main(arguments: list[str]) -> None:
    del arguments
    if _CHILD.value:
        print(json.dumps(child(_CHILD.value)))
        return
    found = {"cold": [], "warm": []}
    for _ in range(_REPEATS.value):
        with tempfile.TemporaryDirectory() as programs:
            for name, runs in found.items():
                runs.append(_start(programs))
                print(f"{name}: {_shown(runs[-1])}", flush=True)
    for name, runs in found.items():
        middle = {k: statistics.median(run[k] for run in runs) for k in runs[0]}
        share = 100 * middle["overhead"] / middle["round"]
        print(f"median {name}: {_shown(middle)}; overhead {share:.2f} % of a round")


def _start(programs: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.startup", f"--child={programs}"]
    command += [f"--dataset={_DATASET.value}", f"--algo={_ALGO.value}"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[1]
    )
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _host_seconds(training, calls: int = 50) -> float:
    """Of one round, with a program that returns what it returned before."""
    trainer = training.programs.trainer
    program, kept = trainer._run, []

    def remember(*arguments, **named):
        kept.append(program(*arguments, **named))
        return kept[-1]

    trainer._run = remember
    training.advance(1)
    trainer._run = lambda *arguments, **named: kept[-1]
    spent = _timed(lambda: [training.advance(1) for _ in range(calls)])
    trainer._run = program
    return spent / calls


def _timed(function) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def _since_start() -> float:
    """Seconds since the process began, the start of Python included."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    with open("/proc/uptime") as file:
        uptime = float(file.read().split()[0])
    import os

    return uptime - ticks / os.sysconf("SC_CLK_TCK")


def _shown(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g} s" for name, value in seconds.items())


if __name__ == "__main__":
    app.run(main)
