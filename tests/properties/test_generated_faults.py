"""W under any faults, on any graph: doubly stochastic, symmetric, and as it is written.

Cases are those of `generated`, whose graphs, clusters and sampling are drawn; the rates
of the faults are drawn beside them.
"""

import functools

import chex
import jax
import numpy as np
import pytest
from generated import assert_every_value, generated, saying

import afga_jax
import faulty
import toy
from cases import marked

pytestmark = [
    pytest.mark.usefixtures("x64"),
    pytest.mark.filterwarnings("ignore:one client is selected per cluster"),
]


# Those that mix by symmetric weights; an exponential graph's go one way.
SEEDS = (0, 58, 24, 11, 10, 31, 47, 25, 2, 52)


def test_every_value_is_drawn():
    one_way = ("none", "exponential")
    assert_every_value(SEEDS, lambda case: case.options.get("topology") not in one_way)


def drawn(number):
    """A case, and rates of its faults; every second without those of links."""
    rng = np.random.default_rng(number)
    rates = rng.uniform(0, 0.8, 4) * rng.integers(0, 2, 4)
    rates[number % 2] = 0.5
    return generated(SEEDS[number]), afga_jax.Faults(*map(float, rates))


@pytest.mark.parametrize("number", marked(range(len(SEEDS)), range(1)))
def test_mixing_stays_doubly_stochastic_and_keeps_the_mean(number):
    case, faults = drawn(number)
    with saying(case._replace(options={**case.options, "faults": faults})):
        check_matrices(case, faults, number)


def check_matrices(case, faults, number):
    times, once = case.options["mix_times"], {**case.options, "mix_times": 1}
    plain = case._replace(options=once).build()
    algorithm = case.build(faults=faults)
    clients, steps = len(case.labels), case.options["local_steps"]
    plan = jax.jit(algorithm.plan)(case.key, 1)
    world = faulty.World(case.key, faults, clients, steps, 1)
    rng = np.random.default_rng(number)
    tree = {"w": rng.normal(size=(clients, 3, 2)), "b": case.labels * 1.0}
    mixing = algorithm.recipe.mixing
    apply = jax.jit(
        lambda step, cycle, tree: mixing.at(plan, step, cycle).apply(tree),
        static_argnums=1,
    )
    for cycle in range(len(plan.clusters)):
        for step in range(steps):
            matrix = faulty.by_id(algorithm, plan, step, cycle)
            np.testing.assert_allclose(matrix.sum(0), 1, rtol=0, atol=1e-14)
            np.testing.assert_allclose(matrix.sum(1), 1, rtol=0, atol=1e-14)
            np.testing.assert_array_equal(matrix, matrix.T)
            assert (matrix >= 0).all()
            # Of the same plan, where nothing fails but who computes; links that are
            # down are so for all mixings of a step.
            whole = faulty.by_id(plain, plan, step, cycle)
            kept = world.matrix(whole, step, cycle)
            expected = np.linalg.matrix_power(kept, times)
            np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-14)
            compiled = functools.partial(apply, step, cycle)
            check_forms(mixing, compiled, plan, step, cycle, tree, matrix)


def check_forms(mixing, compiled, plan, step, cycle, tree, matrix):
    """The compiled and the sparse form are the matrix, and the mean stays."""
    rows = mixing.rows(plan, cycle)
    ids = np.arange(len(matrix)) if rows is None else np.asarray(rows)
    real = np.flatnonzero(ids < len(matrix))
    among = jax.tree.map(lambda x: x[np.minimum(ids, len(x) - 1)], tree)
    mixed = compiled(among)
    expected = afga_jax.gossip(matrix[np.ix_(ids[real], ids[real])], pick(among, real))
    chex.assert_trees_all_close(pick(mixed, real), expected, rtol=0, atol=1e-14)
    means = (jax.tree.map(lambda x: x[real].mean(0), x) for x in (among, mixed))
    chex.assert_trees_all_close(*means, rtol=0, atol=1e-14)
    part = jax.tree.map(np.asarray, plan)
    inside = np.sort(ids[real])
    sparse = mixing.sparse(part, step, cycle, inside)
    if sparse is not None:
        own = matrix[np.ix_(inside, inside)]
        np.testing.assert_allclose(sparse.toarray(), own, rtol=0, atol=1e-14)


def pick(tree, rows):
    return jax.tree.map(lambda x: x[rows], tree)


@pytest.mark.parametrize("number", marked(range(len(SEEDS)), range(1)))
def test_both_engines_agree(number):
    case, faults = drawn(number)
    algorithm, after = case.build(faults=faults), []
    with saying(case._replace(options={**case.options, "faults": faults})):
        for engine in ("dense", "span"):
            trainer = afga_jax.Trainer(algorithm, afga_jax.Execution(engine))
            state, infos = trainer.run(case.key, trainer.init(case.key), case.data, 2)
            after.append((toy.flat(state), infos))
        chex.assert_trees_all_close(*after, rtol=0, atol=1e-10)
