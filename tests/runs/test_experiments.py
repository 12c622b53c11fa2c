"""The mains, through the command line."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import run_files
from afga_jax import data
from afga_jax.runs import devices, record, runner
from afga_jax.runs.config import Config
from afga_jax.runs.experiment import from_config
from afga_jax.runs.programs import Programs
from afga_jax.runs.progress import Display

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def start(tmp_path, main, *flags, **more):
    """Starts a main without any data set and without a network."""
    environment = {
        **os.environ,
        **more,
        "AFGA_OFFLINE": "1",
        "AFGA_CACHE_DIR": str(tmp_path / "cache"),
        "TFDS_DATA_DIR": str(tmp_path / "nothing"),
    }
    return subprocess.Popen(
        [sys.executable, "-m", f"experiments.{main}", *flags],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def call(capsys, monkeypatch, main, *flags):
    """Runs a main in this process, which saves the time to start one."""
    monkeypatch.setattr(sys, "argv", [main, *flags, "--nocompile_cache"])
    monkeypatch.delitem(sys.modules, f"experiments.{main}", raising=False)
    with pytest.raises(SystemExit) as end:
        runpy.run_module(f"experiments.{main}", run_name="__main__")
    return end.value.code, *capsys.readouterr()


def test_without_data_the_digits_stand_in_and_it_is_said(tmp_path):
    out = tmp_path / "run"
    flags = ["--algo=cafga", "--scale=smoke", "--stand_in", f"--out={out}"]
    own = {"JAX_ENABLE_COMPILATION_CACHE": "true", "JAX_COMPILATION_CACHE_DIR": ""}
    process = start(tmp_path, "cifar", *flags, **own)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    assert "USES THE BUILT-IN DIGITS INSTEAD" in stderr
    first, *_, last = stdout.splitlines()
    assert first.startswith("cafga on digits: 8 clients")
    assert last.startswith("final accuracy")
    assert str(out) in last
    run = record.read(out)
    assert run.facts["stand_in"]
    assert run.summary["finished"]
    assert (out / "curves.png").stat().st_size > 10_000
    about = json.loads((out / "config.json").read_text())
    given = {"algo": "cafga", "scale": "smoke", "stand_in": True, "out": str(out)}
    assert about["given"] == given
    assert about["sources"]["local_lr"]
    assert {"rho", "theory", "partition"} <= set(run.facts)
    assert list((tmp_path / "cache" / "programs").iterdir())


def small_set(name, access):
    """Noise in the shape of a data set; shards need the MNISTs' number of samples."""
    del access
    shape, number = ((32, 32, 3), 400) if "cifar" in name else ((28, 28, 1), 60_000)
    noise = np.random.default_rng(0).integers(0, 256, (number, *shape), dtype=np.uint8)
    labels = np.arange(number, dtype=np.int32) % 10
    test = (noise[:300], labels[:300])
    return data.Dataset(name, noise, labels, *test, num_classes=10)


def small_roles(access):
    del access
    texts = ["To be or not to be. " * 60, "Out, out, brief candle. " * 50]
    return [
        data.shakespeare.Role(f"u{i}", "play", f"S{i}", texts[i % 2]) for i in range(9)
    ]


@pytest.mark.parametrize(
    "main",
    ["cifar", "fashion_mnist", "mnist", "shakespeare", "digits", "synthetic"],
)
def test_each_main(main, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(data, "load", small_set)
    monkeypatch.setattr(data, "load_roles", small_roles)
    monkeypatch.setenv("AFGA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    code, stdout, stderr = call(capsys, monkeypatch, main, "--scale=smoke")
    assert code == 0, stderr
    (out,) = (tmp_path / "runs").iterdir()
    run = record.read(out)
    assert run.summary["finished"]
    assert not run.facts["stand_in"]
    assert run.metrics[-1]["round"] == run.config["rounds"]
    assert stdout.splitlines()[-1].startswith("final ")
    assert (out / "curves.png").exists()
    assert {path.name for path in out.iterdir()} == {
        *(".lock", "checkpoints", "config.json", "curves.png", "metrics.jsonl"),
        *("summary.json", "tensorboard"),
    }


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--dataset=cifar10"], "cifar10 is neither prepared under"),
        (["--algo=agfa"], "did you mean 'afga'"),
        (["--local_steps=0"], "local_steps = 0"),
        (["--rounds=many"], "rounds = 'many'"),
        (["--lokal_lr=1"], "did you mean --local_lr"),
        (["train"], "'train' is not a flag"),
        (["--init_from=nowhere"], "nowhere holds no run"),
        (["--stop_at_target"], "stop_at_target needs a target"),
    ],
    ids=lambda x: x[0] if isinstance(x, list) else "",
)
def test_a_users_mistake_is_one_line(flags, said, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("AFGA_OFFLINE", "1")
    monkeypatch.setenv("AFGA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)
    given = ["--scale=smoke", *flags]
    code, _, stderr = call(capsys, monkeypatch, "digits", *given)
    assert code in (1, 2)
    lines = [x for x in stderr.splitlines() if not x.startswith("note:")]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert said in lines[0]
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    """And the command that it says goes on."""
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
    monkeypatch.chdir(tmp_path)
    pressed = []

    def press(display, rounds, loss):
        if not pressed:
            pressed.append(signal.raise_signal(signal.SIGTERM))

    monkeypatch.setattr(Display, "advanced", press)
    given = ["--algo=fedavg", "--dataset=logistic", "--scale=smoke", "--rounds=3"]
    code, _, stderr = call(capsys, monkeypatch, "synthetic", *given)
    assert code == 130
    assert stderr.endswith(" --resume --out=runs/logistic_fedavg\n")
    assert "Traceback" not in stderr
    again = ["--resume", "--out=runs/logistic_fedavg"]
    code, stdout, stderr = call(capsys, monkeypatch, "synthetic", *again)
    assert code == 0, stderr
    assert "going on after round 1" in stdout
    code, stdout, _ = call(capsys, monkeypatch, "synthetic", *given, "--resume")
    assert code == 0
    assert "the run in runs/logistic_fedavg is finished" in stdout


@pytest.mark.parametrize("algo", ["scaffold", "damsgrad"])
def test_killed_at_any_moment(algo, tmp_path, monkeypatch):
    """By kill -9; it goes on in this process."""
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
    out = tmp_path / "run"
    # Saving after every round, most of the time is spent saving.
    process = start(
        *(tmp_path, "digits", f"--algo={algo}", f"--out={out}", "--scale=smoke"),
        *("--rounds=50", "--eval_every=3", "--checkpoint_every=1"),
        # As many as this process has: with more, sums are taken in another order.
        "--cpu_devices=1",
    )
    wait_for_lines(process, out, 2)
    time.sleep(np.random.default_rng(len(algo)).uniform(0, 0.5))
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    before = record.read(out)
    assert before.summary is None
    config = Config.from_dict(before.config).replace(checkpoint_every=50)
    programs = Programs(from_config(config), devices.execution_of(config))
    resumed = runner.run(config, out, programs=programs, resume=True)
    whole = runner.run(config, tmp_path / "whole", programs=programs)
    run_files.assert_same(resumed, whole, programs)


def wait_for_lines(process, out, number):
    """Until so many lines of metrics are written."""
    path, end = out / "metrics.jsonl", time.monotonic() + 120
    while not path.exists() or path.read_text().count("\n") < number:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
