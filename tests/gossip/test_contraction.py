"""How fast clients come together: closed forms against all that can happen."""

import itertools

import jax
import numpy as np
import pytest

from afga_jax.gossip import sequences, topology
from afga_jax.gossip.base import Contraction
from afga_jax.gossip.kernels import as_kernels
from afga_jax.gossip.links import Links
from afga_jax.gossip.mixing import WithinClusters, every
from afga_jax.population import clustering


def every_outcome(matrix, failure):
    """W over every set of links that may be up, with its probability."""
    ends = np.argwhere(np.triu(matrix, 1))
    for up in itertools.product([False, True], repeat=len(ends)):
        kept = np.eye(len(matrix))
        for (i, j), is_up in zip(ends, up, strict=True):
            apart = np.zeros(len(matrix))
            apart[i], apart[j] = 1, -1
            kept -= is_up * matrix[i, j] * np.outer(apart, apart)
        yield kept, failure ** up.count(False) * (1 - failure) ** up.count(True)


@pytest.mark.parametrize(
    "matrices",
    [[topology.ring(4)], [topology.star(4)], sequences.base_matrices(3)],
    ids=["ring", "star", "sequence"],
)
def test_links_that_fail_in_mean_square(matrices):
    failure, n = 0.3, len(matrices[0])
    squared = np.zeros((n, n))
    for outcome in itertools.product(*(every_outcome(w, failure) for w in matrices)):
        product, chance = np.eye(n), 1.0
        for matrix, probability in outcome:
            product, chance = matrix @ product, chance * probability
        squared += chance * product.T @ product
    expected = np.sqrt(np.linalg.norm(squared - 1 / n, 2))
    found = topology.mean_square_gap(matrices, failure)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_outcomes_are_those_of_the_library_s_links():
    """What the tests above enumerate is what a step does."""
    matrix, ids = topology.ring(4), np.arange(4)
    links = Links(jax.random.key(3), 0.5)
    kept = np.asarray(links.kept(matrix, ids))
    outcomes = [outcome for outcome, _ in every_outcome(matrix, 0.5)]
    assert any(np.abs(kept - outcome).max() < 1e-12 for outcome in outcomes)


def test_without_failures_it_is_the_spectral_gap():
    groups = clustering.from_labels([0] * 4 + [1] * 8)
    mixing = WithinClusters(groups, as_kernels("ring", groups.sizes))
    rho = topology.spectral_gap(topology.ring(8))
    np.testing.assert_allclose(mixing.contraction(), (rho, 1), atol=1e-12)
    thinned = every(mixing, 3, 6).contraction()
    np.testing.assert_allclose(thinned, (rho, 3), atol=1e-12)
    assert mixing.contraction(1e-9).rho == pytest.approx(rho)
    assert mixing.contraction(1.0).rho == pytest.approx(1)


def pairings(clients):
    """All ways to pair clients off, with one left over if their number is odd."""
    if len(clients) < 2:
        yield []
        return
    if len(clients) % 2:
        for alone in clients:
            yield from pairings([one for one in clients if one != alone])
        return
    first, *others = clients
    for other in others:
        rest = [one for one in others if one != other]
        yield from ([(first, other), *more] for more in pairings(rest))


@pytest.mark.parametrize("n", [1, 2, 4, 5, 6])
@pytest.mark.parametrize("failure", [0.0, 0.25])
def test_matchings_in_closed_form(n, failure):
    drawn = list(pairings(list(range(n))))
    squared = np.zeros((n, n))
    for pairs in drawn:
        matrix = np.eye(n)
        for i, j in pairs:
            matrix[i, j] = matrix[j, i] = matrix[i, i] = matrix[j, j] = 0.5
        squared += topology.mean_square(matrix, failure) / len(drawn)
    expected = np.sqrt(np.abs(np.linalg.eigvalsh(squared - 1 / n)).max())
    found = sequences.matchings(clustering.single(n)).contraction(failure)
    np.testing.assert_allclose(found, (expected, 1), rtol=0, atol=1e-7)


@pytest.mark.usefixtures("x64")
def test_random_graphs_by_draws():
    # Every edge: two complete graphs. One edge, there half the time: ρ² is a half.
    groups = clustering.from_labels([0] * 3 + [1] * 4)
    full = sequences.erdos_renyi(groups, density=1.0).contraction()
    np.testing.assert_allclose(full, (0, 1), atol=1e-7)
    pair = sequences.erdos_renyi(clustering.single(2), density=0.5).contraction()
    assert pair.rho**2 == pytest.approx(0.5, abs=3 * 0.5 / np.sqrt(64))
    failing = sequences.erdos_renyi(groups, density=1.0).contraction(0.5)
    expected = topology.mean_square_gap([topology.complete(3)], 0.5)
    assert failing.rho == pytest.approx(expected)


def test_a_thinned_sequence_sees_only_some_of_its_graphs():
    """Steps are counted: with an even q, distances 1 and 4 never have their turn."""
    mixing = sequences.one_peer_exponential(clustering.single(16))
    for period, expected in ((1, (0, 4)), (3, (0, 12)), (2, (1, 4)), (4, (1, 4))):
        found = mixing.contraction(every=period)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
        assert every(mixing, period, 24).contraction() == found


def test_drift_lasts_no_longer_than_the_round():
    assert Contraction(0.0, 1).drift(24) == 1
    assert Contraction(0.0, 4).drift(24) == 4
    assert Contraction(0.5, 4).drift(24) == 8
    assert Contraction(0.99, 1).drift(24) == 24
    assert Contraction(1 + 1e-15, 1).drift(24) == 24
