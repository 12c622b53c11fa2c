"""Cells of a sweep on several devices: the numbers of one, and no copies left."""

import pytest

import devices
import side_by_side
from afga_jax.runs import together
from afga_jax.runs.config import Config


@pytest.mark.parametrize(
    ("mesh", "num_seeds", "at_most", "width"),
    [
        (None, 1, 1, 1),
        (None, 3, 8, 8),
        ("clients:2", 1, 1, 1),
        ("seeds:4", 1, 1, 4),
        ("seeds:4,clients:2", 6, 1, 2),
        ("seeds:3", 3, 1, 1),
        ("seeds:3", 1, 8, 6),
        ("seeds:16", 1, 8, 16),
    ],
)
def test_as_many_cells_as_fill_the_devices(mesh, num_seeds, at_most, width):
    config = Config(mesh=mesh, num_seeds=num_seeds)
    assert together.width(config, at_most) == width


@pytest.fixture(scope="module")
def results():
    return devices.printed("side_by_side", 4)


@pytest.mark.slow
def test_numbers_are_those_of_cells_one_by_one(results):
    for name in (*side_by_side.CASES, "interrupted"):
        # Seen are 0 to 3e-7; where devices share the clients, too, 4e-6.
        assert results[name]["apart"] < 1e-5, name
    assert results["one group"]["diverged"] == [None, 1, None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "calls"),
    [
        # Three cells and a copy, for three rounds; what diverged is repeated alone.
        ("one group", [[4, 1, 4]] * 4),
        # Three seeds each: two cells, the one of them that diverged, the third.
        ("several seeds", [[6, 3, 2]] * 3 + [[4, 2, 2]] * 4),
        ("clients, too", [[4, 2, 4]] * 3),
        # They might stop at different rounds.
        ("alone", [[2, 1, 2]] * 9),
    ],
)
def test_cells_lie_on_different_devices(results, name, calls):
    assert results[name]["calls"] == calls


@pytest.mark.slow
def test_an_interrupted_group_goes_on(results):
    assert results["interrupted"]["begun"] == [True, True, False]


@pytest.mark.slow
def test_a_run_in_no_sweep_is_not_filled_up(results):
    assert "does not divide the 1 seeds evenly" in results["in no sweep"]
