"""Every benchmark that the pages print runs from end to end, at its smallest.

What they measure here means nothing. Peers' environments take gigabytes, so peers are
missing, as on a machine that cannot install them.
"""

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEEDS_DATA = {
    "all": "fashion_mnist",
    "auto": "fashion_mnist",
    "peaks": "fashion_mnist",
    "fetch": "cifar10",
}
# Flags that make it small; what is set up before JAX starts has a process of its own.
HERE = {
    "conditions": "--num_clients=20 --active=2 --repeats=1 --engines=dense",
    "data": "--repeats=1",
    "memory": "--num_clients=4 --active=1 --local_steps=1 --depth=1",
    "own_models": "--repeats=1 --active=1 --local_steps=1",
    "pages": "--num_clients=20",
    "rounds": "--num_clients=20 --repeats=1",
}
ELSEWHERE = {
    "auto": "--only 'mlp-100, N=100, FedAMSGrad' --least=0.01 --most=0.1 --results=OUT",
    "fetch": "--repeats=1",
    "folder": "--scale=smoke --rows=3",
    "peaks": "--only 'span AFGA'",
    "scaling": "--devices=1,2 --num_clients=16 --active=8",
    "startup": "--dataset=digits --repeats=1",
}
ALONE = {"accelerators", "all", "environments", "models"}


def test_every_printed_benchmark_is_run():
    text = "".join(page.read_text() for page in PAGES)
    printed = set(re.findall(r"python -m benchmarks\.(\w+)", text))
    assert printed == {*HERE, *ELSEWHERE, *ALONE}


@pytest.fixture
def ask(monkeypatch, capsys):
    """Calls a benchmark with a command line; what it prints."""

    def call(name, words):
        monkeypatch.setattr(sys, "argv", [name, *shlex.split(words)])
        with jax.numpy_rank_promotion("allow"):  # as where people run it
            importlib.import_module(f"benchmarks.{name}").main()
        return capsys.readouterr().out

    return call


@pytest.fixture
def no_peers(monkeypatch):
    from benchmarks import environments

    reason = "not installed"
    monkeypatch.setattr(environments, "interpreter", lambda name: (None, reason))
    return reason


def real_data(name):
    """Skips where the data set that a benchmark works on is not at hand."""
    folder, dataset = os.environ.get("TFDS_DATA_DIR"), NEEDS_DATA.get(name)
    if dataset and not (folder and Path(folder, dataset).is_dir()):
        pytest.skip(f"needs {dataset} in TFDS_DATA_DIR")


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_runs(name, ask):
    assert re.search(r"\d", ask(name, HERE[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ELSEWHERE)
def test_runs_in_its_process(name, tmp_path):
    real_data(name)
    words = shlex.split(ELSEWHERE[name].replace("OUT", str(tmp_path)))
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d", done.stdout)


@pytest.mark.slow
def test_all_runs_without_peers(ask, tmp_path, no_peers):
    real_data("all")
    printed = ask("all", f"--quick --only fedavg --results={tmp_path}")
    assert "Traceback" not in printed
    page = (tmp_path / "all.md").read_text()
    assert no_peers in page
    assert "afga_jax, one device" in page


def test_accelerators_up_to_their_environment(ask, no_peers):
    assert "afga-convmixer-dense" in ask("accelerators", "--target=a6000 --list")
    with pytest.raises(SystemExit, match=no_peers):
        ask("accelerators", "--target=a6000")


@pytest.mark.slow
def test_models_run_without_pytorch(ask, tmp_path, no_peers, monkeypatch):
    from benchmarks import models

    monkeypatch.setattr(models, "SIDE", 64)
    ask("models", f"--models cnn --repeats=1 --results={tmp_path}")
    page = (tmp_path / "models.md").read_text()
    assert f"PyTorch is missing: {no_peers}" in page
    assert "| cnn | 0." in page


@pytest.mark.slow
def test_step_runs_without_pytorch(no_peers, monkeypatch):
    from benchmarks import models, step

    monkeypatch.setattr(models, "SIDE", 64)
    monkeypatch.setattr(step, "MODEL", "cnn")
    figures = step.measure(repeats=1)
    assert figures["missing"] == {"PyTorch": no_peers}
    assert ["share of" in target["what"] for target in figures["targets"]] == [True]


@pytest.mark.slow
def test_environment_is_made(ask, tmp_path, monkeypatch):
    from benchmarks import environments

    monkeypatch.setattr(environments, "HERE", tmp_path)
    monkeypatch.setattr(environments, "PACKAGES", {"empty": ("pip",)})
    monkeypatch.setattr(environments, "IMPORTS", {"empty": "import pip"})
    made = ask("environments", "empty").splitlines()[-1]
    assert made == f"empty: {tmp_path / '.venv-empty' / 'bin' / 'python'}"
    assert Path(made.removeprefix("empty: ")).exists()
