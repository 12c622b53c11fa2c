"""Client models as rows of one array, as accelerators have them, and as trees."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax import compressors, trees
from afga_jax.rounds import client_step
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


@pytest.mark.parametrize("case", marked(CASES, ["scaffold"]))
def test_the_same_numbers_as_rows_and_as_trees(case, monkeypatch):
    name = case.partition(",")[0]
    options = {**toy.options_for(name, CLIENTS), **CASES[case]}
    algorithm = afga_jax.build(name, toy.logistic(norm=True), **options)
    data = toy.clients(CLIENTS)

    def rounds():
        state = algorithm.init(KEY)
        step = jax.jit(lambda state: algorithm.round(KEY, state, data))
        for _ in range(3):
            state, info = step(state)
        return state, info

    expected = rounds()
    # The chunk, which a platform decides as well, stays that of a CPU.
    monkeypatch.setattr(client_step, "on_cpu", lambda: False)
    chex.assert_trees_all_close(rounds(), expected, rtol=0, atol=1e-12)


def test_a_vector_for_each_type_of_numbers():
    tree = {
        "a": jnp.arange(6.0).reshape(2, 3),
        "b": jnp.int32(4),
        "c": jnp.array([7.0]),
    }
    packing = trees.Packing(jax.eval_shape(lambda: tree))
    vectors = packing.pack(tree)
    assert [(len(x), x.dtype) for x in vectors] == [(7, np.float64), (1, np.int32)]
    chex.assert_trees_all_equal_shapes_and_dtypes(packing.unpack(vectors), tree)
    chex.assert_trees_all_equal(packing.unpack(vectors), tree)
