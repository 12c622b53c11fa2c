"""Who mixes with whom, and when.

A `Mixing` answers two questions about a plan: which clients hold a model during a cycle
(`rows`), and by which operator their models are mixed after local step t (`at`). An
operator's `apply` is the cheapest exact form, `matrix` the plain reference:
`operator.apply(tree)` equals `gossip(operator.matrix(), tree)`, but for gossip that is
robust (`gossip.robust`), where the matrix has the weights it starts from.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # `scipy.sparse` is imported where it is used first
from jax.sharding import Mesh

from afga_jax.gossip import topology
from afga_jax.gossip.base import Contraction, Mixing, positions
from afga_jax.gossip.kernels import Kernel, by_cluster, gossip, ring
from afga_jax.gossip.links import Links
from afga_jax.gossip.messages import StepMessages, Traffic, in_sequence, of_matrix
from afga_jax.gossip.operators import (
    Operator,
    by_blocks,
    by_matrix,
    on_first,
    ring_of_first,
    same,
    sparse_rings,
)
from afga_jax.gossip.periods import Every, PeriodicAverage, every
from afga_jax.mesh import blocks_of
from afga_jax.population.clustering import Clustering
from afga_jax.typing import Array, PyTree

__all__ = [
    "AmongSelected",
    "Every",
    "Mixing",
    "NoMixing",
    "Operator",
    "PeriodicAverage",
    "RandomMixing",
    "Varying",
    "WithinClusters",
    "every",
    "positions",
]


@dataclass(frozen=True)
class _AmongMembers(Mixing):
    """Mixing that concerns only those who compute."""

    num_clients: int

    def rows(self, plan, cycle=0):
        return plan.cycle(cycle).members

    def holders(self, participants):
        return participants.members

    def involved(self, plan, cycle, clients):
        return clients

    def matrix_entries(self, num_rows):
        return 0


@dataclass(frozen=True)
class NoMixing(_AmongMembers):
    """Nobody mixes."""

    mixes = False

    def at(self, plan, step, cycle=0):
        rows = self.rows(plan, cycle)
        count = self.num_clients if rows is None else len(rows)
        return Operator(same, lambda: jnp.eye(count))

    def spectral_gap(self):
        return 1.0 if self.num_clients > 1 else 0.0

    def messages(self, participants):
        return StepMessages.always(Traffic())

    def sparse(self, plan, step, cycle, ids):
        return None


@dataclass(frozen=True, eq=False)
class WithinClusters(Mixing):
    """All clients of a cluster mix after every step, whoever computed.

    Attributes:
      clustering: One cluster for AFGA, K for CAFGA and HA-Fed.
      kernels: Mixing of each cluster.
    """

    clustering: Clustering
    kernels: list[Kernel]

    def rows(self, plan, cycle=0):
        if self.clustering.members is None:
            return None
        members = jnp.asarray(self.clustering.members, jnp.int32)
        return members[plan.clusters[cycle]].reshape(-1)

    def fixed_rows(self):
        return self.clustering.table().reshape(-1)

    def at(self, plan, step, cycle=0):
        clusters = plan.clusters[cycle]

        def apply(tree, mesh=None):
            return self._mixed(tree, clusters, mesh)

        def matrix():
            return jax.scipy.linalg.block_diag(*self._padded()[clusters])

        return Operator(apply, matrix)

    @property
    def symmetric(self):
        return all(kernel.symmetric for kernel in set(self.kernels))

    def over(self, links, plan, step, cycle=0):
        clusters = plan.clusters[cycle]
        groups, width = len(clusters), self.clustering.width
        ids = jnp.asarray(self.clustering.table(), jnp.int32)[clusters]
        kernel, mix = self._common_kernel, None
        if kernel is not None:
            mix = kernel.over(links, ids.reshape(-1), groups)

        def matrices():
            return links.kept(self._padded()[clusters], ids)

        def apply(tree, mesh=None):
            if mix is not None and kernel.fits_blocks(groups, blocks_of(mesh)):
                return on_first(groups * width, lambda x: mix(x, mesh), tree)
            return self._by_matrices(tree, matrices(), mesh)

        return Operator(apply, lambda: jax.scipy.linalg.block_diag(*matrices()))

    def neighbourhood(self, clients):
        if self.grid(np.ones(1, bool)) is None:
            return super().neighbourhood(clients)
        return self._position[clients]

    def spectral_gap(self):
        return max(kernel.spectral_gap() for kernel in set(self.kernels))

    def contraction(self, link_failure=0.0, every=1):
        if not link_failure:
            return super().contraction(every=every)
        gaps = [
            topology.mean_square_gap([kernel.matrix()], link_failure)
            for kernel in set(self.kernels)
        ]
        return Contraction(max(gaps), every)

    def degrees(self):
        of_kernel = {k: topology.degrees(k.matrix()) for k in set(self.kernels)}
        return np.concatenate([of_kernel[kernel] for kernel in self.kernels])

    def holders(self, participants):
        return participants.sizes

    def messages(self, participants):
        of_kernel = {kernel: kernel.messages() for kernel in set(self.kernels)}
        traffic = [of_kernel[kernel] for kernel in self.kernels]
        cycles = ([traffic[k] for k in cycle] for cycle in participants.clusters)
        return StepMessages.always(in_sequence(cycles))

    def grid(self, mixes):
        kernel = self._common_kernel
        return None if kernel is None else kernel.grid(self.clustering, mixes)

    def sparse(self, plan, step, cycle, ids):
        if len(plan.clusters) == 1:
            return self._sparse
        return super().sparse(plan, step, cycle, ids)

    def matrix_entries(self, num_rows):
        return sum(kernel.entries() for kernel in self.kernels)

    def _mixed(self, tree: PyTree, clusters: Array, mesh: Mesh | None) -> PyTree:
        groups, width, blocks = len(clusters), self.clustering.width, blocks_of(mesh)
        kernel = self._common_kernel
        if width == 1:
            return tree
        if kernel is not None and kernel.fits_blocks(groups, blocks):
            mix = functools.partial(kernel.in_clusters, count=groups, mesh=mesh)
            return on_first(groups * width, mix, tree)
        return self._by_matrices(tree, self._padded()[clusters], mesh)

    def _by_matrices(self, tree: PyTree, matrices: Array, mesh: Mesh | None) -> PyTree:
        """Clusters by their matrices, `[groups, width, width]`."""
        groups, width = len(matrices), self.clustering.width
        if groups % blocks_of(mesh) == 0:
            each = functools.partial(jax.vmap(gossip), matrices)
            mix = functools.partial(by_cluster, each, count=groups)
            return on_first(groups * width, mix, tree)

        # Clusters that several devices share.
        def weights(matrices, to, source):
            to, source = to[:, None], source[None]
            inside = (to // width == source // width) & (to < groups * width)
            block = jnp.minimum(to // width, groups - 1)
            return jnp.where(inside, matrices[block, to % width, source % width], 0)

        return by_blocks(weights, matrices, tree, cast(Mesh, mesh))

    @property
    def _common_kernel(self) -> Kernel | None:
        """The kernel of all clusters; None: they have several."""
        first = self.kernels[0]
        return first if all(kernel is first for kernel in self.kernels) else None

    @functools.cached_property
    def _position(self) -> np.ndarray:
        """The place of each client's model where clusters lie one after another."""
        return np.argsort(self.clustering.table().reshape(-1))

    @functools.cached_property
    def _sparse(self) -> "scipy.sparse.csr_array":
        """All clusters' matrices as one, by client id."""
        blocks = [kernel.sparse() for kernel in self.kernels]
        matrix = scipy.sparse.block_diag(blocks, "coo")
        table = self.clustering.table()
        ids = table[np.arange(table.shape[1]) < self.clustering.sizes[:, None]]
        entries = (matrix.data, (ids[matrix.row], ids[matrix.col]))
        return scipy.sparse.csr_array(entries, shape=matrix.shape)

    def _padded(self) -> Array:
        """`[K, width, width]`; padding keeps its model."""
        blocks = np.stack([np.eye(self.clustering.width)] * len(self.kernels))
        for block, kernel in zip(blocks, self.kernels, strict=True):
            block[: kernel.n, : kernel.n] = kernel.matrix()
        return jnp.asarray(blocks)


