"""Evaluation in chunks equals evaluation at once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toy
from afga_jax import Batch
from afga_jax.training.evaluate import evaluate

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


def test_chunk_of_none_is_refused():
    with pytest.raises(ValueError, match=r"chunk = 0.*>= 1"):
        evaluate(TASK, None, None, None, chunk=0)
