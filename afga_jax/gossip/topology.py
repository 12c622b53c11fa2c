"""Mixing matrices as people see them: small, dense, doubly stochastic NumPy arrays.

`W[i, j]` is the weight with which client i takes client j's model. The papers call

    ρ = ‖W − 11ᵀ/n‖₂

the *spectral gap*; it is 0 for exact averaging and tends to 1 as a graph falls apart,
the opposite of the usual gap 1 − |λ₂|. We keep the papers' meaning.

The compiled round never needs these arrays where the structure is known; see
`afga_jax.kernels`.
"""

import functools
import sys
import typing
from collections.abc import Sequence

import numpy as np
import scipy  # `scipy.sparse` is imported where it is used first

from afga_jax import checks

if typing.TYPE_CHECKING:
    import networkx as nx


def degrees(matrix: np.ndarray) -> np.ndarray:
    """How many others' models each client takes a part of, `[n]`.

    >>> degrees(star(4))
    array([3, 1, 1, 1])
    """
    matrix = np.asarray(matrix)
    return (matrix != 0).sum(1) - (np.diagonal(matrix) != 0)


def spectral_gap(matrix: np.ndarray) -> float:
    """ρ = ‖W − 11ᵀ/n‖₂: the factor by which one mixing contracts disagreement.

    >>> print(round(spectral_gap(ring(8)), 3), round(spectral_gap(ring(50)), 3))
    0.805 0.995
    """
    matrix = np.asarray(matrix, np.float64)
    return float(np.linalg.norm(matrix - 1 / len(matrix), 2))


def mean_square_gap(matrices: Sequence[np.ndarray], link_failure: float) -> float:
    """ρ of matrices one after another, in mean square over links that fail.

    √‖E[WᵀW] − 11ᵀ/n‖₂ with W = W_p ⋯ W_1, where each link is down with probability f by
    itself and its weight then stays with its ends (`gossip.links`). For symmetric
    matrices, with the weight w of a link e = (i, j) and any X,

        E[WXW] = W̄XW̄ + f(1−f)·Σₑ wₑ²(Xᵢᵢ + Xⱼⱼ − 2Xᵢⱼ)(eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ,

    W̄ = E[W] = (1−f)W + f·I on the links. Without failures it is ‖W − 11ᵀ/n‖₂.

    Args:
      matrices: W_1, …, W_p, each `[n, n]`.
      link_failure: f.

    >>> print(mean_square_gap([complete(2)], 0.25))  # kept apart, or one, a quarter
    0.5
    """
    n = len(matrices[0])
    if not link_failure:
        return spectral_gap(functools.reduce(np.matmul, reversed(matrices)))
    squared = np.eye(n)
    for matrix in reversed(matrices):
        squared = mean_square(matrix, link_failure, squared)
    return float(np.sqrt(np.linalg.norm(squared - 1 / n, 2)))


def mean_square(
    matrix: np.ndarray, link_failure: float, inner: np.ndarray | None = None
) -> np.ndarray:
    """E[WXW] over links that fail; see `mean_square_gap`.

    Args:
      matrix: W, symmetric, `[n, n]`; without failures any, and it is E[WᵀXW].
      link_failure: f.
      inner: X, `[n, n]`; None: the identity.
    """
    inner = np.eye(len(matrix)) if inner is None else inner
    links = matrix - np.diag(np.diagonal(matrix))
    mean = (1 - link_failure) * links
    mean += np.diag(1 - mean.sum(1))
    apart = np.add.outer(inner.diagonal(), inner.diagonal()) - 2 * inner
    spread = link_failure * (1 - link_failure) * links**2 * apart
    return mean.T @ inner @ mean + np.diag(spread.sum(1)) - spread


def ring(n: int) -> np.ndarray:
    """Each client and its two neighbours with weight 1/3.

    ρ = 1/3 + 2/3·cos(2π/n) for n ≥ 3. Two clients average; one keeps its model.
    """
    checks.integer("n", n)
    networkx = _networkx()
    return _metropolis(networkx.cycle_graph(n) if n > 2 else networkx.path_graph(n))


def complete(n: int) -> np.ndarray:
    """Everybody averages with everybody: W = 11ᵀ/n, ρ = 0."""
    checks.integer("n", n)
    return np.full((n, n), 1 / n)


