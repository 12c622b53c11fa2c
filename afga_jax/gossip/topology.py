"""Mixing matrices as people see them: small, dense, doubly stochastic NumPy arrays.

`W[i, j]` is the weight with which client i takes client j's model. The papers call

    ρ = ‖W − 11ᵀ/n‖₂

the *spectral gap*; it is 0 for exact averaging and tends to 1 as a graph falls apart,
the opposite of the usual gap 1 − |λ₂|. We keep the papers' meaning.

The compiled round never needs these arrays where the structure is known; see
`afga_jax.kernels`.
"""

import sys
import typing
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csgraph

from afga_jax import checks

if typing.TYPE_CHECKING:
    import networkx as nx


def spectral_gap(matrix: np.ndarray) -> float:
    """ρ = ‖W − 11ᵀ/n‖₂: the factor by which one mixing contracts disagreement.

    >>> print(round(spectral_gap(ring(8)), 3), round(spectral_gap(ring(50)), 3))
    0.805 0.995
    """
    matrix = np.asarray(matrix, np.float64)
    return float(np.linalg.norm(matrix - 1 / len(matrix), 2))


def ring(n: int) -> np.ndarray:
    """Each client and its two neighbours with weight 1/3.

    ρ = 1/3 + 2/3·cos(2π/n) for n ≥ 3. Two clients average; one keeps its model.
    """
    return _metropolis(_cycle(n))


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
    shape = grid_shape(rows) if columns is None else (rows, columns)
    for name, side in zip(("rows", "columns"), shape, strict=True):
        checks.integer(name, side)
    steps = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
    return _shifts(shape, steps)


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
    parts, _ = csgraph.connected_components(matrix > 0, connection="strong")
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


def _cycle(n: int) -> "nx.Graph":
    checks.integer("n", n)
    networkx = _networkx()
    return networkx.cycle_graph(n) if n > 2 else networkx.path_graph(n)


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
