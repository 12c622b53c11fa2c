"""Runs of one's own parts: the commands' numbers, folders, resuming and refusals."""

import csv
import json
import signal

import chex
import jax
import numpy as np
import optax
import pytest

import afga_jax
import run_files
import toy
from afga_jax.runs import loop, own, record, runner
from afga_jax.runs.commands import compare
from afga_jax.runs.config import Config
from afga_jax.runs.experiment import from_config
from afga_jax.runs.experiment.parts import config_of
from afga_jax.runs.settings import resolve
from afga_jax.runs.trackers import TensorBoard

TASK, CLIENTS = toy.logistic(norm=True), toy.clients(8)
TASK = TASK._replace(
    predict=lambda params, stats, x: x @ params["w"] + params["b"][None]
)
TEST = toy.clients(8, samples=20).pooled().full(0)._replace(mask=None)
ROUNDS = 7


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)


def build(task=TASK, **options):
    options = {"active": 4, "local_steps": 2, "eps": 1e-6, **options}
    return afga_jax.build("afga", task, data=CLIENTS, **options)


def train(out, algorithm=None, *, clients=CLIENTS, test=TEST, **more):
    asked = {"rounds": ROUNDS, "seeds": 2, "eval_every": 2, "progress": False, **more}
    return afga_jax.run(algorithm or build(), clients, test, out=out, **asked)


class Mine(TensorBoard):
    """A tracker of one's own, which keeps what it is told."""

    def begin(self, settings, rows):
        self.settings, self.rows = settings, []
        super().begin(settings, rows)

    def write(self, rows):
        super().write(rows)
        self.rows += rows

    def attach(self, paths):
        self.files = [path.name for path in paths]

    def close(self, finished):
        super().close(finished)
        self.finished = finished


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    return Mine(tmp_path_factory.mktemp("own") / "whole")


@pytest.fixture(scope="module")
def whole(mine):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
        return train(mine.folder, per_client=True, tracker=mine)


def test_a_tracker_is_told_what_the_folder_says(whole, mine):
    run = record.read(whole.folder)
    assert mine.settings == run.config
    assert mine.rows == run.metrics
    assert (mine.files, mine.finished) == (["clients.npz"], True)
    assert run.config["tracker"] == "none"


def test_the_folder_is_as_the_commands(whole):
    files = {path.name for path in whole.folder.iterdir()}
    assert files >= {"config.json", "metrics.jsonl", "summary.json", "clients.npz"}
    assert files >= {"tensorboard", "checkpoints"}
    run = record.read(whole.folder)
    assert run.summary == whole.summary
    assert (run.config["algo"], run.config["dataset"]) == ("afga", "own")
    assert run.config["local_steps"] == 2
    assert run.config["parts"]["clustering"].startswith("1 clusters")
    assert run.config["parts"]["model"].startswith("8 parameters")
    # What a record says is plain, and read again as it was.
    again = Config.from_dict(json.loads(json.dumps(run.config)))
    assert again.to_dict() == run.config


def test_the_result_is_as_that_of_fit(whole):
    assert whole.seeds == (0, 1)
    assert whole.history.round.tolist() == [2, 3, 4, 5, 6, 7]
    assert whole.history.test_accuracy.shape == (6, 2)
    assert whole.state.params["w"].shape == (2, 3, 2)
    last = record.read(whole.folder).metrics[-1]
    assert last["gradients_total"] == whole.history.gradients[:, 1].sum()
    assert last["bytes_total"] == whole.history.bytes[:, 1].sum()
    accuracy = whole.evaluate()["accuracy"]
    np.testing.assert_allclose(whole.history.test_accuracy[-1], accuracy, rtol=1e-6)
    assert whole.predict(TEST.inputs[:5]).shape == (2, 5, 2)
    each = whole.evaluate_clients()
    chex.assert_trees_all_close(whole.clients.values, each.values, rtol=1e-6)
    mean = each.values["loss"].mean(-1)
    np.testing.assert_allclose(whole.history.clients["client_loss"][-1], mean, 1e-6)
    assert "7 rounds, 2 seeds" in repr(whole)


@pytest.mark.slow
def test_one_seed_is_the_numbers_of_fit(tmp_path):
    mine = train(tmp_path / "run", seeds=[3], rounds=2)
    other = afga_jax.fit(build(), CLIENTS, key=jax.random.key(3), rounds=2)
    assert mine.state.params["w"].shape == (3, 2)
    chex.assert_trees_all_close(mine.state.params, other.state.params, rtol=1e-6)


