"""Evaluation in chunks equals evaluation at once."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax import Batch
from afga_jax.training.evaluate import evaluate
from afga_jax.training.seeds import keys_of

TASK = toy.logistic(norm=True)


@pytest.mark.parametrize("chunk", [1, 4, 7, 10, 99])
@pytest.mark.parametrize("masked", [False, True])
def test_chunks(chunk, masked):
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(10, 3)), jnp.float32)
    targets = jnp.asarray(rng.integers(0, 2, 10))
    mask = jnp.asarray([1.0, 0, 0, 1, 1, 1, 0, 1, 1, 0]) if masked else None
    params, stats = TASK.init(jax.random.key(0))
    stats = {"mean": jnp.ones(3)}
    batch = Batch(inputs, targets, mask)
    run = jax.jit(functools.partial(evaluate, TASK, chunk=chunk))
    result = run(params, stats, batch)
    loss, (_, metrics) = TASK.loss(params, stats, batch, None, False)
    np.testing.assert_allclose(result["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(result["accuracy"], metrics["accuracy"], rtol=1e-6)


def batch_of(size=10, seed=0):
    rng = np.random.default_rng(seed)
    inputs = jnp.asarray(rng.normal(size=(size, 3)), jnp.float32)
    return Batch(inputs, jnp.asarray(rng.integers(0, 2, size)))


def test_a_state_is_its_params_and_stats():
    algorithm = afga_jax.build("fedavg", TASK, num_clients=4, active=2)
    state = algorithm.init(jax.random.key(0))
    batch = batch_of()
    result = evaluate(TASK, state, batch)
    chex.assert_trees_all_equal(
        result, evaluate(TASK, state.params, state.stats, batch)
    )
    chex.assert_trees_all_equal(result, evaluate(TASK, state, tuple(batch[:2])))


def test_several_seeds():
    trainer = afga_jax.Trainer(afga_jax.build("fedavg", TASK, num_clients=4, active=2))
    keys = keys_of(0, 3)
    result = evaluate(TASK, trainer.init(keys), batch_of())
    for seed, key in enumerate(keys):
        alone = evaluate(TASK, trainer.init(key), batch_of())
        for name, value in alone.items():
            np.testing.assert_allclose(result[name][seed], value, rtol=1e-6)


def test_it_is_traced_once_for_a_task():
    calls = []

    def loss(*arguments):
        calls.append(None)
        return TASK.loss(*arguments)

    task = TASK._replace(loss=loss)
    for seed in range(3):
        params, stats = task.init(jax.random.key(seed))
        evaluate(task, params, stats, batch_of(seed=seed))
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, (), None), "test is None.*needs samples"),
        (({"w": 0}, batch_of()), "state is a dict.*params and stats"),
        ((None, (), batch_of()[:1]), "test is a tuple.*Batch"),
        ((None, (), Batch(jnp.ones((3, 3)), jnp.ones(2, int))), r"lengths \[2, 3\]"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluate(TASK, *arguments)


def test_chunk_of_none_is_refused():
    with pytest.raises(ValueError, match=r"chunk = 0.*>= 1"):
        evaluate(TASK, None, None, None, chunk=0)
