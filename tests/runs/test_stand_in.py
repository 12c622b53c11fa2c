"""Digits in place of a data set that is not there: where it is seen, or asked for."""

import sys

import pytest

from afga_jax import data
from afga_jax.runs import folder, record, runner, stand_in
from afga_jax.runs.commands import compare, sweep
from afga_jax.runs.config import Config
from afga_jax.runs.experiment import from_config
from afga_jax.runs.report import STAND_IN
from afga_jax.runs.settings import resolve


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """No data set, no network, and a folder of its own."""
    monkeypatch.setenv("AFGA_OFFLINE", "1")
    monkeypatch.setenv("AFGA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)


def plan(**given):
    return resolve({"algo": "cafga", "scale": "smoke", **given})


def test_where_it_is_seen_digits_stand_in_and_it_is_said(terminal):
    (settled,), name = stand_in.settle([plan(local_lr=0.5)], asked=False)
    assert name == "digits_for_cifar10"
    config = settled.config
    assert (config.dataset, config.local_lr, config.stand_in) == ("digits", 0.5, True)
    assert settled.notes[0].startswith("cifar10 cannot be had, so THIS RUN USES THE")
    # The record of the run leads to the same run.
    again = from_config(Config.from_dict(config.to_dict()))
    assert again.config == config
    assert again.facts["stand_in"] is True


def test_where_nobody_sees_it_it_must_be_asked_for():
    with pytest.raises(data.DataError, match=r"cifar10 is neither .*--stand_in tries"):
        stand_in.settle([plan()], asked=False)
    (settled,), _ = stand_in.settle([plan()], asked=True)
    assert settled.config.dataset == "digits"


def test_data_that_was_named_is_not_replaced(terminal):
    asked = [plan(dataset="cifar10")]
    assert stand_in.settle(asked, asked=False) == (asked, "cifar10")
    (settled,), name = stand_in.settle(
        [plan(dataset="digits", stand_in=True)], asked=True
    )
    assert (name, settled.config.stand_in) == ("digits", False)


def test_data_that_is_there_or_arrives_is_taken(terminal, monkeypatch):
    monkeypatch.setattr(data, "load", lambda name, access: None)
    assert stand_in.settle([plan()], asked=False) == ([plan()], "cifar10")


def small(*flags):
    tiny = ["--scale=smoke", "--rounds=1", "--hidden=4", "--model=mlp"]
    return [*tiny, "--nocompile_cache", *flags]


def test_the_folder_and_the_last_line_say_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
    with pytest.raises(SystemExit) as end:
        runner.main("cifar10", arguments=["main", *small("--algo=fedavg")])
    assert end.value.code == 1
    assert "--stand_in tries the command" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    with pytest.raises(SystemExit) as end:
        runner.main(
            "cifar10", arguments=["main", *small("--algo=fedavg", "--stand_in")]
        )
    assert end.value.code == 0
    out = tmp_path / "runs" / "digits_for_cifar10_fedavg"
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].endswith(f"{STAND_IN}")
    assert "USES THE BUILT-IN DIGITS INSTEAD" in said.err
    assert record.read(out).facts["stand_in"]
    asked = resolve({"algo": "fedavg"}).config
    assert folder.newest(asked, tmp_path / "runs") == out
    assert folder.newest(asked.replace(algo="afga"), tmp_path / "runs") is None


@pytest.mark.parametrize("name", ["compare", "sweep"])
def test_several_runs_say_so_in_their_folder(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
    asked = {"compare": "--algos=fedavg,fedprox", "sweep": "--algo=fedavg"}[name]
    call = {"compare": compare.compare, "sweep": sweep.sweep}[name]
    with pytest.raises(data.DataError, match="--stand_in"):
        call([name, asked, *small()])
    assert call([name, asked, *small("--stand_in")]) == 0
    said = capsys.readouterr()
    assert f"runs/{name}_digits_for_cifar10/" in said.out
    assert said.err.count("USES THE BUILT-IN DIGITS INSTEAD") == 1
    assert "stand in for a data set that was not there" in said.err
    runs = (tmp_path / "runs" / f"{name}_digits_for_cifar10").glob("*/config.json")
    assert all(record.read(path.parent).facts["stand_in"] for path in runs)
