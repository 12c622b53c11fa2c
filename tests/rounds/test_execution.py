"""How rounds are computed: one value, checked and hashable."""

import jax
import pytest

from afga_jax import Execution
from afga_jax.runs import devices
from afga_jax.runs.config import Config
from afga_jax.runs.record import Run


def test_equal_values_are_one_static_argument():
    mesh = jax.make_mesh((1,), ("clients",))
    assert Execution("span", mesh=mesh) == Execution("span", mesh=mesh)
    assert hash(Execution(chunk=2)) == hash(Execution(chunk=2))
    assert Execution(chunk=2) != Execution()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"engine": "spam"}, r"engine = 'spam' is not known; did you mean 'span'"),
        ({"chunk": 0}, r"chunk = 0.*>= 1"),
        ({"slot_width": 1.5}, r"slot_width = 1.5.*whole number"),
        ({"mesh": "clients:2"}, r"mesh = 'clients:2'.*Mesh or None.*make_mesh"),
    ],
)
def test_what_is_wrong_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        Execution(**wrong)


def test_settings_of_a_run_and_the_engine_that_it_began_with():
    config = Config(client_chunk=3, wave_width=4)
    assert devices.execution_of(config) == Execution("auto", 3, 4)
    for recorded, expected in (
        ({"engine": "dense"}, Execution("dense", 3, 4)),
        ({"engine": "span", "wave_width": 2}, Execution("span", 3, 2)),
    ):
        before = Run({}, [], None, {"engine": recorded}, None)
        assert devices.execution_of(config, before) == expected
