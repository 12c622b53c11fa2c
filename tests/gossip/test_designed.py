"""Weights that are optimised, and neighbours that are chosen by their labels."""

import networkx
import numpy as np
import pytest

from afga_jax.gossip import designed, topology


@pytest.mark.parametrize(
    ("graph", "smallest"),
    [
        # Boyd et al., Fastest mixing Markov chain on a path, 2006: ρ = cos(π/n).
        (topology.chain(8), np.cos(np.pi / 8)),
        # Edge-transitive graphs have one weight w, and their Laplacian's eigenvalues
        # are known: |1 − w·μ| is smallest where the ends of the spectrum meet.
        (networkx.petersen_graph(), 3 / 7),
        (topology.hypercube(8), (6 - 2) / (6 + 2)),
        (
            topology.ring(8),
            (4 - 2 + 2 * np.cos(np.pi / 4)) / (4 + 2 - 2 * np.cos(np.pi / 4)),
        ),
        (topology.complete(5), 0.0),
    ],
    ids=["chain", "petersen", "hypercube", "ring", "complete"],
)
def test_the_smallest_gap_is_known_and_nearly_met(graph, smallest):
    best = topology.validated(designed.fastest(graph))
    np.testing.assert_allclose(best, best.T, atol=1e-12)
    gap = topology.spectral_gap(best)
    assert smallest - 1e-9 <= gap <= smallest + 2e-3


def test_only_edges_of_the_graph_have_weight():
    graph = topology.geographic(12, seed=3)
    best = topology.validated(designed.fastest(graph))
    assert not best[graph == 0].any()
    assert topology.spectral_gap(best) < topology.spectral_gap(graph)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (np.ones((2, 3)), r"shape \(2, 3\).*square"),
        (topology.exponential(8), "directed.*symmetric"),
    ],
)
def test_what_is_no_undirected_graph_is_refused(graph, message):
    with pytest.raises(ValueError, match=message):
        designed.fastest(graph)


def test_cliques_hold_all_labels():
    # Twenty clients with one label each: two cliques can have every label once.
    counts = np.zeros((20, 10))
    counts[np.arange(20), np.repeat(np.arange(10), 2)] = 7
    matrix = topology.validated(designed.label_aware(counts))
    graph = networkx.from_numpy_array(matrix - np.diag(np.diag(matrix)))
    cliques = [c for c in networkx.find_cliques(graph) if len(c) == 10]
    assert len(cliques) == 2
    for clique in cliques:
        assert (counts[clique].sum(0) == 7).all()


@pytest.mark.parametrize(("n", "clique"), [(1, None), (2, None), (7, 3), (9, 20)])
def test_any_number_of_clients_is_connected(n, clique):
    counts = np.random.default_rng(0).integers(0, 9, (n, 4))
    matrix = designed.label_aware(counts, clique=clique)
    assert topology.validated(matrix).shape == (n, n)


def test_counts_must_be_a_table():
    with pytest.raises(ValueError, match=r"counts have shape \(3,\).*\[n, classes\]"):
        designed.label_aware(np.ones(3))
