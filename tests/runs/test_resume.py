"""Stopped and resumed, a run ends as if it had never been stopped, bit for bit."""

import pytest

import afga_jax
import run_files
from afga_jax.runs import loop, record, runner
from afga_jax.runs.command import Interrupted
from afga_jax.runs.progress import Display
from cases import marked


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)


def stopped_and_resumed(config, out, programs, at=3):
    with pytest.raises(Interrupted):
        runner.run(config, out, programs=programs, display=run_files.Interrupting(at))
    return runner.run(config, out, programs=programs, resume=True)


# One of each kind of state.
QUICK = (
    *("cafga_adapted", "fedcluster", "scaffold", "fedadam"),
    *("diloco", "sgd", "damsgrad"),
)


@pytest.mark.parametrize("algo", marked(afga_jax.ALGORITHMS, QUICK))
def test_every_algorithm(algo, tmp_path):
    programs = run_files.programs(algo)
    config = programs.experiment.config
    whole = runner.run(config, tmp_path / "whole", programs=programs)
    parts = stopped_and_resumed(config, tmp_path / "parts", programs)
    assert [row["round"] for row in whole.metrics] == [2, 3, 4, 5, 6, 7]
    run_files.assert_same(whole, parts, programs)


def test_models_that_clients_keep(tmp_path):
    programs = run_files.programs("hafed_partial", broadcast="sampled")
    config = programs.experiment.config
    whole = runner.run(config, tmp_path / "whole", programs=programs)
    parts = stopped_and_resumed(config, tmp_path / "parts", programs)
    run_files.assert_same(whole, parts, programs)


def test_several_seeds_and_calls_of_any_length(tmp_path, monkeypatch):
    programs = run_files.programs("damsgrad", num_seeds=3, seed=5)
    config = programs.experiment.config
    whole = runner.run(config, tmp_path / "whole", programs=programs)
    assert [row["seed"] for row in whole.metrics[:4]] == [5, 6, 7, 5]
    assert len({row["train_loss"] for row in whole.metrics}) == len(whole.metrics)
    monkeypatch.setattr(loop, "SECONDS_PER_CALL", 0.0)  # a round in each call
    parts = stopped_and_resumed(config, tmp_path / "parts", programs)
    run_files.assert_same(whole, parts, programs)


@pytest.mark.parametrize("algo", marked(["cafga", "scaffold"], ["cafga"]))
def test_the_span_engine_in_a_new_process_that_saw_other_rounds(algo, tmp_path):
    programs = run_files.programs(algo, engine="span", rounds=19)
    config = programs.experiment.config
    whole = runner.run(config, tmp_path / "whole", programs=programs)
    assert programs.trainer.choice.engine == "span"
    display = run_files.Interrupting(17)
    with pytest.raises(Interrupted):
        runner.run(config, tmp_path / "parts", programs=programs, display=display)
    new = run_files.programs(algo, engine="span", rounds=19)
    parts = runner.run(config, tmp_path / "parts", programs=new, resume=True)
    run_files.assert_same(whole, parts, programs)


@pytest.mark.parametrize("consensus", marked([False, True], [True]))
def test_who_stops_a_run_does_not_wait_for_an_evaluation(consensus, tmp_path, capfd):
    programs = run_files.programs("afga", consensus=consensus, num_seeds=2)
    config = programs.experiment.config
    whole = runner.run(config, tmp_path / "whole", programs=programs)
    stop = run_files.Interrupting(5)
    with pytest.raises(Interrupted):
        runner.run(config, tmp_path / "parts", programs=programs, display=stop)
    said = capfd.readouterr().err
    assert said == "\nstopping after this round; again: at once\n"
    assert {row["round"] for row in record.read(tmp_path / "parts").metrics} == {
        2,
        3,
        4,
    }
    # Killed when the evaluation that was due is written, but no state knows of it.
    with pytest.raises(ZeroDivisionError):
        runner.run(
            config,
            tmp_path / "parts",
            programs=programs,
            display=Killed(quiet=True),
            resume=True,
        )
    assert record.read(tmp_path / "parts").metrics[-1]["round"] == 5
    parts = runner.run(config, tmp_path / "parts", programs=programs, resume=True)
    run_files.assert_same(whole, parts, programs)


class Killed(Display):
    def evaluated(self, rows):
        raise ZeroDivisionError


@pytest.mark.parametrize("engine", marked(["dense", "span"], ["span"]))
def test_the_same_clients_and_links_fail_after_a_stop(engine, tmp_path):
    faults = afga_jax.Faults(0.3, 0.3, 0.3, upload_loss=0.5)
    programs = run_files.programs("afga", {"faults": faults}, engine=engine)
    config = programs.experiment.config
    whole = runner.run(config, tmp_path / "whole", programs=programs)
    parts = stopped_and_resumed(config, tmp_path / "parts", programs)
    run_files.assert_same(whole, parts, programs)
    empty = whole.metrics[-1]["empty_rounds_total"]
    assert 0 < empty < 7
    assert sum(row["lost_uploads"] for row in whole.metrics) > 0