def unbalanced_complete(
    n: int, *, seed: int = 0, rho: float | None = None
) -> np.ndarray:
    """Everybody hears everybody, with random symmetric doubly stochastic weights.

    Random positive weights are balanced by Sinkhorn's iteration. As
    ρ(J + c(W − J)) = c·ρ(W) with J = 11ᵀ/n, a wanted ρ is met exactly by moving towards
    J. The papers use ρ = 0.335 (n = 10) and 0.125 (n = 8) without giving the weights.

    Args:
      n: Number of clients.
      seed: Seed of the random weights.
      rho: The wanted ρ, in (0, 1); None leaves the draw as it is.
    """
    checks.integer("n", n, at_least=2)
    if rho is not None:
        checks.number("rho", rho, above=0, below=1, fix="0 is complete(n)")
    draws = np.random.default_rng(seed).standard_normal((n, n))
    # The more the weights are spread out, the larger ρ; 1 for a permutation.
    for spread in 2.0 ** np.arange(0, 9):
        matrix = _sinkhorn(np.exp(spread * (draws + draws.T) / 2))
        if rho is None:
            return matrix
        drawn_rho = spectral_gap(matrix)
        if drawn_rho >= rho:
            return 1 / n + (rho / drawn_rho) * (matrix - 1 / n)
    raise ValueError(
        f"rho = {rho} cannot be reached with n = {n} and seed = {seed}: "
        "lower rho or take another seed."
    )


def random(
    n: int, *, density: float = 0.5, seed: int = 0, rho: float | None = None
) -> np.ndarray:
    """A connected Erdős–Rényi graph with Metropolis weights.

    Args:
      n: Number of clients.
      density: Probability of each edge.
      seed: Seed of the graph.
      rho: Search over densities and seeds for the graph whose ρ is nearest to this
        value and ignore `density`. The papers use 0.455 (n = 50), 0.766 (n = 10) and
        0.599 (n = 8) without giving the graphs; print `spectral_gap` of what you got.
    """
    checks.integer("n", n, at_least=2)
    if rho is not None:
        checks.number("rho", rho, above=0, below=1)
        return _nearest_random(n, seed, rho)
    checks.number("density", density, above=0, at_most=1)
    networkx = _networkx()
    for draw in range(1000):
        graph = networkx.gnp_random_graph(n, density, seed=seed * 1000 + draw)
        if networkx.is_connected(graph):
            return _metropolis(graph)
    raise ValueError(
        f"density = {density} gave no connected graph of n = {n} in 1000 draws: "
        f"raise it, best above ln(n)/n = {np.log(n) / n:.3f}."
    )


def torus(rows: int, columns: int | None = None) -> np.ndarray:
    """A grid that wraps around: weight 1/5 for itself and each of four neighbours.

    Args:
      rows: Number of rows, or the number of clients if `columns` is not given; the grid
        is then as square as the number allows.
      columns: Number of columns.
    """
    steps = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
    return _shifts(_sides(rows, columns), steps)


def exponential(n: int) -> np.ndarray:
    """Each client hears those 1, 2, 4, … behind it; directed, doubly stochastic.

    About log₂ n messages per step with ρ near that of far denser graphs.
    """
    checks.integer("n", n)
    return _shifts((n,), [(offset,) for offset in exponential_offsets(n)])


def star(n: int) -> np.ndarray:
    """One hub, client 0, and n − 1 leaves, Metropolis weights: ρ = 1 − 1/n, n ≥ 3."""
    checks.integer("n", n)
    return _metropolis(_networkx().star_graph(n - 1))


def chain(n: int) -> np.ndarray:
    """A line without ends that meet, Metropolis weights.

    ρ = 1/3 + 2/3·cos(π/n) for n ≥ 3.

    >>> print(round(spectral_gap(chain(8)), 3))
    0.949
    """
    checks.integer("n", n)
    return _metropolis(_networkx().path_graph(n))


def grid(rows: int, columns: int | None = None) -> np.ndarray:
    """A grid whose edges do not meet, Metropolis weights.

    Args:
      rows: As for `torus`, which wraps around.
      columns: As for `torus`.
    """
    return _metropolis(_networkx().grid_2d_graph(*_sides(rows, columns)))


