"""Matrices for people, kernels for the round: exact values and equality."""

import itertools

import chex
import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from afga_jax.gossip import kernels, topology

SIZES = [1, 2, 3, 4, 5, 8, 9, 12, 16]


@pytest.mark.parametrize(("n", "rho"), [(8, 0.805), (10, 0.873), (50, 0.995)])
def test_ring_has_the_papers_gap(n, rho):
    assert round(topology.spectral_gap(topology.ring(n)), 3) == rho
    assert round(kernels.ring(n).spectral_gap(), 3) == rho


def test_complete_graph_has_no_gap():
    assert topology.spectral_gap(topology.complete(10)) < 1e-15
    assert kernels.Average(10).spectral_gap() == 0


def test_ring_closed_form():
    for n in range(4, 60):
        closed = 1 / 3 + 2 / 3 * np.cos(2 * np.pi / n)
        np.testing.assert_allclose(kernels.ring(n).spectral_gap(), closed, rtol=1e-12)


@pytest.mark.parametrize(("n", "rho"), [(10, 0.335), (8, 0.125)])
def test_unbalanced_complete_meets_a_wanted_gap(n, rho):
    matrix = topology.validated(topology.unbalanced_complete(n, rho=rho))
    np.testing.assert_allclose(topology.spectral_gap(matrix), rho, rtol=1e-9)
    assert (matrix > 0).all()
    assert matrix.std() > 0


@pytest.mark.slow
@pytest.mark.parametrize(("n", "rho"), [(50, 0.455), (10, 0.766), (8, 0.599)])
def test_random_graphs_come_near_a_wanted_gap(n, rho):
    # The papers' draws are not given, and small graphs have few values of ρ.
    matrix = topology.validated(topology.random(n, rho=rho))
    assert abs(topology.spectral_gap(matrix) - rho) < 2e-3


def sizes_of(name, sizes=SIZES):
    """Numbers of clients that a topology is there for."""
    return [n for n in sizes if name != "hypercube" or n & (n - 1) == 0]


def all_matrices():
    named = {
        "chain": topology.chain,
        "grid": topology.grid,
        "hypercube": topology.hypercube,
        "small_world": topology.small_world,
        "two_cliques": topology.two_cliques,
        "geographic": topology.geographic,
        "ring": topology.ring,
        "complete": topology.complete,
        "torus": topology.torus,
        "exponential": topology.exponential,
        "star": topology.star,
    }
    for name, make in named.items():
        for n in sizes_of(name):
            yield f"{name}-{n}", make(n)
    for n, seed in itertools.product([2, 5, 12], range(3)):
        yield f"random-{n}-{seed}", topology.random(n, seed=seed)
        matrix = topology.unbalanced_complete(n, seed=seed)
        yield f"unbalanced-{n}-{seed}", matrix
    yield "petersen", topology.from_graph(nx.petersen_graph())
    yield "tree", topology.from_graph(nx.balanced_tree(2, 3))


def test_matrices_are_doubly_stochastic_and_connected():
    for name, matrix in all_matrices():
        assert topology.validated(matrix) is not None
        np.testing.assert_allclose(matrix.sum(0), 1, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-12, err_msg=name)
        assert (matrix >= 0).all(), name
        if len(matrix) > 1:
            assert topology.spectral_gap(matrix) < 1, name


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", kernels.KERNELS)
def test_kernels_equal_their_matrix(name):
    for n in sizes_of(name):
        kernel = kernels.KERNELS[name](n)
        matrix = kernel.matrix()
        assert matrix.shape == (n, n)
        rng = np.random.default_rng(n)
        tree = {
            "a": jnp.array(rng.normal(size=(n, 2, 3))),
            "b": jnp.array(rng.normal(size=n)),
        }
        expected = kernels.gossip(matrix, tree)
        by_hand = np.einsum("ij,jkl->ikl", matrix, np.asarray(tree["a"]))
        chex.assert_trees_all_close(expected["a"], by_hand, rtol=0, atol=1e-12)
        mixed = jax.jit(kernel.apply)(tree)
        chex.assert_trees_all_close(mixed, expected, rtol=0, atol=1e-12)
        gap = topology.spectral_gap(matrix)
        np.testing.assert_allclose(kernel.spectral_gap(), gap, atol=1e-9)


