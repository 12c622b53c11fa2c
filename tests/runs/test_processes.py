"""Several real processes on one machine: the metrics of one, and what stops them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from afga_jax.runs import processes, record, runner, settings

ROOT = Path(__file__).parents[2]
GIVEN = {
    "dataset": "quadratic",
    "algo": "afga",
    "num_clients": 8,
    "active": 3,
    "local_steps": 2,
    "rounds": 4,
    "eval_every": 1,
    "checkpoint_every": 1,
    "cpu_devices": 1,
    "compile_cache": False,
}
# Dies, as if by kill -9, when the state of the second round is saved.
DYING = """
import os, signal, sys
from afga_jax.runs import loop, runner

def save(training, *rest, before=loop._save):
    before(training, *rest)
    if training.done == 2:
        os.kill(os.getpid(), signal.SIGKILL)

loop._save = save
runner.main("quadratic", arguments=["main", *sys.argv[1:]])
"""
# Samples that are dealt to the processes with their clients.
DIGITS = {"dataset": "digits", "model": "mlp", "hidden": "8", "test_samples": 50}
DIGITS |= {"engine": "dense"}
WHOLE = 'import sys; from afga_jax.runs import runner; runner.main("quadratic", "")'


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_processes": 2}, "num_processes given, but no coordinator"),
        ({"coordinator": "here"}, r"coordinator = 'here', but it must be HOST:PORT"),
        ({"coordinator": "a:1", "process_id": 0}, "but num_processes must be given"),
        (
            {"coordinator": "a:1", "num_processes": 2, "process_id": 2},
            "process_id = 2, but it must be < num_processes = 2",
        ),
    ],
)
def test_flags_that_do_not_fit_together(given, message):
    with pytest.raises(ValueError, match=message):
        processes.join(given)


def test_alone_there_is_nobody_to_ask(tmp_path):
    assert processes.join({"seed": 1}) == {"seed": 1}
    assert processes.is_first()
    assert not processes.are_several()
    assert processes.agreed(0.25) == 0.25
    assert not processes.any_of(False)
    assert type(processes.writer_of(tmp_path)) is record.Record


@pytest.fixture
def start():
    """Starts one process of several; none is left when a test fails."""
    running = []
    yield lambda *which: running.append(_started(*which)) or running[-1]
    for one in running:
        if one.poll() is None:
            one.kill()
            one.wait()
        one.stdout.close()
        one.stderr.close()


def _started(out, count, number, port, script=WHOLE, more=None):
    given = {**GIVEN, **(more or {}), "out": out, "num_processes": count}
    given |= {"coordinator": f"127.0.0.1:{port}", "process_id": number}
    flags = [f"--{name}={value}" for name, value in given.items()]
    return subprocess.Popen(
        [sys.executable, "-c", script, *flags],
        cwd=out.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run_alone({}, tmp_path_factory.mktemp("alone"))


def run_alone(more, folder):
    given = {**GIVEN, **more}
    if "hidden" in given:
        given["hidden"] = (int(given["hidden"]),)
    config = settings.resolve(given, dataset="quadratic").config
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
        return config, runner.run(config, folder / "run")


def assert_same_metrics(found, expected):
    assert len(found) == len(expected)
    for row, other in zip(found, expected, strict=True):
        for name in ("round", "train_loss", "test_loss", "spread", "uploads"):
            np.testing.assert_allclose(row[name], other[name], rtol=1e-5)


@pytest.mark.slow
def test_four_processes_train_as_one(alone, start, tmp_path):
    port, out = free_port(), tmp_path / "run"
    started = [start(out, 4, number, port) for number in range(4)]
    said = [one.communicate(timeout=300) for one in started]
    assert [one.returncode for one in started] == [0] * 4, said
    assert "final loss" in said[0][0]
    for text, errors in said[1:]:
        # What connects them says so; the run itself is silent.
        assert all(line.startswith("[Gloo]") for line in text.splitlines())
        assert not errors
    # By the rule, which every process follows alike.
    assert record.read(out).facts["engine"] == {"engine": "span", "wave_width": 4}
    assert_same_metrics(record.read(out).metrics, alone[1].metrics)


@pytest.mark.slow
def test_two_processes_hold_the_samples_of_their_clients(start, tmp_path):
    (tmp_path / "alone").mkdir()
    _, expected = run_alone(DIGITS, tmp_path / "alone")
    port, out = free_port(), tmp_path / "run"
    started = [start(out, 2, number, port, WHOLE, DIGITS) for number in range(2)]
    said = [one.communicate(timeout=300) for one in started]
    assert [one.returncode for one in started] == [0, 0], said
    assert_same_metrics(record.read(out).metrics, expected.metrics)


@pytest.mark.slow
def test_a_coordinator_that_does_not_answer(start, tmp_path):
    soon = "from afga_jax.runs import processes; processes._TO_JOIN = 3\n" + WHOLE
    waiting = start(tmp_path / "run", 2, 1, free_port(), soon)
    _, errors = waiting.communicate(timeout=60)
    assert waiting.returncode == 1
    assert "could not be joined by all within 3 s: start every process" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_process_that_dies_stops_the_other(alone, start, tmp_path):
    port, out = free_port(), tmp_path / "run"
    first, dying = start(out, 2, 0, port), start(out, 2, 1, port, DYING)
    assert dying.wait(timeout=300) == -9
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 1
    assert "this process stops, because another one has" in errors
    # The run goes on from the state of the second round, with one process.
    config, expected = alone
    assert [row["round"] for row in record.read(out).metrics] == [1, 2]
    run = runner.run(config, out, resume=True)
    assert_same_metrics(run.metrics, expected.metrics)