@dataclass(frozen=True)
class AmongSelected(_AmongMembers):
    """Only the clients that compute at a step mix: a new ring over them, per cluster.

    The communication-adapted variants AFGA(a) and CAFGA(a). Neighbours are those next
    in client id; everybody else keeps its model.

    Attributes:
      num_clients: N.
    """

    def over(self, links, plan, step, cycle=0):
        return self.at(plan, step, cycle, links)

    def at(self, plan, step, cycle=0, links: Links | None = None):
        part = plan.cycle(cycle)
        active = part.active[step]
        groups, width = active.shape
        holders = self.rows(plan, cycle)
        row = positions(holders, active, self.num_clients)
        count = part.active_count
        count = jnp.full(groups, width) if count is None else count[step]
        rings = jax.vmap(lambda number: ring_of_first(number, width))(count)
        if links is not None:
            rings = links.kept(rings, active)

        def mix(x):
            chosen = x.at[row].get(mode="clip")
            mixed = jnp.einsum("gij,gj...->gi...", rings.astype(x.dtype), chosen)
            # Added, not set: a sum can be transposed (see `rounds.needed`).
            return x.at[row].add(mixed - chosen, mode="drop")

        def matrix():
            total = self.num_clients if holders is None else len(holders)
            return mix(jnp.eye(total))

        return Operator(lambda tree, mesh=None: jax.tree.map(mix, tree), matrix)

    def spectral_gap(self):
        return None

    def messages(self, participants):
        def rings(counts):
            cycles = ([ring(int(n)).messages() for n in cycle if n] for cycle in counts)
            return in_sequence(cycles)

        if participants.active is not None:
            shape = participants.clusters.shape
            return StepMessages.always(rings(np.full(shape, participants.active)))

        def at(round, step, plan):
            return rings(np.asarray(plan.cycles.active_count)[:, step])

        return StepMessages(at, needs_plan=True)

    def sparse(self, plan, step, cycle, ids):
        return sparse_rings(plan.cycle(cycle).active[step], ids, self.num_clients)


