"""One run in one folder: what is written, refused, kept and continued."""

import fcntl
import io
import re
import shutil

import jax
import numpy as np
import pytest

import run_files
from afga_jax import attacks, data
from afga_jax.runs import folder, loop, progress, record, runner, settings
from afga_jax.runs.checkpoint import CheckpointError, Checkpoints
from afga_jax.runs.command import Interrupted
from afga_jax.runs.load import load
from afga_jax.runs.loop import Diverged

DIGITS = {"algo": "cafga", "scale": "smoke", "rounds": 8, "eval_every": 4}


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)


@pytest.fixture(scope="module")
def programs():
    return run_files.programs("afga")


@pytest.fixture(scope="module")
def config(programs):
    return programs.experiment.config


@pytest.fixture(scope="module")
def whole(programs, config, tmp_path_factory):
    """A run that nothing happened to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
        out = tmp_path_factory.mktemp("whole") / "run"
        return runner.run(config, out, programs=programs)


@pytest.fixture
def stopped(programs, config, tmp_path):
    """Stopped after round 5 of 7, with states of rounds 4 and 5."""
    with pytest.raises(Interrupted):
        runner.run(
            config.replace(checkpoint_every=2),
            tmp_path / "run",
            programs=programs,
            display=run_files.Interrupting(5),
        )
    return tmp_path / "run"


@pytest.fixture
def finished(whole, tmp_path):
    """A copy of the whole run that may be changed."""
    return shutil.copytree(whole.folder, tmp_path / "finished")


def test_clients_whose_uploads_are_no_numbers_are_named_and_counted(tmp_path):
    attack = attacks.nan(0.3)
    programs = run_files.programs("fedavg", {"attack": attack}, rounds=3, eval_every=1)
    error = io.StringIO()
    display = progress.Display(quiet=True, error=error)
    config, out = programs.experiment.config, tmp_path / "run"
    run = runner.run(config, out, programs=programs, display=display)
    liars = np.flatnonzero(attack.liars(jax.random.key(config.seed), 8))
    notes = re.findall(r"client ([\d, ]+) uploaded", error.getvalue())
    named = {int(client) for note in notes for client in note.split(", ")}
    assert run.summary["finished"]
    assert len(liars) == 2
    assert named <= set(liars.tolist())
    counts = [row["contained"] for row in run.metrics]
    uploads = programs.experiment.algorithm.plan
    for number, count in enumerate(counts):
        sent = np.ravel(uploads(jax.random.key(config.seed), number).cycles.upload)
        assert count == np.isin(sent, liars).sum()
    assert sum(counts) == run.metrics[-1]["contained_total"] > 0
    assert named


def test_the_record_of_a_run(whole, config):
    run = record.read(whole.folder)
    assert run.metrics == whole.metrics
    assert run.summary == whole.summary
    assert run.config == config.to_dict()
    last = run.metrics[-1]
    assert {"train_loss", "test_loss", "test_accuracy", "spread", "delta_norm"} < set(
        last
    )
    assert last["gradients_total"] == 7 * last["gradients"] == 7 * 2 * 4
    assert last["uploads_total"] == 7 * last["uploads"] == 7 * 4
    assert last["gossip_messages_total"] == 7 * 2 * 8 * 2
    assert last["hours"] == pytest.approx(7 * run.metrics[0]["hours"] / 2)
    final = np.mean([row["test_accuracy"] for row in run.metrics[-5:]])
    assert run.summary["final_accuracy"] == pytest.approx(final)
    assert run.summary["finished"]
    assert run.summary["wall_seconds"] > 0


def test_a_folder_with_a_run_is_never_overwritten(whole, config, programs):
    before = (whole.folder / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"holds a run already, evaluated to round 7"):
        runner.run(config, whole.folder, programs=programs)
    assert (whole.folder / "metrics.jsonl").read_bytes() == before


def test_a_finished_run_is_left_alone(whole, config):
    text = io.StringIO()
    again = runner.run(
        config, whole.folder, resume=True, display=progress.Display(out=text)
    )
    assert "is finished" in text.getvalue()
    assert again.summary == whole.summary


def test_other_settings_are_refused_and_named(whole, config, programs):
    other = config.replace(server_lr=0.5, eps=1e-4)
    with pytest.raises(ValueError, match=r"server_lr None → 0.5, eps 1e-08 → 0.0001"):
        runner.run(other, whole.folder, programs=programs, resume=True)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"out": "there", "checkpoint_every": 1, "resume": True}, []),
        ({"target": 0.9, "stop_at_target": True}, []),
        ({"rounds": 9}, []),
        ({"rounds": 5}, ["rounds"]),
        ({"rounds": 9, "lr_schedule": "cosine"}, ["lr_schedule", "rounds"]),
        ({"eval_every": 1, "seed": 2}, ["eval_every", "seed"]),
    ],
    ids=["neutral", "stopping", "more", "fewer", "scheduled", "other"],
)
def test_what_may_differ(config, changes, names):
    assert sorted(folder.refused(config, config.replace(**changes))) == names


def test_more_rounds_are_as_if_they_had_been_meant(finished, config, tmp_path):
    longer = run_files.programs("afga", rounds=12)
    config = longer.experiment.config
    grown = runner.run(config, finished, programs=longer, resume=True)
    meant = runner.run(config, tmp_path / "meant", programs=longer)
    assert [row["round"] for row in grown.metrics] == [2, 4, 6, 8, 9, 10, 11, 12]
    run_files.assert_same(grown, meant, longer)


def test_a_damaged_state_costs_only_rounds(stopped, whole, config, programs, caplog):
    states = stopped / "checkpoints"
    assert Checkpoints(states).steps() == [4, 5]
    cut = max((states / "round_5").rglob("*"), key=lambda x: x.stat().st_size)
    cut.write_bytes(cut.read_bytes()[:-10])
    resumed = runner.run(config, stopped, programs=programs, resume=True)
    assert "going on from round 4" in caplog.text
    run_files.assert_same(resumed, whole, programs)


def test_without_a_whole_state_the_run_is_left_as_it_is(stopped, config, programs):
    for path in (stopped / "checkpoints").rglob("manifest.ocdbt"):
        path.unlink()
    before = (stopped / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match="can be read"):
        runner.run(config, stopped, programs=programs, resume=True)
    assert (stopped / "metrics.jsonl").read_bytes() == before


def test_two_programs_in_one_folder(stopped, config, programs):
    with (stopped / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another program is running"):
            runner.run(config, stopped, programs=programs, resume=True)


def test_a_target_stops_the_run(tmp_path, whole, programs, config):
    target = whole.metrics[2]["test_accuracy"]
    first = next(x for x in whole.metrics if x["test_accuracy"] >= target)["round"]
    config = config.replace(target=target, stop_at_target=True)
    run = runner.run(config, tmp_path / "run", programs=programs)
    assert run.summary["stopped"] == "target"
    assert run.summary["rounds"] == run.summary["first_round_at_target"] == first < 7
    assert record.read(run.folder).metrics[-1]["round"] == first


def test_divergence_stops_and_keeps_the_last_good_state(tmp_path, config, programs):
    config = config.replace(local_lr=1e30, server_lr=1e30)
    with pytest.raises(
        Diverged, match=r"in round (\d+) of seed 0: lower local_lr"
    ) as e:
        runner.run(config, tmp_path / "run", programs=programs)
    assert f"The state of round {e.value.round - 1} is kept" in str(e.value)
    done, saved = Checkpoints(tmp_path / "run" / "checkpoints").restore()
    assert done == e.value.round - 1
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(saved["state"]["params"]))
    summary = record.read(tmp_path / "run").summary
    assert summary["diverged_at"] == e.value.round
    assert not summary["finished"]


def test_what_fails_before_the_first_round_leaves_nothing(tmp_path, config, programs):
    config = config.replace(init_from=str(tmp_path / "nowhere"))
    programs = run_files.programs("fedavg", init_from=config.init_from)
    with pytest.raises(ValueError, match="holds no run"):
        runner.run(programs.experiment.config, tmp_path / "run", programs=programs)
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A short run on the digits with two seeds and all that is measured on request."""
    asked = {"num_seeds": 2, "seed": 3, "per_client": True, "consensus": True}
    config = settings.resolve({**DIGITS, **asked}, dataset="digits").config
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
        return runner.run(config, tmp_path_factory.mktemp("digits") / "run")