class Interrupting(own.Display):
    """Presses Ctrl-C after the first round."""

    def first(self, done, seconds, compiling):
        del done, seconds, compiling
        signal.raise_signal(signal.SIGINT)


def test_stopped_and_resumed_is_the_same_bit_for_bit(whole, tmp_path, monkeypatch):
    out = tmp_path / "parts"
    with monkeypatch.context() as patch:
        patch.setattr(own, "Display", Interrupting)
        with pytest.raises(KeyboardInterrupt, match=r"state is saved.*resume=True"):
            train(out, per_client=True)
    assert record.read(out).summary is None
    # It keeps its own pace of evaluations where none is asked for.
    monkeypatch.setattr(loop, "SECONDS_PER_CALL", 0.0)
    resumed = train(out, per_client=True, resume=True, eval_every=None)
    first, second = record.read(whole.folder), record.read(out)
    assert run_files.without_time(first.metrics) == run_files.without_time(
        second.metrics
    )
    chex.assert_trees_all_equal(resumed.state, whole.state)
    # A finished run is only read.
    chex.assert_trees_all_equal(
        train(out, per_client=True, resume=True).state, whole.state
    )


def doubled(*arguments):
    loss, rest = TASK.loss(*arguments)
    return 2 * loss, rest


OTHERS = {
    "data": ({"clients": toy.clients(8, seed=1)}, "data 'checksum .* → 'checksum"),
    "test": ({"test": TEST._replace(inputs=TEST.inputs + 1)}, "settings: data 'check"),
    "option": ({"algorithm": build(local_steps=3)}, "settings: local_steps 2 → 3"),
    "number": ({"algorithm": build(eps=1e-5)}, "settings: eps 1e-06 → 1e-05"),
    "optimizer": (
        {"algorithm": build(server_optimizer=optax.adam(1e-2))},
        "server_optimizer None → 'GradientTransformation",
    ),
    "model": (
        {"algorithm": build(toy.logistic()._replace(predict=TASK.predict))},
        "model '8 parameters, .* → '8 parameters",
    ),
    "function": (
        {"algorithm": build(TASK._replace(loss=doubled))},
        "same options and shapes, but its rounds compute something else",
    ),
    "seeds": ({"seeds": 3}, "num_seeds 2 → 3"),
    "name": ({"name": "mine"}, "algo 'afga' → 'mine'"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_run_does_not_go_on(other, whole):
    changes, message = OTHERS[other]
    before = record.read(whole.folder)
    with pytest.raises(ValueError, match=message):
        train(whole.folder, per_client=True, resume=True, tracker="none", **changes)
    assert record.read(whole.folder) == before


def test_what_cannot_be_compared_is_said(whole, tmp_path, monkeypatch, capsys):
    # The same run, as if begun by another version.
    parts = "afga_jax.runs.experiment.parts.traced_by"
    monkeypatch.setattr(parts, lambda: "jax 0.1, 1 x abacus")
    train(tmp_path / "run", rounds=1)
    monkeypatch.undo()
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
    train(tmp_path / "run", rounds=1, resume=True)
    assert "begun with jax 0.1, 1 x abacus" in capsys.readouterr().err


BAD = [
    ({"seeds": [1, 3]}, r"seeds = \[1, 3\], but they must follow each other"),
    ({"seeds": 0}, "seeds = 0, but it must be >= 1"),
    ({"rounds": 0}, "rounds = 0, but it must be >= 1"),
    ({"clients": toy.clients(5)}, "data has 5 clients"),
    ({"test": None}, "an evaluation needs samples"),
    ({"algorithm": "afga"}, "algorithm is a str.*afga_jax.build"),
    ({"stop_at_target": True}, "needs a target"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=range(len(BAD)))
def test_mistakes_are_said_before_anything_is_written(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_a_folder_is_not_overwritten_and_not_a_commands(whole, tmp_path):
    with pytest.raises(ValueError, match="holds a run already, evaluated to round 7"):
        train(whole.folder)
    with pytest.raises(ValueError, match=r"afga_jax.run\(..., resume=True\)"):
        runner.run(Config.from_dict(record.read(whole.folder).config), tmp_path / "x")
    with record.Record(tmp_path / "theirs") as writer:
        writer.configure(run_files.CONFIG.to_dict())
    with pytest.raises(ValueError, match="holds a run of a command"):
        train(tmp_path / "theirs", resume=True)


def test_load_needs_the_task(whole):
    with pytest.raises(ValueError, match=r"model of your own.*task="):
        afga_jax.load(whole.folder)
    with pytest.raises(ValueError, match=r"not of this task.*the run's own"):
        afga_jax.load(whole.folder, task=toy.logistic(features=4, norm=True))
    trained = afga_jax.load(whole.folder, seed=1, task=TASK)
    assert trained.round == ROUNDS
    chex.assert_trees_all_equal(
        trained.params, jax.tree.map(lambda x: x[1], whole.state.params)
    )
    np.testing.assert_array_equal(
        trained.predict(TEST.inputs[:5]), whole.predict(TEST.inputs[:5])[1]
    )


@pytest.mark.slow
def test_a_commands_problem_has_a_commands_numbers(tmp_path):
    asked = {"algo": "cafga", "scale": "smoke", "hidden": (4,), "num_seeds": 2}
    config = resolve({**asked, "rounds": 2, "local_steps": 2}, dataset="digits").config
    theirs = runner.run(config, tmp_path / "theirs")
    parts = from_config(config)
    mine = train(
        tmp_path / "mine",
        parts.algorithm,
        clients=parts.clients,
        test=parts.test,
        rounds=2,
        eval_every=1,
        dataset="digits",
    )
    metrics = record.read(mine.folder).metrics
    assert run_files.without_time(metrics) == run_files.without_time(theirs.metrics)
    # Both describe the same, so that tables may stand side by side.
    ours, others = record.read(mine.folder).config, theirs.config
    for name in ("algo", "num_clients", "num_clusters", "local_lr", "server_lr", "eps"):
        assert ours[name] == others[name], name
    folders = [str(mine.folder), str(theirs.folder)]
    assert compare.compare(["compare", *folders, f"--out={tmp_path / 'table'}"]) == 0
    assert (tmp_path / "table" / "table.md").read_text().count("cafga") == 2


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    out = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
        return sweep(out), out


def sweep(out, rates=(0.1, 0.5, 3e38), **more):
    def make(rate, weighting):
        return afga_jax.build(
            "fedavg", TASK, data=CLIENTS, active=4, local_lr=rate, weighting=weighting
        )

    grid = {"rate": list(rates), "weighting": ["uniform"], **more}
    return afga_jax.sweep(make, grid, CLIENTS, TEST, out=out, rounds=2, progress=False)


def test_a_sweep_has_a_table_and_a_best(swept):
    result, out = swept
    assert [cell["rate"] for cell in result.cells] == [0.1, 0.5, 3e38]
    lines = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    assert [line["rate"] for line in lines] == ["0.1", "0.5", "3e+38"]
    accuracies = [float(line["accuracy"] or "nan") for line in lines]
    best = int(np.nanargmax(accuracies))
    assert result.best == {"rate": [0.1, 0.5][best], "weighting": "uniform"}
    assert str(result.best_folder) == lines[best]["folder"]
    assert result.runs[2].summary["diverged_at"] is not None
    assert sorted(result.order) == [0, 1]
    assert repr(result).startswith("best first:\n  rate=")


def test_a_cell_is_the_run_alone(swept, tmp_path):
    result, _ = swept
    rate = result.cells[1]["rate"]
    algorithm = afga_jax.build(
        "fedavg", TASK, data=CLIENTS, active=4, local_lr=rate, weighting="uniform"
    )
    alone = afga_jax.run(
        algorithm, CLIENTS, TEST, out=tmp_path / "alone", rounds=2, progress=False
    )
    metrics = record.read(alone.folder).metrics
    assert run_files.without_time(metrics) == run_files.without_time(
        result.runs[1].metrics
    )


def test_numbers_share_a_program_and_functions_do_not(swept, monkeypatch):
    result, out = swept
    made = []

    class Counted(own.sweeps.Programs):
        def __init__(self, experiment, execution):
            made.append(experiment.config)
            super().__init__(experiment, execution)

    monkeypatch.setattr(own.sweeps, "Programs", Counted)
    sweep(out)
    assert made == []  # all are finished
    more = sweep(out, rates=(0.1, 0.2, 0.3))
    assert len(made) == 1
    assert more.runs[0].metrics == result.runs[0].metrics
    configs = [
        config_of(build(server_optimizer=optax.sgd(rate)), CLIENTS, TEST, 0)
        for rate in (0.1, 0.2)
    ]
    traces = {config.parts["traced_round"] for config in configs}
    assert len(traces) == 2


def test_a_wrong_cell_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"local_lr = -1.*\(at \{'rate': -1"):
        sweep(tmp_path, rates=[0.1, -1])
    with pytest.raises(ValueError, match=r"grid\['rate'\] = 'abc', but it must be"):
        afga_jax.sweep(build, {"rate": "abc"}, CLIENTS, TEST, out=tmp_path, rounds=1)
    assert not list(tmp_path.iterdir())
