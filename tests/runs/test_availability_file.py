"""A file of who is there belongs to a run: with another one it does not go on."""

import re

import pytest

from afga_jax.runs import grid, runner
from afga_jax.runs.command import Interrupted
from afga_jax.runs.settings import resolve
from run_files import Interrupting


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "who.csv"
    path.write_text("1,1,0\n" + "1,0,1\n" * 9)
    given = {"dataset": "quadratic", "algo": "fedavg", "scale": "smoke"}
    given |= {"rounds": 4, "local_steps": 1, "num_clients": 10}
    return resolve({**given, "availability": str(path)}).config


def test_a_file_that_was_changed_is_refused_and_named(config, tmp_path):
    out, path = tmp_path / "run", tmp_path / "who.csv"
    with pytest.raises(Interrupted):
        runner.run(config, out, display=Interrupting(1))
    said = path.read_text()
    path.write_text(said.replace("1,1,0", "1,1,1"))
    with pytest.raises(ValueError, match=re.escape(str(path))) as refused:
        runner.run(config, out, resume=True)
    assert "began: restore it, or start a new run elsewhere" in str(refused.value)
    assert "\n" not in str(refused.value)
    path.write_text(said.replace(",", " , ") + "\n")  # says the same
    assert runner.run(config, out, resume=True).summary["finished"]


def test_a_finished_cell_of_a_sweep_does_not_stand_for_another_file(config, tmp_path):
    before = grid.fingerprint(config)
    assert grid.fingerprint(config) == before
    path = tmp_path / "who.csv"
    path.write_text(path.read_text().replace("1,1,0", "1,1,1"))
    assert grid.fingerprint(config) != before
