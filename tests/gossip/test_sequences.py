"""Graphs that change with the step: exact in a period, the same for both engines."""

import functools
import itertools

import chex
import jax
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax.gossip import sequences, topology
from afga_jax.population import clustering
from cases import marked
from reference_cases import SIZES, UNEQUAL

KEY = jax.random.key(5)
CLIENTS = 9


@pytest.mark.parametrize("peers", [1, 2, 3, 4])
def test_base_graphs_average_exactly_with_few_peers(peers):
    for n in range(1, 30):
        matrices = sequences.base_matrices(n, peers)
        for matrix in matrices:
            topology.validated(matrix, connected=False)
            assert ((matrix > 0).sum(1) - 1).max() <= peers
        product = functools.reduce(np.matmul, matrices[::-1])
        np.testing.assert_allclose(product, 1 / n, rtol=0, atol=1e-12)
        # Twice through the digits of the largest set, and one exchange.
        digits = int(np.log(n) / np.log(peers + 1) + 1e-9) + 1
        assert len(matrices) <= 2 * digits + 1


def test_one_peer_exponential_graphs_are_exact_for_powers_of_two():
    gaps = [
        sequences.one_peer_exponential(clustering.single(n)).spectral_gap()
        for n in (1, 2, 16, 64, 50)
    ]
    np.testing.assert_allclose(gaps[:4], 0, atol=1e-12)
    assert 0 < gaps[4] < topology.spectral_gap(topology.exponential(50))


def test_clusters_of_any_sizes_average_exactly_in_a_period():
    groups = clustering.from_labels([0] * 8 + [1] * 2 + [2] * 5)
    assert sequences.base_graph(groups).spectral_gap() < 1e-12


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("name", "clusters"),
    marked(
        [
            ("one_peer_exponential", False),
            *itertools.product(sequences.SEQUENCES, [True]),
        ],
        [("one_peer_exponential", False), ("matchings", True)],
    ),
)
def test_both_engines_agree_with_the_matrices(name, clusters):
    options = {"clustering": UNEQUAL} if clusters else {}
    algorithm = afga_jax.build(
        *("afga", toy.logistic(norm=True)),
        num_clients=CLIENTS,
        participation=0.6,
        local_steps=4,
        topology=name,
        **options,
    )
    mixing, plan = algorithm.recipe.mixing, jax.jit(algorithm.plan)(KEY, 1)
    rows = mixing.rows(plan)
    count = CLIENTS if rows is None else len(rows)
    tree = jax.random.normal(KEY, (count, 3))
    labels = algorithm.recipe.clustering.labels()
    for step in range(4):
        operator = mixing.at(plan, step)
        matrix = np.asarray(operator.matrix())
        if name != "epidemic":  # where columns are left to chance
            topology.validated(matrix, connected=False)
        np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-12)
        np.testing.assert_allclose(operator.apply(tree), matrix @ tree, atol=1e-12)
        if rows is None:
            assert not matrix[labels[:, None] != labels[None]].any()
    data, after = toy.clients(CLIENTS, sizes=SIZES), {}
    for engine in ("dense", "span"):
        trainer = afga_jax.Trainer(algorithm, afga_jax.Execution(engine), capacity=3)
        after[engine] = trainer.run(KEY, trainer.init(KEY), data, 3)
        assert trainer.choice.engine == engine
    chex.assert_trees_all_close(after["span"], after["dense"], rtol=0, atol=1e-10)


def test_a_sequence_goes_on_in_the_next_round():
    algorithm = afga_jax.build(
        *("afga", toy.logistic()),
        num_clients=16,
        active=2,
        local_steps=3,
        topology="one_peer_exponential",
    )
    behind = []
    for number in range(2):
        plan = algorithm.plan(KEY, number)
        for step in range(3):
            matrix = algorithm.recipe.mixing.at(plan, step).matrix()
            behind.append(int(np.asarray(matrix)[0, 1:].argmax()) + 1)
    assert behind == [15, 14, 12, 8, 15, 14]


@pytest.mark.parametrize(
    ("name", "symmetric"),
    [("one_peer_exponential", False), ("base_graph", True), ("matchings", True)],
)
def test_links_that_fail_need_symmetric_graphs(name, symmetric):
    options = {"num_clients": 8, "active": 2, "topology": name}
    options["faults"] = afga_jax.Faults(link_failure=0.2)
    if symmetric:
        algorithm = afga_jax.build("afga", toy.logistic(), **options)
        plan = algorithm.plan(KEY, 0)
        matrix = algorithm.recipe.mixing.at(plan, 0).matrix()
        topology.validated(matrix, connected=False)
    else:
        with pytest.raises(ValueError, match="symmetric"):
            afga_jax.build("afga", toy.logistic(), **options)


def test_matchings_leave_at_most_one_out_and_differ():
    algorithm = afga_jax.build(
        *("cafga", toy.logistic()),
        num_clients=9,
        clustering=[0] * 5 + [1] * 4,
        active=2,
        topology="matchings",
    )
    mixing = algorithm.recipe.mixing
    drawn = set()
    for seed in range(2):
        plan = algorithm.plan(jax.random.key(seed), 0)
        for step in range(2):
            partner = np.asarray(mixing.partners(plan, step))
            np.testing.assert_array_equal(partner[partner], np.arange(9))
            assert (partner == np.arange(9)).sum() == 1
            drawn.add(partner.tobytes())
    assert len(drawn) == 4


MESSAGES = [("base_graph", 64), ("one_peer_exponential", 64), ("matchings", 64)]


@pytest.mark.parametrize(("name", "messages"), marked(MESSAGES, MESSAGES[:1]))
def test_messages(name, messages):
    algorithm = afga_jax.build(
        *("afga", toy.logistic()),
        num_clients=16,
        active=2,
        local_steps=4,
        topology=name,
    )
    state, info = jax.jit(algorithm.round)(KEY, algorithm.init(KEY), toy.clients(16))
    costs = afga_jax.ledger.costs(algorithm, state)
    counted = costs.per_round(info, 0, algorithm.plan(KEY, 0))["gossip_messages"]
    assert counted == messages


@pytest.mark.usefixtures("x64")
def test_each_sends_to_some_others_of_its_cluster():
    labels = np.array([0] * 6 + [1] * 3 + [2])
    drawn = sequences.epidemic(clustering.from_labels(labels), peers=3)
    assert not drawn.symmetric
    first, second = (
        np.asarray(drawn.matrix_at(jax.random.key(seed))) for seed in (0, 1)
    )
    assert (first != second).any()
    for matrix in (first, second):
        sends = (matrix > 0) & ~np.eye(10, dtype=bool)
        np.testing.assert_array_equal(sends.sum(0), [3] * 6 + [2] * 3 + [0])
        assert not sends[labels[:, None] != labels].any()
        # All that a client has count alike.
        own = np.diagonal(matrix)[:, None]
        np.testing.assert_allclose(matrix, own * (matrix > 0), atol=1e-15)
        np.testing.assert_allclose(matrix.sum(1), 1)
    everybody = sequences.epidemic(clustering.single(5), peers=4).contraction()
    np.testing.assert_allclose(everybody, (0, 1), atol=1e-7)
    assert 0 < sequences.epidemic(clustering.single(9)).contraction().rho < 1
