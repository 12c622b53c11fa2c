"""Trackers: what they are told, where a run goes on, and one that fails.

Weights & Biases and MLflow are played by small modules; where the packages are
installed they write their own files, too.
"""

import importlib.machinery
import importlib.util
import json
import logging
import sys
import types

import numpy as np
import pytest

import run_files
from afga_jax.runs import record, runner, trackers
from afga_jax.runs.record import Record

SETTINGS = {"algo": "afga", "seed": 3, "num_seeds": 2, "rounds": 20, "target": None}
ENDED = {"finished": True, "rounds": 20, "wall_seconds": 1.0}


def rows(*rounds):
    return [
        {"seed": seed, "round": round, "test_loss": seed + 1 / round, "spread": None}
        for round in rounds
        for seed in (3, 4)
    ]


class Elsewhere:
    """What a service keeps of one run."""

    def __init__(self, name, id):
        self.name, self.id, self.starting_step = name, id, 0
        self.settings, self.points, self.files, self.state = {}, [], [], "running"

    def take(self, round, values):
        assert set(values) - {"round"} == {"test_loss"}
        self.points.append((round, values["test_loss"]))


@pytest.fixture
def served():
    """The runs of a service, by their names there."""
    return {}


def stand_in_for_wandb(served):
    class Run(Elsewhere):
        def __init__(self, name, id):
            super().__init__(name, id)
            self.config = types.SimpleNamespace(update=self._update)

        def _update(self, values, allow_val_change):
            assert allow_val_change
            self.settings |= values

        def log(self, values, step=None):
            if step is None:
                self.files += values
            else:
                self.take(step, values)

        def log_artifact(self, path):
            self.files.append(path.rpartition("/")[2])

        def finish(self, exit_code):
            self.state = "ended" if exit_code == 0 else "stopped"
            self.starting_step = self.points[-1][0] + 1

    def init(*, id, name, resume, group, project, reinit, settings):
        assert (resume == "allow") == (id in served)
        assert (group, project, reinit) == ("run", "afga-jax", "create_new")
        assert settings["finish_timeout"] > 0
        return served.setdefault(id, Run(name, id))

    return {"wandb": {"init": init, "Settings": dict, "Image": str}}


def stand_in_for_mlflow(served):
    class MlflowClient:
        def __init__(self, uri):
            assert uri in ("mlruns", None)

        def get_experiment_by_name(self, name):
            assert name == "afga-jax"

        def create_experiment(self, name):
            return "7"

        def create_run(self, experiment, run_name):
            assert experiment == "7"
            served[f"id {len(served)}"] = Elsewhere(run_name, f"id {len(served)}")
            info = types.SimpleNamespace(run_id=f"id {len(served) - 1}")
            return types.SimpleNamespace(info=info)

        def update_run(self, id, status):
            served[id].state = status.lower()

        def get_run(self, id):
            run = served[id]
            last = {"round": run.points[-1][0]} if run.points else {}
            data = types.SimpleNamespace(params=dict(run.settings), metrics=last)
            return types.SimpleNamespace(data=data)

        def log_batch(self, id, metrics=(), params=()):
            assert not {name for name, _ in params} & set(served[id].settings)
            served[id].settings |= dict(params)
            if metrics:
                values = {name: value for name, value, _, _ in metrics}
                served[id].take(metrics[0][3], values)

        def set_tag(self, id, name, text):
            served[id].settings[name] = text

        def log_artifact(self, id, path):
            name = path.rpartition("/")[2]
            served[id].files.append(name.removesuffix(".png"))

        def set_terminated(self, id, status):
            served[id].state = {"FINISHED": "ended", "KILLED": "stopped"}[status]

    entities = {"Metric": lambda *parts: parts, "Param": lambda *parts: parts}
    own = {"MlflowClient": MlflowClient, "is_tracking_uri_set": lambda: False}
    return {"mlflow": own, "mlflow.entities": entities}


STAND_INS = {"wandb": stand_in_for_wandb, "mlflow": stand_in_for_mlflow}


@pytest.fixture(params=STAND_INS)
def tracker(request, served, monkeypatch):
    """Name of a tracker whose package is a stand-in."""
    for name, content in STAND_INS[request.param](served).items():
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    for name in trackers._MLFLOW:
        monkeypatch.setenv(name, "1")
    return request.param


def train(out, name, *rounds, known=0, settings=SETTINGS, ends=True):
    with Record(out, trackers.named(name, out)) as writer:
        writer.configure(settings)
        writer.resume(lambda row: row["round"] <= known)
        for round in rounds:
            writer.write(rows(round))
        (out / "curves.png").touch()
        writer.write_clients({"round": np.int32(1)})
        if ends:
            writer.summarise(ENDED)