def test_seeds_are_reported_together(digits):
    summary = digits.summary
    each = [one["final_accuracy"] for one in summary["seeds"]]
    assert [one["seed"] for one in summary["seeds"]] == [3, 4]
    assert summary["final_accuracy"] == pytest.approx(np.mean(each))
    assert summary["final_accuracy_std"] == pytest.approx(np.std(each, ddof=1))


def test_what_is_measured_on_request(digits):
    for row in digits.metrics:
        assert row["consensus"] > 0
        assert 0 <= row["worst_tenth_accuracy"] <= row["client_accuracy"] <= 1
        assert row["client_accuracy_q0"] <= row["client_accuracy_q100"] <= 1
        assert row["client_loss"] <= row["worst_tenth_loss"] <= row["client_loss_q100"]


def test_every_client_is_in_a_file(digits):
    last = digits.metrics[-1]["round"]
    with np.load(digits.folder / "clients.npz") as clients:
        assert clients["round"] == last
        for row, seed in enumerate(clients["seeds"]):
            (metrics,) = [
                one
                for one in digits.metrics
                if (one["seed"], one["round"]) == (seed, last)
            ]
            for name in ("accuracy", "loss"):
                values = clients[name][row]
                assert values.shape == clients["sizes"].shape
                assert np.median(values) == pytest.approx(metrics[f"client_{name}_q50"])


