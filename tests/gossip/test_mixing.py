"""Mixing: operators equal their matrices, keep the mean and contract disagreement."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import new_kinds
import toy
from afga_jax.gossip import mixing, topology

KEY = jax.random.key(1)

pytestmark = pytest.mark.usefixtures("x64")

GRID = [
    {"name": "afga", "num_clients": 7, "active": 3},
    {"name": "afga", "num_clients": 12, "active": 5, "topology": "torus"},
    {"name": "afga", "num_clients": 9, "active": 9, "topology": "exponential"},
    {"name": "afga", "num_clients": 6, "active": 2, "topology": "star"},
    {"name": "afga", "num_clients": 8, "active": 2, "topology": "random"},
    {"name": "afga", "num_clients": 8, "active": 1, "topology": "complete"},
    {"name": "cafga", "num_clients": 12, "num_clusters": 3, "active": 6},
    {"name": "cafga", "num_clients": 12, "num_clusters": 6, "active": 6},
    {"name": "cafga", "num_clients": 12, "num_clusters": 12, "active": 12},
    {
        "name": "cafga",
        "num_clients": 12,
        "clustering": (0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 1, 0),
        "participation": 0.5,
    },
    {
        "name": "cafga",
        "num_clients": 8,
        "num_clusters": 2,
        "active": 4,
        "topology": [topology.ring(4), topology.complete(4)],
    },
    {"name": "hafed_active", "num_clients": 8, "num_clusters": 2, "active": 4},
    {"name": "dsgd", "num_clients": 7, "mix_times": 3},
    {"name": "pga", "num_clients": 5, "pga_period": 2},
    {
        "name": "pga",
        "num_clients": 12,
        "clustering": (0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 1, 0),
        "pga_period": 2,
    },
    {"name": "afga_adapted", "num_clients": 10, "active": 4},
    {"name": "afga_adapted", "num_clients": 10, "active": 2},
    {"name": "afga_adapted", "num_clients": 10, "active": 3, "adapted": "per_round"},
    {"name": "cafga_adapted", "num_clients": 12, "num_clusters": 2, "active": 8},
    {
        "name": "cafga_adapted",
        "num_clients": 12,
        "clustering": (0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 1, 0),
        "participation": 0.67,
    },
    {"name": "fedavg", "num_clients": 6, "active": 3},
    {"name": "fedcluster", "num_clients": 9, "num_clusters": 3, "participation": 0.7},
    {
        "name": "fedcluster",
        "inner": "afga",
        "num_clients": 12,
        "num_clusters": 3,
        "active": 6,
    },
    *(
        {"name": name, "num_clients": clients, **options}
        for name, clients, options in new_kinds.CASES.values()
    ),
]


def built(options, **more):
    options = {"local_steps": 4, **options, **more}
    return afga_jax.build(options.pop("name"), toy.logistic(), **options)


# Every second one is enough for `make check`.
VARIANTS = [pytest.param(options, marks=pytest.mark.slow) for options in GRID[1::2]]


@pytest.mark.parametrize("options", GRID[::2] + VARIANTS, ids=str)
def test_operators(options):
    algorithm = built(options)
    mixes, plan = algorithm.recipe.mixing, jax.jit(algorithm.plan)(KEY, 1)
    last = len(plan.clusters) - 1
    rows = mixes.rows(plan, last)
    count = options["num_clients"] if rows is None else len(rows)
    real = np.ones(count, bool)
    if rows is not None:
        real = np.asarray(rows) < options["num_clients"]
    rng = np.random.default_rng(0)
    tree = {"w": jnp.asarray(rng.normal(size=(count, 3, 2))), "b": jnp.ones(count)}
    gap = mixes.spectral_gap()

    @jax.jit
    def matrix_and_mixed(step):
        operator = mixes.at(plan, step, last)
        return operator.matrix(), operator.apply(tree)

    for step in range(4):
        matrix, mixed = matrix_and_mixed(step)
        matrix = np.asarray(matrix)
        topology.validated(matrix, connected=False)
        reference = afga_jax.gossip(matrix, tree)
        chex.assert_trees_all_close(mixed, reference, rtol=0, atol=1e-12)
        before, after = (np.asarray(x["w"])[real] for x in (tree, mixed))
        np.testing.assert_allclose(after.mean(0), before.mean(0), atol=1e-12)
        if algorithm.recipe.clustering.num_clusters == 1:
            rho = topology.spectral_gap(matrix)
            center = before.mean(0)
            bound = rho**2 * ((before - center) ** 2).sum()
            assert ((after - center) ** 2).sum() <= bound + 1e-12
            if isinstance(mixes, mixing.WithinClusters):
                np.testing.assert_allclose(rho, gap, atol=1e-9)


def test_disagreement_contracts_by_the_gap_in_each_cluster():
    algorithm = built({"name": "cafga", "num_clients": 30, "num_clusters": 3})
    mixes, plan = algorithm.recipe.mixing, jax.jit(algorithm.plan)(KEY, 0)
    gap = mixes.spectral_gap()
    np.testing.assert_allclose(gap, topology.spectral_gap(topology.ring(10)))
    x = jax.random.normal(KEY, (30, 5))
    y = mixes.at(plan, 0).apply(x)
    for block in range(3):
        old, new = (np.asarray(v).reshape(3, 10, 5)[block] for v in (x, y))
        spread = lambda v: ((v - v.mean(0)) ** 2).sum()  # noqa: E731
        np.testing.assert_allclose(new.mean(0), old.mean(0), atol=1e-12)
        assert spread(new) <= gap**2 * spread(old) + 1e-12


def test_selected_clients_form_a_ring_and_the_others_keep_still():
    algorithm = built({"name": "afga_adapted", "num_clients": 9, "active": 4})
    plan = jax.jit(algorithm.plan)(KEY, 0)
    ids = np.asarray(plan.cycles.active)[0, 2, 0]
    matrix = np.asarray(algorithm.recipe.mixing.at(plan, 2).matrix())
    np.testing.assert_allclose(matrix[np.ix_(ids, ids)], topology.ring(4))
    idle = np.setdiff1d(np.arange(9), ids)
    np.testing.assert_array_equal(matrix[np.ix_(idle, idle)], np.eye(5))


def test_two_selected_average_and_one_keeps_its_model():
    for count, expected in [(2, topology.ring(2)), (1, topology.ring(1))]:
        options = {"name": "afga_adapted", "num_clients": 5, "active": count}
        if count == 1:
            with pytest.warns(UserWarning, match="mixes nothing: raise active"):
                algorithm = built(options)
        else:
            algorithm = built(options)
        plan = jax.jit(algorithm.plan)(KEY, 0)
        ids = np.asarray(plan.cycles.active)[0, 0, 0]
        matrix = np.asarray(algorithm.recipe.mixing.at(plan, 0).matrix())
        np.testing.assert_allclose(matrix[np.ix_(ids, ids)], expected)


def test_mixing_every_q_steps_of_the_round():
    options = {"name": "hafed", "num_clients": 8, "num_clusters": 2, "mix_every": 3}
    algorithm = built(options, local_steps=7)
    plan = jax.jit(algorithm.plan)(KEY, 5)
    mixed = [
        not np.allclose(algorithm.recipe.mixing.at(plan, t).matrix(), np.eye(8))
        for t in range(7)
    ]
    assert mixed == [False, False, True, False, False, True, False]


def test_mixing_several_times_is_a_power_of_the_matrix():
    once = built({"name": "cafga", "num_clients": 12, "num_clusters": 2})
    thrice = built({"name": "cafga", "num_clients": 12, "num_clusters": 2}, mix_times=3)
    plan = jax.jit(once.plan)(KEY, 0)
    first, third = (each.recipe.mixing for each in (once, thrice))
    x = jax.random.normal(KEY, (12, 5))
    ring = np.kron(np.eye(2), topology.ring(6))
    want = np.einsum("ij,jk->ik", np.linalg.matrix_power(ring, 3), x)
    np.testing.assert_allclose(third.at(plan, 0).apply(x), want, rtol=0, atol=1e-12)
    assert third.spectral_gap() == pytest.approx(first.spectral_gap() ** 3)
    assert third.contraction(every=2) == (third.spectral_gap(), 2)


def test_periodic_averaging_counts_steps_across_rounds():
    algorithm = built({"name": "pga", "num_clients": 5, "pga_period": 3})
    exact = []
    for number in range(3):
        plan = jax.jit(algorithm.plan)(KEY, number)
        for step in range(4):
            matrix = algorithm.recipe.mixing.at(plan, step).matrix()
            exact.append(bool(np.allclose(matrix, 1 / 5)))
    assert [t + 1 for t, is_exact in enumerate(exact) if is_exact] == [3, 6, 9, 12]


def test_a_matrix_for_every_step():
    matrices = jnp.asarray([topology.ring(5), np.eye(5)])
    varying = mixing.Varying(lambda round, step: matrices[(round + step) % 2])
    algorithm = built({"name": "dsgd", "num_clients": 5, "topology": varying})
    plan = jax.jit(algorithm.plan)(KEY, 1)
    operator = algorithm.recipe.mixing.at(plan, 1)
    np.testing.assert_allclose(operator.matrix(), matrices[0])
    state = algorithm.init(KEY)
    state, info = jax.jit(algorithm.round)(KEY, state, toy.clients(5))
    assert np.isfinite(info.loss)


def test_no_square_array_of_clients_in_a_round():
    # In a program for 1009 clients (a prime that nothing else has), no array has two
    # axes of that length.
    algorithm = afga_jax.build(
        "afga", toy.logistic(), num_clients=1009, active=3, local_steps=2
    )
    data = toy.clients(1009)
    text = jax.jit(algorithm.round).lower(KEY, algorithm.init(KEY), data).as_text()
    assert "1009x" in text
    assert "1009x1009" not in text