def test_each_seed_is_a_run_that_goes_on(tracker, served, tmp_path, caplog):
    out = tmp_path / "run"
    train(out, tracker, 5, 10, ends=False)
    assert {run.state for run in served.values()} == {"stopped"}
    # Killed after round 10 was told, and before its state was saved.
    train(out, tracker, 10, 15, 20, known=5, settings={**SETTINGS, "rounds": 30})
    assert [run.name for run in served.values()] == ["run seed 3", "run seed 4"]
    for seed, run in zip((3, 4), served.values(), strict=True):
        assert run.points == [(n, seed + 1 / n) for n in (5, 10, 15, 20)]
        assert run.state == "ended"
        assert (run.settings["algo"], str(run.settings["rounds"])) == ("afga", "30")
        assert "target" not in run.settings
    first, second = served.values()
    assert first.files == ["curves", "clients.npz"]
    assert second.files == []
    known = json.loads((out / record.TRACKERS).read_text())
    assert list(known[tracker].values()) == [run.id for run in served.values()]
    assert not caplog.records


def test_who_was_away_is_told_what_it_missed(tracker, served, tmp_path, caplog):
    out = tmp_path / "run"
    train(out, "none", 5, 10)
    assert not served
    train(out, tracker, 15, known=10)
    assert [n for n, _ in next(iter(served.values())).points] == [5, 10, 15]
    assert not caplog.records


class Failing:
    """A tracker that answers twice, and then no more."""

    def __init__(self):
        self.told = []

    def begin(self, settings, rows):
        self.told.append("begin")

    def write(self, rows):
        self.told.append("write")
        if self.told.count("write") == 2:
            raise TimeoutError("nobody\nanswers")

    def attach(self, paths):
        self.told.append("attach")

    def close(self, finished):
        self.told.append("close")


def test_one_that_fails_is_said_once_and_left_alone(tmp_path, caplog):
    tracker = Failing()
    with Record(tmp_path, tracker) as writer:
        writer.configure(SETTINGS)
        writer.resume(lambda row: True)
        for round in (5, 10, 15):
            writer.write(rows(round))
    assert tracker.told == ["begin", "write", "write"]
    (note,) = [entry.getMessage() for entry in caplog.records]
    assert note.startswith("Failing is left alone, and the run goes on")
    assert "(TimeoutError: nobody answers)" in note
    assert len(record.read(tmp_path).metrics) == 6


def test_events_that_cannot_be_written_stop_nothing(tmp_path, caplog):
    (tmp_path / "tensorboard").touch()
    train(tmp_path, "tensorboard", 5, 10, ends=False)
    assert len(record.read(tmp_path).metrics) == 4
    assert len(caplog.records) == 1


def test_who_stops_at_once_waits_for_nobody(tmp_path):
    tracker = Failing()
    writer = Record(tmp_path, tracker)
    writer.resume(lambda row: True)
    writer.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert tracker.told == ["begin"]


def test_a_missing_package_is_said_before_anything_else(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    config, out = run_files.CONFIG.replace(tracker="wandb"), tmp_path / "run"
    with pytest.raises(ValueError, match="not installed: pip install wandb, or"):
        runner.run(config, out)
    assert not out.exists()


def test_wandb_writes_its_own_files_offline(tmp_path, monkeypatch, caplog):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    for known, round in ((0, 5), (5, 10)):
        train(tmp_path / "run", "wandb", round, known=known, ends=False)
    known = json.loads((tmp_path / "run" / record.TRACKERS).read_text())["wandb"]
    for name in known.values():
        assert (
            len(list((tmp_path / "wandb").glob(f"offline-run-*-{name}*/*.wandb"))) == 2
        )
    assert not caplog.records


def test_mlflow_writes_its_own_files(tmp_path, monkeypatch, caplog):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    train(tmp_path / "run", "mlflow", 5, 10, ends=False)
    train(tmp_path / "run", "mlflow", 10, 15, known=5)
    known = json.loads((tmp_path / "run" / record.TRACKERS).read_text())["mlflow"]
    client = mlflow.MlflowClient()
    for seed, name in known.items():
        history = client.get_metric_history(name, "test_loss")
        points = [(point.step, point.value) for point in history]
        assert points == [(n, int(seed) + 1 / n) for n in (5, 10, 15)]
        assert client.get_run(name).info.status == "FINISHED"
    files = [file.path for file in client.list_artifacts(known["3"])]
    assert files == ["clients.npz", "curves.png"]
    assert not [entry for entry in caplog.records if entry.levelno >= logging.WARNING]
