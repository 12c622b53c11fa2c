"""What holds for every algorithm of the registry."""

import chex
import jax
import jax.numpy as jnp
import pytest

import afga_jax
import toy
from cases import marked

KEY = jax.random.key(11)


@pytest.fixture(autouse=True)
def fresh_trace_counter():
    """Chex counts traces by a function's name, and all rounds have the same."""
    chex.clear_trace_counter()


# One of each kind of round.
EAGER = ("afga", "cafga_adapted", "hafed_active", "fedcluster", "scaffold", "damsgrad")


@pytest.mark.parametrize("name", marked(afga_jax.ALGORITHMS, EAGER))
def test_protocol(name, x64):
    """Shapes, dtypes, finiteness, determinism, counts, one trace, and none at all."""
    options = toy.options_for(name)
    algorithm = afga_jax.build(name, toy.logistic(norm=True), **options)
    first, second = toy.clients(12, seed=0), toy.clients(12, seed=1)
    step = jax.jit(chex.assert_max_traces(algorithm.round, n=1))
    start = jax.jit(algorithm.init)(KEY)
    after, info = step(KEY, start, first)
    chex.assert_trees_all_equal_shapes_and_dtypes(after, start)
    chex.assert_tree_all_finite((after, info))
    chex.assert_shape([info.loss, info.delta_norm, info.spread], ())
    assert set(info.metrics) == {"accuracy"}
    chex.assert_trees_all_equal(step(KEY, start, first), (after, info))

    if name in EAGER:
        eager = algorithm.round(KEY, start, first)
        chex.assert_trees_all_close(eager, (after, info), rtol=0, atol=1e-10)
    other = step(jax.random.key(12), start, first)
    with pytest.raises(AssertionError):
        chex.assert_trees_all_close(other, (after, info), rtol=0, atol=1e-4)

    # Neither another round, nor other data, nor a state from a file is traced again.
    last, info = step(KEY, after, second)
    chex.assert_trees_all_equal_shapes_and_dtypes(last, start)
    chex.assert_tree_all_finite((last, info))
    assert int(last.round) == 2
    resumed = step(KEY, jax.tree.map(jnp.asarray, jax.device_get(after)), second)
    chex.assert_trees_all_equal(resumed, (last, info))

    cycles = algorithm.plan(KEY, 1).cycles
    planned = cycles.active.size
    if cycles.active_count is not None:
        planned = int(cycles.active_count.sum())
    assert int(info.gradients) == planned
