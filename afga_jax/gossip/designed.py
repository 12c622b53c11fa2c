"""Mixing matrices that are computed: the best weights of a graph, neighbours by label.

Like those of `topology`, they are matrices that `topology=` takes.
"""

import typing
from typing import Any

import numpy as np
import scipy  # `scipy.optimize` is imported where it is used first

from afga_jax import checks
from afga_jax.gossip import topology

if typing.TYPE_CHECKING:
    import networkx as nx

# Norms (Σ|λ|ᵖ)^(1/p) that are minimised one after another; the last is within 2 % of
# the largest |λ| for 50 clients, and what it leads to far nearer.
_POWERS = (4, 16, 64, 256)


def fastest(graph: "np.ndarray | nx.Graph") -> np.ndarray:
    """The symmetric weights on a graph's edges for which ρ is smallest.

    ρ(w) = ‖I − L(w) − 11ᵀ/n‖₂ with the Laplacian vᵀL(w)v = Σ wₑ(vᵢ − vⱼ)² is convex in
    the weights w ≥ 0 of the edges e = (i, j); what is left of a client's weight,
    1 − Σ wₑ ≥ 0, is its own. It is approached by the smooth norms (Σ|λ|ᵖ)^(1/p) with
    growing p, to about a thousandth of the smallest ρ, and never behind the Metropolis
    weights.

    Args:
      graph: A networkx graph, or a symmetric matrix whose entries other than zero are
        its edges, such as `topology.ring(8)`.

    >>> chain = topology.chain(6)
    >>> gaps = [topology.spectral_gap(w) for w in (chain, fastest(chain))]
    >>> print([round(gap, 2) for gap in gaps], round(float(np.cos(np.pi / 6)), 2))
    [0.91, 0.87] 0.87

    Reference: Boyd, Diaconis and Xiao, Fastest mixing Markov chain on a graph, 2004.
    """
    start = _metropolis(graph)
    n = len(start)
    one, other = np.nonzero(np.triu(start, 1))
    if topology.spectral_gap(start) < 1e-12 or not len(one):
        return start
    incidence = np.zeros((n, len(one)))
    incidence[one, range(len(one))] = incidence[other, range(len(one))] = 1

    def norm(weights: np.ndarray, power: int) -> tuple[float, np.ndarray]:
        values, vectors = np.linalg.eigh(_with_weights(weights, one, other, n) - 1 / n)
        size = np.abs(values)
        norm = np.linalg.norm(size, power)
        slope = np.sign(values) * (size / norm) ** (power - 1)
        # A client that gives away more than it has pays for it.
        excess = np.maximum(incidence @ weights - 1, 0)
        gradient = 2 * excess @ incidence - (vectors[one] - vectors[other]) ** 2 @ slope
        return norm + excess @ excess, gradient

    best, weights = start, start[one, other]
    for power in _POWERS:
        found = scipy.optimize.minimize(
            norm,
            weights,
            (power,),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, 1)] * len(one),
            options={"maxiter": 100, "ftol": 1e-7},
        )
        weights = found.x / max(1.0, (incidence @ found.x).max())
        better = _with_weights(weights, one, other, n)
        best = min(best, better, key=topology.spectral_gap)
    return np.maximum(best, 0)


def label_aware(
    counts: np.ndarray, *, clique: int | None = None, seed: int = 0
) -> np.ndarray:
    """Cliques of clients whose labels together are like everybody's, in a ring.

    Clients are dealt to cliques at random; then pairs are exchanged between cliques as
    long as that brings the cliques' label distributions nearer to the overall one.
    Within a clique everybody hears everybody; neighbouring cliques are joined by an
    edge. Weights are Metropolis.

    Args:
      counts: Number of samples of each label that each client holds, `[n, classes]`.
      clique: Clients in a clique; None: as many as there are labels.
      seed: Seed of the deal.

    Reference: Bellet, Kermarrec and Lavoie, D-Cliques: compensating for data
    heterogeneity with topology in decentralized federated learning, 2022; here with
    exchanges until none helps, and cliques in a ring.
    """
    counts = np.asarray(counts, np.float64)
    if counts.ndim != 2 or not counts.size or not (counts >= 0).all():
        raise ValueError(
            f"counts have shape {counts.shape}, but they must be numbers >= 0, [n, "
            "classes]: give how many samples of each label each client holds."
        )
    n, classes = counts.shape
    clique = min(n, classes if clique is None else clique)
    checks.integer("clique", clique)
    cliques = _balanced(counts, max(1, n // clique), np.random.default_rng(seed))
    import networkx  # late, as in `topology`

    graph = networkx.Graph()
    graph.add_nodes_from(range(n))
    for members in cliques:
        graph.add_edges_from((i, j) for i in members for j in members if i < j)
    for members, others in zip(cliques, [*cliques[1:], cliques[0]], strict=True):
        if members is not others:
            # The last of one clique and the first of the next, so no client has both.
            graph.add_edge(members[-1], others[0])
    return topology.from_graph(graph)


def _balanced(
    counts: np.ndarray, number: int, rng: np.random.Generator
) -> list[list[int]]:
    """Clients in so many cliques of nearly equal size, with labels as alike as can be.

    An exchange is kept if it lowers the sum over cliques of ‖labels − all labels‖₁.
    """
    cliques = [
        part.tolist() for part in np.array_split(rng.permutation(len(counts)), number)
    ]
    everybody = counts.sum(0) / max(counts.sum(), 1)

    def distance(total: np.ndarray) -> np.ndarray:
        share = total / np.maximum(total.sum(-1, keepdims=True), 1)
        return np.abs(share - everybody).sum(-1)

    totals = np.stack([counts[members].sum(0) for members in cliques])
    improved = True
    while improved:
        improved = False
        for a in range(number):
            for b in range(a + 1, number):
                moved = counts[cliques[b]][None] - counts[cliques[a]][:, None]
                after = distance(totals[a] + moved) + distance(totals[b] - moved)
                i, j = np.unravel_index(after.argmin(), after.shape)
                if after[i, j] < distance(totals[a]) + distance(totals[b]) - 1e-12:
                    totals[a] += moved[i, j]
                    totals[b] -= moved[i, j]
                    cliques[a][i], cliques[b][j] = cliques[b][j], cliques[a][i]
                    improved = True
    return [sorted(members) for members in cliques]


def _metropolis(graph: Any) -> np.ndarray:
    if topology.is_graph(graph):
        return topology.from_graph(graph)
    matrix = np.asarray(graph, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"graph has shape {matrix.shape}, but it must be a square matrix or a "
            "networkx graph: give for example topology.ring(8)."
        )
    if not ((matrix != 0) == (matrix != 0).T).all():
        raise ValueError(
            "graph is directed, but the best weights are looked for on undirected "
            "ones: give a symmetric matrix."
        )
    import networkx  # late, as in `topology`

    return topology.from_graph(networkx.from_numpy_array(matrix != 0))


def _with_weights(
    weights: np.ndarray, one: np.ndarray, other: np.ndarray, n: int
) -> np.ndarray:
    matrix = np.zeros((n, n))
    matrix[one, other] = matrix[other, one] = weights
    return matrix + np.diag(1 - matrix.sum(1))