def hypercube(n: int) -> np.ndarray:
    """Clients hear those whose number differs in one binary digit; n = 2ᵈ.

    Weights 1/(d + 1), ρ = (d − 1)/(d + 1) for d ≥ 1.

    >>> print(round(spectral_gap(hypercube(16)), 3))
    0.6
    """
    digits = binary_digits(n)
    clients = np.arange(n)
    matrix = np.eye(n)
    for digit in range(digits):
        matrix[clients, clients ^ (1 << digit)] = 1
    return matrix / (digits + 1)


def small_world(
    n: int, *, neighbours: int = 4, rewired: float = 0.2, seed: int = 0
) -> np.ndarray:
    """A ring of near neighbours with some edges led elsewhere, Metropolis weights.

    Args:
      n: Number of clients.
      neighbours: Number of the nearest clients on the ring that each begins with.
      rewired: Probability with which an edge is led to a random client.
      seed: Seed of the graph.

    Reference: Watts and Strogatz, Collective dynamics of small-world networks, 1998.
    """
    checks.integer("n", n)
    checks.integer("neighbours", neighbours, at_least=2)
    checks.number("rewired", rewired, at_least=0, at_most=1)
    networkx = _networkx()
    if n <= neighbours:
        return complete(n)
    return _metropolis(
        networkx.connected_watts_strogatz_graph(n, neighbours, rewired, 1000, seed)
    )


def two_cliques(n: int) -> np.ndarray:
    """Two halves in which everybody hears everybody, and one edge between them.

    The slowest of the dense graphs: a mixing step moves 1/(1 + ⌈n/2⌉) of one model
    from half to half.
    """
    checks.integer("n", n)
    networkx = _networkx()
    half = (n + 1) // 2
    graph = networkx.disjoint_union(
        networkx.complete_graph(half), networkx.complete_graph(n - half)
    )
    if n > 1:
        graph.add_edge(half - 1, half)
    return _metropolis(graph)


