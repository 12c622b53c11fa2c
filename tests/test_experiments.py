"""The mains, through the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from afga_jax import record

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def start(main, tmp_path, *flags):
    """Runs a main without any data set and without a network."""
    environment = {**os.environ, "AFGA_OFFLINE": "1", "AFGA_CACHE_DIR": str(tmp_path)}
    environment["TFDS_DATA_DIR"] = str(tmp_path / "nothing")
    return subprocess.run(
        [sys.executable, "-m", f"experiments.{main}", *flags],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_without_data_the_digits_stand_in_and_it_is_said(tmp_path):
    out = tmp_path / "run"
    done = start("cifar", tmp_path, "--algo=cafga", "--scale=smoke", f"--out={out}")
    assert done.returncode == 0, done.stderr
    assert "USES THE BUILT-IN DIGITS INSTEAD" in done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("cafga on digits: 8 clients")
    assert last.startswith("final accuracy")
    run = record.read(out)
    assert run.facts["stand_in"]
    assert run.summary["finished"]
    assert len(run.metrics) == run.config["rounds"]
    assert (out / "curves.png").stat().st_size > 10_000
    assert json.loads((out / "config.json").read_text())["sources"]