def test_a_trained_model_predicts(digits):
    batch = data.held_out(data.digits())
    for seed in (3, 4):
        trained = load(digits.folder, seed=seed)
        right = trained.predict(batch.inputs).argmax(-1) == batch.targets
        (row,) = [
            row for row in digits.metrics if (row["seed"], row["round"]) == (seed, 8)
        ]
        # 200 of the samples were tested, all are here.
        assert right.mean() == pytest.approx(row["test_accuracy"], abs=0.1)
    assert trained.round == 8
    with pytest.raises(ValueError, match=r"seed = 0.*the seeds 3 ... 4"):
        load(digits.folder, seed=0)


def test_a_run_starts_from_a_trained_model(digits, tmp_path):
    given = {**DIGITS, "init_from": str(digits.folder), "local_lr": 0.0}
    config = settings.resolve(given, dataset="digits").config
    started = runner.run(config, tmp_path / "run")
    # Clients that do not move upload nothing, so the model is still the trained one.
    last = [row for row in digits.metrics if row["seed"] == 3][-1]
    assert started.metrics[-1]["test_loss"] == pytest.approx(last["test_loss"])


def test_hours_follow_the_links():
    plain, slow = run_files.programs(), run_files.programs(server_seconds=36.0)
    assert slow.costs.links.server_seconds == 2 * plain.costs.links.server_seconds == 36
    assert slow.costs.links.client_seconds == 1.8


def test_programs_serve_other_numbers(tmp_path, whole, config, programs):
    """A sweep's cell: the same executable, other rates."""
    before = programs.trainer._run._cache_size()
    other = config.replace(local_lr=0.01)
    assert programs.accept(other)
    run = runner.run(other, tmp_path / "run", programs=programs)
    assert programs.trainer._run._cache_size() == before
    assert run.metrics[-1]["train_loss"] != whole.metrics[-1]["train_loss"]
    with pytest.raises(ValueError, match="more than numbers"):
        runner.run(config.replace(num_clients=9), tmp_path / "b", programs=programs)


def test_evaluated_rounds(config):
    config = config.replace(rounds=23, eval_every=10)
    found = [r for r in range(1, 24) if loop.evaluates(config, r)]
    assert found == [10, 19, 20, 21, 22, 23]


def test_names_of_folders(config, tmp_path):
    config = config.replace(dataset="digits")
    first = folder.unused(config, tmp_path)
    assert first.name == "digits_afga"
    assert folder.newest(config, tmp_path) is None
    with record.Record(first) as writer:
        writer.configure({})
    with record.Record(tmp_path / "digits_afga_adapted") as writer:
        writer.configure({})
    assert folder.unused(config, tmp_path).name == "digits_afga_2"
    assert folder.newest(config, tmp_path) == first