def geographic(
    n: int,
    *,
    radius: float | None = None,
    positions: np.ndarray | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Clients in a plane hear those within a radius, Metropolis weights.

    Args:
      n: Number of clients.
      radius: How far a client is heard; None: just far enough to connect all, the
        longest edge of the shortest tree that does.
      positions: Where the clients are, `[n, 2]`; None: uniform in the unit square.
      seed: Seed of the positions.
    """
    checks.integer("n", n)
    if positions is None:
        positions = np.random.default_rng(seed).random((n, 2))
    positions = np.asarray(positions, np.float64)
    if positions.shape != (n, 2) or not np.isfinite(positions).all():
        raise ValueError(
            f"positions have shape {positions.shape}, but they must be finite numbers "
            f"[n, 2] = [{n}, 2]: give x and y of each client."
        )
    distance = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
    # Clients at the same place are not the same client.
    apart = np.where(distance > 0, distance, 1e-300)
    tree = scipy.sparse.csgraph.minimum_spanning_tree(apart)
    needed = float(tree.max()) if n > 1 else 0.0
    if radius is None:
        radius = needed
    checks.number("radius", radius, at_least=needed, fix="else some hear nobody")
    return _metropolis(_networkx().from_numpy_array(distance <= radius))


def is_graph(given: typing.Any) -> bool:
    """Whether it is a networkx graph; whoever made one has imported that."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(given, networkx.Graph)


def from_graph(graph: "nx.Graph") -> np.ndarray:
    """Metropolis weights 1/(1 + max(dᵢ, dⱼ)) on the edges of any undirected graph.

    Clients are numbered in the graph's node order.

    >>> import networkx
    >>> matrix = from_graph(networkx.petersen_graph())
    >>> print(matrix.shape, round(spectral_gap(matrix), 3))
    (10, 10) 0.5
    """
    if graph.is_directed():
        raise ValueError(
            "graph is directed, but Metropolis weights need an undirected one: "
            "pass graph.to_undirected() or a doubly stochastic matrix."
        )
    if not graph:
        raise ValueError("graph has 0 nodes, but it must have >= 1: add the clients.")
    return _metropolis(graph)


def validated(matrix: np.ndarray, *, connected: bool = True) -> np.ndarray:
    """Returns a mixing matrix in float64, or says what is wrong with it.

    Args:
      matrix: The weights, `[n, n]`.
      connected: Also refuse a graph in which some client never hears of another.
    """
    matrix = np.asarray(matrix, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(
            f"mixing matrix has shape {matrix.shape}, but it must be square [n, n]: "
            "one row and one column for each client."
        )
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise ValueError(
            f"mixing matrix has {matrix[row, column]} at [{row}, {column}], but all "
            "weights must be finite: replace it."
        )
    if (matrix < 0).any():
        row, column = np.argwhere(matrix < 0)[0]
        raise ValueError(
            f"mixing matrix has {matrix[row, column]:g} at [{row}, {column}], but "
            "weights must be >= 0: use Metropolis weights (topology.from_graph)."
        )
    for axis, name in ((1, "row"), (0, "column")):
        sums = matrix.sum(axis)
        worst = int(np.abs(sums - 1).argmax())
        if abs(sums[worst] - 1) > 1e-6:
            raise ValueError(
                f"mixing matrix is not doubly stochastic: {name} {worst} sums to "
                f"{sums[worst]:.6g}, but it must be 1 (to 1e-6): use Metropolis "
                "weights (topology.from_graph)."
            )
    graph = scipy.sparse.csgraph
    parts, _ = graph.connected_components(matrix > 0, connection="strong")
    if connected and parts > 1:
        raise ValueError(
            f"mixing matrix is disconnected: its graph has {parts} parts, but it must "
            "have 1: add edges, or make each part a cluster (clustering=...)."
        )
    return matrix


def grid_shape(n: int) -> tuple[int, int]:
    """The most square grid of n clients.

    >>> grid_shape(100), grid_shape(50)
    ((10, 10), (5, 10))
    """
    checks.integer("n", n)
    rows = max(side for side in range(1, int(n**0.5) + 1) if n % side == 0)
    return rows, n // rows


def exponential_offsets(n: int) -> list[int]:
    """0, 1, 2, 4, … below n."""
    return [0] + [2**power for power in range(int(n).bit_length()) if 2**power < n]


def binary_digits(n: int) -> int:
    """D of n = 2ᵈ, as a hypercube has it."""
    checks.integer("n", n)
    digits = int(n).bit_length() - 1
    if n != 2**digits:
        raise ValueError(
            f"n = {n}, but a hypercube has a power of two: take {2**digits} or "
            f"{2 ** (digits + 1)} clients in a cluster, or topology 'exponential'."
        )
    return digits


def _sides(rows: int, columns: int | None) -> tuple[int, int]:
    """Lengths of a grid's sides; without columns, of `rows` clients."""
    shape = grid_shape(rows) if columns is None else (rows, columns)
    for name, side in zip(("rows", "columns"), shape, strict=True):
        checks.integer(name, side)
    return shape


def _metropolis(graph: "nx.Graph") -> np.ndarray:
    networkx = _networkx()
    graph = networkx.Graph(graph)
    graph.remove_edges_from(list(networkx.selfloop_edges(graph)))
    adjacent = networkx.to_numpy_array(graph, weight=None)
    degree = adjacent.sum(1)
    matrix = adjacent / (1 + np.maximum(degree[:, None], degree[None, :]))
    return matrix + np.diag(1 - matrix.sum(1))


def _shifts(shape: tuple[int, ...], offsets: Sequence[tuple[int, ...]]) -> np.ndarray:
    n = int(np.prod(shape))
    clients = np.arange(n).reshape(shape)
    matrix = np.zeros((n, n))
    for offset in offsets:
        source = np.roll(clients, offset, range(len(shape)))
        matrix[clients.ravel(), source.ravel()] += 1 / len(offsets)
    return matrix


def _nearest_random(n: int, seed: int, rho: float) -> np.ndarray:
    def miss(density: float, draw: int) -> float:
        matrix = random(n, density=density, seed=seed * 1000 + draw)
        return abs(spectral_gap(matrix) - rho)

    densities = np.linspace(min(0.9, 1.2 * np.log(n) / n), 0.95, 30)
    density = min(densities, key=lambda d: np.median([miss(d, i) for i in range(5)]))
    draw = min(range(300), key=lambda i: miss(density, i))
    return random(n, density=density, seed=seed * 1000 + draw)


def _sinkhorn(weights: np.ndarray) -> np.ndarray:
    scale = np.ones(len(weights))
    for _ in range(100_000):
        target = np.sqrt(scale / (weights @ scale))
        if np.abs(target / scale - 1).max() < 1e-15:
            break
        scale = target
    return scale[:, None] * weights * scale[None, :]


def _networkx():
    # Imported late: a fifth of a second that most runs need not wait for.
    import networkx

    return networkx
