"""Client models as rows of one array, as accelerators have them, and as trees."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax import compressors, trees
from afga_jax.rounds import client_step, update_rows
from cases import marked

pytestmark = pytest.mark.usefixtures("x64")
KEY, CLIENTS = jax.random.key(5), 8
CASES = {
    "afga": {},
    "scaffold": {},  # controls and sums of gradients
    "fedcluster": {},
    "diloco": {},  # optimizers that are kept, with a counter
    "damsgrad": {},  # mixes first, and a second moment with it
    "fednova": {},
    "dsgd, compressed": {"compress_gossip": compressors.sign(), "gossip_step": 0.4},
}
# All of two clusters: as many as there are rows, of which two are nobody's.
UNEQUAL = {"active": None, "participation": 1.0, "clustering": [0] * 2 + [1] * 4}
TOGETHER = {
    "hafed": {},  # everybody steps, then mixes
    "dsgd": {"mixing_order": "before"},
    "cafga, unequal": UNEQUAL,
}


@pytest.mark.parametrize("case", marked(CASES, ["scaffold"]))
def test_the_same_numbers_as_rows_and_as_trees(case, monkeypatch):
    expected = rounds_of(case, CASES[case])
    # The chunk, which a platform decides as well, stays that of a CPU.
    monkeypatch.setattr(client_step, "on_cpu", lambda: False)
    found = rounds_of(case, CASES[case])
    chex.assert_trees_all_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", marked(TOGETHER, ["cafga, unequal"]))
def test_the_same_numbers_where_all_step_at_once(case, monkeypatch):
    expected = rounds_of(case, TOGETHER[case])
    monkeypatch.setattr(client_step, "on_cpu", lambda: False)
    monkeypatch.setattr(update_rows, "on_cpu", lambda: False)
    # As a model of more than two arrays lies there, one of more than 64 does.
    monkeypatch.setattr(trees, "AT_ONCE", 2)
    found = rounds_of(case, TOGETHER[case])
    chex.assert_trees_all_close(found, expected, rtol=0, atol=1e-12)


def rounds_of(case, options):
    """State and diagnostics after three rounds."""
    name = case.partition(",")[0]
    clients = len(options.get("clustering", range(CLIENTS)))
    options = {**toy.options_for(name, clients), **options}
    algorithm = afga_jax.build(name, toy.logistic(norm=True), **options)
    data, state = toy.clients(clients), algorithm.init(KEY)
    step = jax.jit(lambda state: algorithm.round(KEY, state, data))
    for _ in range(3):
        state, info = step(state)
    return state, info


def test_a_vector_for_each_type_of_numbers():
    tree = {
        "a": jnp.arange(6.0).reshape(2, 3),
        "b": jnp.int32(4),
        "c": jnp.array([7.0]),
    }
    packing = trees.Packing(jax.eval_shape(lambda: tree))
    vectors = packing.pack(tree)
    assert [(len(x), x.dtype) for x in vectors] == [(7, np.float64), (1, np.int32)]
    parts = trees.Packing(tree, most=1)
    assert [len(x) for x in parts.pack(tree)] == [6, 1, 1]
    chex.assert_trees_all_equal(parts.unpack(parts.pack(tree)), tree)
    chex.assert_trees_all_equal_shapes_and_dtypes(packing.unpack(vectors), tree)
    chex.assert_trees_all_equal(packing.unpack(vectors), tree)
