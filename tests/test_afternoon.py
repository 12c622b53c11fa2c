"""The researcher's afternoon: a page of the guides, run as it stands."""

import numpy as np
import pytest

import afga_jax
import run_files
import test_guides
from afga_jax.runs import record
from afga_jax.runs.commands import compare

# The last block is a plugin's, which is no part of the afternoon.
CODE = test_guides.blocks(test_guides.OWN_WORK, "python")[:-1]


def test_it_takes_under_40_lines():
    lines = [line for block in CODE for line in block.splitlines() if line.strip()]
    assert len(lines) < 40


@pytest.mark.slow
def test_the_afternoon(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in CODE:
        exec(compile(block, test_guides.OWN_WORK, "exec"), names)
    expected = test_guides.blocks(test_guides.OWN_WORK, "text")
    assert capsys.readouterr().out.split() == "".join(expected).split()
    assert (tmp_path / "runs" / "afga.png").stat().st_size > 10_000
    results, longer = names["results"], names["longer"]
    assert list(results) == ["fedavg", "scaffold", "fedamsgrad", "afga"]
    # It learns: a guess is right in a third of the cases.
    assert all(one.history.test_accuracy[-1] > 0.6 for one in results.values())
    assert "batch_stats" not in results["afga"].state.params
    assert len(results["afga"].state.stats) == 1
    # What went on is what was there, and then more.
    before = run_files.without_time(record.read(longer.folder).metrics)
    assert [row["round"] for row in before] == list(range(1, 9))
    np.testing.assert_array_equal(
        longer.history.test_loss[:6], results["afga"].history.test_loss
    )
    # What was saved in the middle is what was trained until then.
    trained, loaded = names["trained"], afga_jax.load(longer.folder, task=names["task"])
    images = names["images"][:5]
    np.testing.assert_array_equal(
        trained.predict(images), results["afga"].predict(images)
    )
    np.testing.assert_array_equal(loaded.predict(images), longer.predict(images))
    assert names["found"].best_folder.is_dir()
    table = compare.compare(["compare", *[f"runs/{name}" for name in results]])
    assert table == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in results)