@dataclass(frozen=True)
class Varying(Mixing):
    """A matrix for every round and step.

    Rows must sum to one; the graph of a single step need not be connected.

    Attributes:
      matrix_at: `(round, step) -> W`, `[N, N]`, traced.
    """

    matrix_at: Callable[[Array, Array], Array]

    def rows(self, plan, cycle=0):
        return None

    def at(self, plan, step, cycle=0):
        return by_matrix(self._weights(plan, step, cycle))

    def _weights(self, plan, step, cycle):
        return self.matrix_at(plan.round, jnp.asarray(step))

    def spectral_gap(self):
        return None

    def messages(self, participants):
        cycles, matrix_at = len(participants.clusters), jax.jit(self.matrix_at)

        def at(round, step, plan):
            matrix = matrix_at(np.int32(round), np.int32(step))
            return in_sequence([[of_matrix(matrix)]] * cycles)

        return StepMessages(at)


@dataclass(frozen=True)
class RandomMixing(Varying):
    """A random matrix for every step, another for each seed and round.

    Attributes:
      matrix_at: `(key) -> W`, `[N, N]`, traced; rows must sum to one.
    """

    matrix_at: Callable[..., Array]

    def _weights(self, plan, step, cycle):
        return self.matrix_at(plan.mixing_key(step, cycle))

    def messages(self, participants):
        return Mixing.messages(self, participants)
