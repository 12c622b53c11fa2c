"""How one cluster mixes: each topology in its cheapest exact form.

A kernel acts on trees whose leaves are `[n, ...]`, one row per client. `matrix()` is
the plain reference; `apply` does the same without an n × n array where the structure
is known, and `spectral_gap()` uses the closed form there.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # `scipy.sparse` is imported where it is used first
from jax.sharding import Mesh

from afga_jax import checks
from afga_jax.gossip import topology
from afga_jax.gossip.links import Links
from afga_jax.gossip.messages import Traffic, of_matrix
from afga_jax.gossip.stencil import WrappedGrid
from afga_jax.mesh import blocks_of, on_cpu
from afga_jax.population.clustering import Clustering
from afga_jax.typing import PyTree

Mix = Callable[[PyTree, Mesh | None], PyTree]


def gossip(matrix: jax.Array, tree: PyTree) -> PyTree:
    """xᵢ ← Σⱼ Wᵢⱼ·xⱼ for every leaf: the reference that all kernels equal.

    Args:
      matrix: W, `[n, n]`.
      tree: Arrays of one row per client, `[n, ...]`.

    >>> mixed = gossip(topology.ring(3), {"w": jnp.array([0.0, 3.0, 6.0])})
    >>> print(mixed["w"])
    [3. 3. 3.]
    """

    def mix(x):
        return jnp.einsum("ij,j...->i...", jnp.asarray(matrix, x.dtype), x)

    return jax.tree.map(mix, tree)


def by_cluster(mix: Callable[[PyTree], PyTree], tree: PyTree, count: int) -> PyTree:
    """A mixing of `[count, n, ...]`, applied to leaves that are `[count · n, ...]`."""
    split = lambda x: x.reshape(count, -1, *x.shape[1:])  # noqa: E731
    mixed = mix(jax.tree.map(split, tree))
    return jax.tree.map(lambda x, like: x.reshape(like.shape), mixed, tree)


class Kernel(ABC):
    """The mixing of one cluster.

    A kind of kernel defines `n`, `apply`, `matrix` and `spectral_gap`. All else follows
    from these; a kind with more structure has its own closed forms.

    Attributes:
      n: Number of clients in the cluster.
    """

    n: int

    @abstractmethod
    def apply(self, tree: PyTree) -> PyTree:
        """W applied to every leaf, `[n, ...]`."""

    @abstractmethod
    def matrix(self) -> np.ndarray:
        """W, `[n, n]`."""

    @abstractmethod
    def spectral_gap(self) -> float:
        """ρ = ‖W − 11ᵀ/n‖₂."""

    def messages(self) -> Traffic:
        """The messages of one mixing step.

        >>> ring(50).messages(), Star(50).messages()
        (Traffic(messages=100, serial=2), Traffic(messages=98, serial=49))
        """
        return of_matrix(self.matrix())

    @property
    def symmetric(self) -> bool:
        """Whether W = Wᵀ."""
        matrix = self.matrix()
        return bool(np.allclose(matrix, matrix.T, rtol=0, atol=1e-12))

    def sparse(self) -> "scipy.sparse.coo_array":
        """W as a sparse matrix."""
        return scipy.sparse.coo_array(self.matrix())

    def entries(self) -> int:
        """How many numbers `sparse` is made from."""
        return self.n**2

    def over(self, links: Links, ids: jax.Array, count: int) -> Mix | None:
        """The mixing over links that are up, in each of `count` clusters.

        Args:
          links: Which links are up.
          ids: Ids of the clusters' clients, `[count · n]`.
          count: Number of clusters.

        Returns:
          `(tree, mesh) -> tree` without an n × n array; None: there is no such form.
        """
        return None

    def in_clusters(self, tree: PyTree, count: int, mesh: Mesh | None = None) -> PyTree:
        """The same mixing in each of `count` clusters, for leaves `[count · n, ...]`.

        Devices of a mesh share the rows where `fits_blocks` says that they can.
        """
        if count == 1:
            return self.apply(tree)
        return by_cluster(jax.vmap(self.apply), tree, count)

    def fits_blocks(self, count: int, blocks: int) -> bool:
        """Whether so many devices can share the rows of so many clusters."""
        return count % blocks == 0

    def grid(self, clustering: Clustering, mixes: np.ndarray) -> WrappedGrid | None:
        """The clusters as grids that wrap around, where W is a mean of shifts of them.

        Args:
          clustering: Clusters that all mix by this kernel.
          mixes: How often clients mix after each local step, `[steps]`.
        """
        return None


@dataclass(frozen=True)
class Shifts(Kernel):
    """Equal weights on shifted copies of a grid that wraps around.

    Ring, torus and exponential graphs: x ← mean over offsets of roll(x, offset). W is
    normal and diagonal in the Fourier basis, so ρ is the largest |λ| but the first.

    Attributes:
      shape: Lengths of the grid's axes; n is their product.
      offsets: Shift of each copy along the axes.
      make_matrix: W from the lengths of the axes.
    """

    shape: tuple[int, ...]
    offsets: tuple[tuple[int, ...], ...]
    make_matrix: Callable[..., np.ndarray]

    @property
    def n(self) -> int:  # type: ignore[override]
        return int(np.prod(self.shape))

    def apply(self, tree):
        return self.in_clusters(tree, 1)

    def matrix(self):
        return self.make_matrix(*self.shape)

    def spectral_gap(self):
        stencil = np.zeros(self.shape)
        for offset in self.offsets:
            stencil[tuple(np.mod(offset, self.shape))] += 1 / len(self.offsets)
        eigenvalues = np.abs(np.fft.fftn(stencil)).ravel()
        return float(max(eigenvalues[1:], default=0.0))

    def messages(self):
        shifts = {tuple(np.mod(o, self.shape).tolist()) for o in self.offsets}
        degree = sum(any(shift) for shift in shifts)
        return Traffic(self.n * degree, degree)

    def grid(self, clustering, mixes):
        before = np.append(0, np.cumsum(mixes))
        grid = WrappedGrid(clustering, self.shape, self.offsets, before)
        return grid if grid.has_stencil else None

    @property
    def symmetric(self):
        shifts, back = (
            sorted(tuple(np.mod(sign * np.array(o), self.shape)) for o in self.offsets)
            for sign in (1, -1)
        )
        return shifts == back

    def sparse(self):
        rows = np.tile(np.arange(self.n), len(self.offsets))
        sources = np.concatenate([self._sources(o, 1) for o in self.offsets])
        weights = np.full(len(rows), 1 / len(self.offsets))
        return scipy.sparse.coo_array((weights, (rows, sources)), (self.n, self.n))

    def entries(self):
        return self.n * len(self.offsets)

    def fits_blocks(self, count, blocks):
        return True

    def in_clusters(self, tree, count, mesh=None):
        return self._shifted(tree, count, mesh)

    def over(self, links, ids, count):
        up: dict[tuple[int, ...], jax.Array] = {}
        for offset in self.offsets:
            sources = self._sources(offset, count)
            back = tuple(-shift for shift in offset)
            # A link is drawn once, for who is shifted one way.
            up[offset] = (
                up[back][sources] if back in up else links.up(ids, ids[sources])
            )
        return lambda tree, mesh: self._shifted(tree, count, mesh, up)

    def _shifted(self, tree: PyTree, count: int, mesh: Mesh | None, up=None) -> PyTree:
        """The mean of the shifts, of which those whose link is down count as none.

        Args:
          tree: Arrays of one row per client, `[count · n, ...]`.
          count: Number of clusters.
          mesh: Devices that share the rows.
          up: Whether each row's link of a shift is up, by offset; None: all are.
        """

        def shifted(x, offset):
            if mesh is None and on_cpu():
                # Picking rows fuses into one pass over the models; XLA on CPU is slower
                # at the two halves that a roll is made of.
                return x[self._sources(offset, count)]
            return self._rolled(x, offset, count, mesh)

        def increment(x, offset):
            # By differences, so that where all agree nothing changes, not even by
            # rounding.
            change = shifted(x, offset) - x
            if up is None:
                return change
            return jnp.where(up[offset].reshape(-1, *[1] * (x.ndim - 1)), change, 0)

        def mix(x):
            increments = [increment(x, o) for o in self.offsets if any(o)]
            return x + sum(increments, jnp.zeros((), x.dtype)) * (1 / len(self.offsets))

        return jax.tree.map(mix, tree)

    def _rolled(self, x: jax.Array, offset, count: int, mesh) -> jax.Array:
        # A roll over devices sends the rows at the edges of their blocks, and no more.
        grid = self.shape if count == 1 else (count, *self.shape)
        axes = tuple(range(len(grid) - len(self.shape), len(grid)))
        blocks = blocks_of(mesh)
        if len(self.shape) == 1 and count % blocks and blocks % count:
            # Clusters that edges of blocks cut: the compiler would gather all rows. So
            # everybody rolls along, and what crossed a cluster's end is mended.
            nearest = (offset[0] + self.n // 2) % self.n - self.n // 2
            sources = self._sources(offset, count)
            wrong = np.flatnonzero(sources != np.roll(np.arange(len(x)), nearest))
            return jnp.roll(x, nearest, 0).at[wrong].set(x[sources[wrong]])
        return jnp.roll(x.reshape(*grid, *x.shape[1:]), offset, axes).reshape(x.shape)

    def _sources(self, offset: tuple[int, ...], count: int) -> np.ndarray:
        """The row that moves into each row."""
        rows = np.arange(count * self.n, dtype=np.int32).reshape(count, *self.shape)
        return np.roll(rows, offset, tuple(range(1, rows.ndim))).ravel()


@dataclass(frozen=True)
class _OfMean(Kernel):
    """A mixing that is made from the mean of all, which devices can share."""

    n: int

    @property
    def symmetric(self):
        return True

    def fits_blocks(self, count, blocks):
        return count == 1 or super().fits_blocks(count, blocks)


@dataclass(frozen=True)
class Average(_OfMean):
    """The balanced complete graph: everybody gets the mean; ρ = 0."""

    def apply(self, tree):
        return jax.tree.map(lambda x: jnp.broadcast_to(_mean(x)[None], x.shape), tree)

    def matrix(self):
        return topology.complete(self.n)

    def spectral_gap(self):
        return 0.0

    def messages(self):
        return Traffic(self.n * (self.n - 1), self.n - 1)

    def over(self, links, ids, count):
        if links.key is not None:
            return None
        here = links.present(ids).reshape(count, self.n)

        def mix(here, x):
            own = here.reshape(-1, *[1] * (x.ndim - 1))
            others = _mean(jnp.where(own, x, 0))[None] - here.mean(dtype=x.dtype) * x
            return jnp.where(own, x + others, x)

        return functools.partial(_in_each, mix, here)


@dataclass(frozen=True)
class Star(_OfMean):
    """Hub and leaves: the hub gets the mean, a leaf ((n−1)·leaf + hub)/n."""

    def apply(self, tree):
        def mix(x):
            leaves = x + (x[:1] - x) * (1 / self.n)
            return leaves.at[0].set(_mean(x))

        return jax.tree.map(mix, tree)

    def matrix(self):
        return topology.star(self.n)

    def spectral_gap(self):
        return 1 - 1 / self.n if self.n > 2 else 0.0

    def messages(self):
        return Traffic(2 * (self.n - 1), self.n - 1)

    def over(self, links, ids, count):
        ids = ids.reshape(count, self.n)
        up = links.up(ids[:, :1], ids)

        def mix(up, x):
            apart = jnp.where(up.reshape(-1, *[1] * (x.ndim - 1)), x - x[:1], 0)
            leaves = x - apart * (1 / self.n)
            return leaves.at[0].add(_mean(apart))

        return functools.partial(_in_each, mix, up)


@dataclass(frozen=True, eq=False)
class Matrix(Kernel):
    """Any doubly stochastic matrix, by the einsum."""

    weights: np.ndarray

    @property
    def n(self) -> int:  # type: ignore[override]
        return len(self.weights)

    def apply(self, tree):
        return gossip(self.weights, tree)

    def matrix(self):
        return self.weights

    def spectral_gap(self):
        return topology.spectral_gap(self.weights)


@dataclass(frozen=True)
class _Adapted(Kernel):
    """The methods of a kernel whose class is not derived from `Kernel`."""

    n: int
    apply: Any = None
    matrix: Any = None
    spectral_gap: Any = None


def ring(n: int) -> Kernel:
    """`topology.ring(n)` as two rolls."""
    if n < 3:
        return Average(n)
    return Shifts((n,), ((0,), (1,), (-1,)), topology.ring)


def torus(n: int) -> Kernel:
    """`topology.torus(n)` as four rolls."""
    offsets = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))
    return Shifts(topology.grid_shape(n), offsets, topology.torus)


def exponential(n: int) -> Kernel:
    """`topology.exponential(n)` as about log₂ n rolls."""
    offsets = tuple((offset,) for offset in topology.exponential_offsets(n))
    return Shifts((n,), offsets, topology.exponential)


def hypercube(n: int) -> Kernel:
    """`topology.hypercube(n)` as log₂ n rolls of a grid with two cells on each axis."""
    digits = topology.binary_digits(n)
    if digits == 0:
        return Average(1)
    axes = np.eye(digits, dtype=int).tolist()
    offsets = ((0,) * digits, *map(tuple, axes))
    return Shifts((2,) * digits, offsets, lambda *shape: topology.hypercube(n))


def _mean(x: jax.Array) -> jax.Array:
    # As a product: a reduction over the first axis is twenty times as slow on CPU.
    return jnp.tensordot(jnp.full(len(x), 1 / len(x), x.dtype), x, 1)


def _in_each(mix: Callable, mask: jax.Array, tree: PyTree, mesh=None) -> PyTree:
    """`mix(mask, x)` in each cluster, for leaves `[count · n, ...]`.

    Args:
      mix: A mixing of one cluster's array.
      mask: `[count, n]`.
      tree: Arrays of one row per client.
      mesh: Devices that share the rows; the compiler knows what they exchange.
    """
    of_leaf = lambda mask, tree: jax.tree.map(functools.partial(mix, mask), tree)  # noqa: E731
    if len(mask) == 1:
        return of_leaf(mask[0], tree)
    return by_cluster(functools.partial(jax.vmap(of_leaf), mask), tree, len(mask))


def _matrix_of(make: Callable[[int], np.ndarray]) -> Callable[[int], Kernel]:
    # A draw exists from two clients on; one client alone keeps its model.
    return lambda n: Matrix(topology.validated(make(n))) if n > 1 else Average(1)


KERNELS: dict[str, Callable[[int], Kernel]] = {
    "ring": ring,
    "complete": Average,
    "unbalanced_complete": _matrix_of(topology.unbalanced_complete),
    "random": _matrix_of(topology.random),
    "torus": torus,
    "exponential": exponential,
    "star": Star,
    "chain": _matrix_of(topology.chain),
    "grid": _matrix_of(topology.grid),
    "hypercube": hypercube,
    "small_world": _matrix_of(topology.small_world),
    "two_cliques": _matrix_of(topology.two_cliques),
    "geographic": _matrix_of(topology.geographic),
}


def as_kernels(given: Any, sizes: Sequence[int] | np.ndarray) -> list[Kernel]:
    """One kernel for each cluster from what users pass as a topology.

    Args:
      given: A name of `KERNELS`, a matrix, a networkx graph, a kernel (any value with
        `n`, `apply`, `matrix` and `spectral_gap`), a function from the number of
        clients to any of these, or a list with one of these per cluster.
      sizes: Number of clients in each cluster.
    """
    if isinstance(given, (list, tuple)):
        if len(given) != len(sizes):
            raise ValueError(
                f"topology lists {len(given)} graphs, but there are {len(sizes)} "
                "clusters: give one for each cluster, or one for all."
            )
        return [
            _as_kernel(graph, int(n)) for graph, n in zip(given, sizes, strict=True)
        ]
    kernels = {int(n): _as_kernel(given, int(n)) for n in np.unique(sizes)}
    return [kernels[int(n)] for n in sizes]


def _as_kernel(given: Any, n: int) -> Kernel:
    if isinstance(given, str):
        checks.choice("topology", given, KERNELS)
        return KERNELS[given](n)
    if topology.is_graph(given):
        return _sized(Matrix(topology.validated(topology.from_graph(given))), n)
    if hasattr(given, "apply") and not isinstance(given, type):
        if not isinstance(given, Kernel):
            given = _Adapted(given.n, given.apply, given.matrix, given.spectral_gap)
        return _sized(given, n)
    if callable(given):
        return _as_kernel(given(n), n)
    return _sized(Matrix(topology.validated(given)), n)


def _sized(kernel: Kernel, n: int) -> Kernel:
    if kernel.n != n:
        raise ValueError(
            f"topology is for {kernel.n} clients, but its cluster has {n}: give a "
            "graph of that size, or a name such as 'ring' that fits any."
        )
    return kernel
