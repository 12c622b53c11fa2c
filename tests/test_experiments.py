"""The mains, through the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TINY = [
    "--rounds=2",
    "--eval_every=1",
    "--num_clients=6",
    "--participation=0.5",
    "--local_steps=2",
    "--batch_size=8",
    "--width=8",
    "--depth=1",
]

pytestmark = pytest.mark.slow


def cifar(tmp_path, *flags):
    """Runs the main without any data set and without a network."""
    environment = {**os.environ, "AFGA_OFFLINE": "1", "AFGA_CACHE_DIR": str(tmp_path)}
    environment["TFDS_DATA_DIR"] = str(tmp_path / "nothing")
    return subprocess.run(
        [sys.executable, "-m", "experiments.cifar", *TINY, *flags],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_without_data_the_digits_stand_in_and_it_is_said(tmp_path):
    done = cifar(tmp_path, "--algo=cafga", "--num_clusters=2")
    assert done.returncode == 0, done.stderr
    assert "USES THE BUILT-IN DIGITS INSTEAD" in done.stderr
    assert done.stdout.splitlines()[0].startswith("cafga on digits, 6 clients")
    assert "round    2" in done.stdout.splitlines()[-1]
    assert "accuracy" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--dataset=cifar10"], "cifar10 is neither prepared under"),
        (["--algo=agfa"], "did you mean 'afga'"),
        (["--local_steps=0"], "local_steps = 0"),
        (["train"], "'train' is not a flag"),
    ],
)
def test_a_users_mistake_is_one_line(tmp_path, flags, said):
    done = cifar(tmp_path, *flags)
    assert done.returncode != 0
    lines = [x for x in done.stderr.splitlines() if x.startswith("error:")]
    assert len(lines) == 1
    assert said in lines[0]
    assert "Traceback" not in done.stderr
