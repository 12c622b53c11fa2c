"""What is measured on request, against what the round itself says."""

import jax
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax.training import inspect

KEY = jax.random.key(3)
DATA = toy.clients(6, sizes=[3, 4, 5, 6, 7, 8])


def inspected(name, **options):
    """The measurements, the round's own diagnostics, and the state after it."""
    task = toy.logistic()
    algorithm = afga_jax.build(name, task, num_clients=6, local_steps=2, **options)
    step = jax.jit(algorithm.round)
    state, _ = step(KEY, algorithm.init(KEY), DATA)
    found = jax.jit(
        lambda state: inspect.inspect_round(
            algorithm, KEY, state, DATA, local_global=True
        )
    )(state)
    after, info = step(KEY, state, DATA)
    return found, info, after, task


def losses(task, params):
    every = [toy_client(i) for i in range(6)]
    return np.array([task.loss(params, (), x, KEY, False)[0] for x in every])


def toy_client(number):
    size = int(DATA.sizes[number])
    return afga_jax.Batch(DATA.inputs[number, :size], DATA.targets[number, :size])


def test_where_all_upload_the_consensus_is_their_spread(x64):
    found, info, _, _ = inspected("hafed", num_clusters=2)
    np.testing.assert_allclose(found["consensus"], info.spread, rtol=1e-5)
    assert info.spread > 0


def test_without_a_server_the_state_has_all_models(x64):
    found, info, after, task = inspected("dsgd")
    np.testing.assert_allclose(found["consensus"], info.spread, rtol=1e-6)
    models, _ = after.clients
    own = [
        losses(task, jax.tree.map(lambda x, i=i: x[i], models.params))[i]
        for i in range(6)
    ]
    np.testing.assert_allclose(found["f_local"], np.mean(own), rtol=1e-5)


def test_who_takes_no_part_has_the_model_of_the_start(x64):
    found, info, _, _ = inspected("fedavg", active=2)
    share, squared = 2 / 6, info.delta_norm**2
    expected = share * (info.spread + squared) - share**2 * squared
    np.testing.assert_allclose(found["consensus"], expected, rtol=1e-5)


def test_the_mean_model_is_judged_on_all_samples(x64):
    """With everybody's upload and η = 1, it is the server's next model."""
    options = {"active": 6, "server_lr": 1.0, "weighting": "uniform"}
    found, _, after, task = inspected("fedavg", **options)
    expected = np.average(losses(task, after.params), weights=DATA.sizes)
    np.testing.assert_allclose(found["f_global"], expected, rtol=1e-5)
    assert found["f_local"] < found["f_global"]


def test_scaffold_keeps_its_control_variates(x64):
    found, info, _, _ = inspected("scaffold", active=6)
    np.testing.assert_allclose(found["consensus"], info.spread, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fedcluster", {"num_clusters": 2, "active": 2}, "has 2 cycles"),
        ("sgd", {}, "a single client"),
    ],
)
def test_rounds_without_such_a_moment_are_refused(name, options, message):
    algorithm = afga_jax.build(name, toy.logistic(), num_clients=6, **options)
    with pytest.raises(ValueError, match=message):
        inspect.check_inspectable(algorithm)
