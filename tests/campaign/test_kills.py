"""Kills, a full disk and Ctrl-C, in processes of their own: nothing is lost.

What is left goes on in the tests' process, where programs are shared; killed, it goes
on in new processes too. `tests/runs/test_processes.py` kills one process of two,
`tests/runs/test_experiments.py` other algorithms.
"""

import functools
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import run_files
from afga_jax.runs import devices, flags, main, runner
from afga_jax.runs.experiment import from_config
from afga_jax.runs.programs import Programs
from afga_jax.runs.settings import resolve

ROOT = Path(__file__).parents[2]
SEED, ROUNDS, KILLS = 28, 40, 4
# Rounds of some hundredths of a second, so that there is time for a fault.
PROGRAM = """
import os, resource, signal, sys, threading, time
from afga_jax.runs import checkpoint, loop, main, report

report.curves = lambda run, path: None
advance = loop.Training.advance

def slowly(training, rounds):
    time.sleep(0.03)
    advance(training, rounds)

loop.Training.advance, loop.SECONDS_PER_CALL = slowly, 0.0
if limit := int(os.environ.get("FILE_LIMIT", 0)):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

save = checkpoint.Checkpoints.save

def interrupted(states, step, *more):
    if step == int(os.environ.get("INTERRUPTED_SAVE", 0)):
        for seconds in (0.001, 0.02):  # a save takes longer
            kill = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
            kill.start()
    save(states, step, *more)

checkpoint.Checkpoints.save = interrupted
main.start("synthetic")
"""
FLAGS = [f"--rounds={ROUNDS}", "--eval_every=1", "--checkpoint_every=2", "--algo=afga"]
FLAGS += ["--num_clients=8", "--local_steps=2", "--dimension=200", "--cpu_devices=1"]
FLAGS += ["--nocompile_cache"]
# Everything that fails, lies or is remembered between rounds.
HARD = ["--client_dropout=0.3", "--link_failure=0.2", "--straggler=0.3"]
HARD += ["--upload_loss=0.2", "--attack=nan", "--liars=0.3", "--participation=0.5"]
HARD += ["--compress_uploads=top_k", "--compress_ratio=0.3"]


def started(out, *flags, **more):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *FLAGS, f"--out={out}", *flags],
        cwd=out.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process, round):
    """Reads until a round was evaluated; False: the program has ended before."""
    for line in process.stdout:
        words = line.split()
        if words[:1] == ["round"] and int(words[1]) >= round:
            return True
    return False


def ended(process):
    """Exit code and what was said on stderr, which never is a traceback."""
    _, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors
    return process.returncode, errors.splitlines()


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)


@functools.cache
def shared_programs(*more):
    values = flags.define()
    flags.parse(["synthetic", *FLAGS, *more], values)
    dataset = main.COMMANDS["synthetic"].dataset
    config = resolve(flags.given(values), dataset=dataset).config
    return config, Programs(from_config(config), devices.execution_of(config))


def check_goes_on(out, *more):
    """To the end of a run that nothing happened to."""
    config, shared = shared_programs(*more)
    run = runner.run(config, out, programs=shared, resume=True)
    whole = runner.run(config, out.with_name("whole"), programs=shared)
    run_files.assert_same(run, whole, shared)
    return run


@pytest.mark.slow
def test_four_kills_under_hard_conditions(tmp_path):
    """Between the second round and the end."""
    out, draw, resume = tmp_path / "run", random.Random(SEED), []
    for number in range(KILLS):
        process = started(out, *HARD, *resume)
        low = 2 + number * (ROUNDS - 2) // KILLS
        assert wait_for(process, draw.randint(low, low + 4))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        resume = ["--resume"]
    run = check_goes_on(out, *HARD)
    assert len(run.metrics) == ROUNDS
    assert run.metrics[-1]["contained_total"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("limit", [300, 9000], ids=["at once", "later"])
def test_a_full_disk(limit, tmp_path):
    out = tmp_path / "run"
    code, errors = ended(started(out, FILE_LIMIT=str(limit)))
    assert code == 1
    assert errors[-1].startswith("error: ")
    assert "File too large" in errors[-1]
    assert str(out) in errors[-1]
    assert not list(tmp_path.rglob(".*.tmp"))
    check_goes_on(out)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["in a round", "in a save"])
def test_a_second_ctrl_c(when, tmp_path):
    out = tmp_path / "run"
    if when == "in a save":
        process = started(out, INTERRUPTED_SAVE="6")
    else:
        process = started(out)
        assert wait_for(process, 6)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
    code, errors = ended(process)
    assert code == 130
    assert errors[-1].startswith("stopped")
    assert f"--resume --out={out}" in errors[-1]
    check_goes_on(out)