@pytest.mark.parametrize("name", ["ring", "torus", "exponential", "complete", "star"])
def test_structured_kernels_never_build_a_matrix(name):
    # An n × n array would have 10¹⁰ entries.
    n = 100_000
    kernel = kernels.KERNELS[name](n)
    assert 0 <= kernel.spectral_gap() < 1
    mixed = jax.jit(kernel.apply)(jnp.arange(n, dtype=jnp.float32))
    np.testing.assert_allclose(mixed.mean(), (n - 1) / 2, rtol=1e-5)


def test_closed_forms_of_chains_and_hypercubes():
    for n in range(3, 40):
        closed = 1 / 3 + 2 / 3 * np.cos(np.pi / n)
        np.testing.assert_allclose(topology.spectral_gap(topology.chain(n)), closed)
    for d in range(1, 8):
        closed = (d - 1) / (d + 1)
        np.testing.assert_allclose(
            kernels.hypercube(2**d).spectral_gap(), closed, atol=1e-12
        )


def test_clients_in_a_plane_hear_those_near_them():
    places = [[0, 0], [0, 1], [0, 3], [0, 3]]
    matrix = topology.geographic(4, positions=places)  # 2 connects them all
    np.testing.assert_array_equal(matrix[0] > 0, [True, True, False, False])
    np.testing.assert_array_equal(matrix[1] > 0, [True, True, True, True])
    with pytest.raises(ValueError, match=r"radius = 1.0, but it must be >= 2"):
        topology.geographic(4, positions=places, radius=1.0)
    with pytest.raises(ValueError, match=r"positions have shape \(3,\).*\[4, 2\]"):
        topology.geographic(4, positions=[1, 2, 3])


def test_a_hypercube_of_another_number_is_refused():
    with pytest.raises(ValueError, match=r"n = 12.*take 8 or 16"):
        kernels.hypercube(12)


def test_gossip_keeps_the_dtype():
    mixed = kernels.gossip(topology.ring(4), jnp.ones(4, jnp.bfloat16))
    assert mixed.dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((2, 3)) / 3, r"shape \(2, 3\).*square"),
        (np.ones(4), r"shape \(4,\).*square"),
        (np.array([[np.nan, 1], [1, 0]]), r"nan at \[0, 0\].*finite"),
        (np.array([[1.5, -0.5], [-0.5, 1.5]]), r"-0.5 at \[0, 1\].*>= 0"),
        (np.array([[0.5, 0.5], [0.6, 0.4]]), r"column 0 sums to 1.1.*must be 1"),
        (
            np.array([[0.4, 0.3, 0.2], [0.3, 0.35, 0.4], [0.3, 0.35, 0.4]]),
            r"row 0 sums to 0.9.*must be 1",
        ),
        (np.eye(3), r"disconnected.*3 parts.*must have 1"),
        (np.kron(np.eye(2), np.full((2, 2), 0.5)), "2 parts.*cluster"),
    ],
)
def test_bad_matrices_are_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        topology.validated(matrix)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: topology.ring(0), "n = 0.*>= 1"),
        (lambda: topology.ring(2.5), "n = 2.5.*whole number"),
        (lambda: topology.random(5, density=0.0), "density = 0.0.*> 0"),
        (lambda: topology.random(50, density=0.001), "density = 0.001.*raise it"),
        (lambda: topology.random(5, rho=1.0), "rho = 1.0.*< 1"),
        (lambda: topology.unbalanced_complete(5, rho=0.0), "rho = 0.0.*> 0"),
        (lambda: topology.from_graph(nx.DiGraph([(0, 1)])), "directed.*to_undirected"),
        (lambda: topology.from_graph(nx.Graph()), "0 nodes"),
        (lambda: topology.torus(2, 0), "columns = 0"),
        (lambda: kernels.as_kernels("rings", [4]), "did you mean 'ring'"),
        (lambda: kernels.as_kernels(topology.ring(5), [4]), "5 clients.*has 4"),
        (lambda: kernels.as_kernels(["ring"], [4, 4]), "lists 1.*2 clusters"),
    ],
)
def test_bad_requests_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
