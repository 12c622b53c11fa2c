"""Who mixes with whom, and when.

A `Mixing` answers two questions about a plan: which clients hold a model during a cycle
(`rows`), and by which operator their models are mixed after local step t (`at`). An
operator's `apply` is the cheapest exact form, `matrix` the plain reference:
`operator.apply(tree)` equals `gossip(operator.matrix(), tree)`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from afga_jax import checks
from afga_jax.clustering import Clustering
from afga_jax.kernels import Average, Kernel, Shifts, Star, gossip
from afga_jax.mesh import blocks_of
from afga_jax.operators import (
    Operator,
    by_blocks,
    either,
    identity,
    in_clusters,
    on_first,
    ring_of_first,
    same,
)
from afga_jax.participation import Plan
from afga_jax.typing import Array, PyTree


class Mixing(Protocol):
    """Who mixes with whom, when."""

    def rows(self, plan: Plan, cycle: Array | int = 0) -> Array | None:
        """Ids of the clients that hold a model, in row order; None: 0, 1, …, N−1."""

    def at(self, plan: Plan, step: Array | int, cycle: Array | int = 0) -> Operator:
        """The operator of a local step."""

    def spectral_gap(self) -> float | None:
        """ρ, the largest over clusters; None where it changes with the plan."""


def positions(rows: Array | None, ids: Array, num_clients: int) -> Array:
    """The rows that hold these clients; padding is sent past the last row."""
    if rows is None:
        return ids
    # By comparing: cheaper to compile than a sort, and few ids are looked up at once.
    found = (ids[..., None] == rows.reshape(*[1] * ids.ndim, -1)).argmax(-1)
    return jnp.where(ids < num_clients, found, len(rows))


@dataclass(frozen=True)
class NoMixing:
    """Nobody mixes."""

    num_clients: int

    def rows(self, plan, cycle=0):
        return plan.cycle(cycle).members

    def at(self, plan, step, cycle=0):
        rows = self.rows(plan, cycle)
        count = self.num_clients if rows is None else len(rows)
        return Operator(same, lambda: jnp.eye(count))

    def spectral_gap(self):
        return 1.0 if self.num_clients > 1 else 0.0


@dataclass(frozen=True, eq=False)
class WithinClusters:
    """All clients of a cluster mix after every step, whoever computed.

    Attributes:
      clustering: One cluster for AFGA, K for CAFGA and HA-Fed.
      kernels: One per cluster.
    """

    clustering: Clustering
    kernels: list[Kernel]

    def rows(self, plan, cycle=0):
        if self.clustering.members is None:
            return None
        members = jnp.asarray(self.clustering.members, jnp.int32)
        return members[plan.clusters[cycle]].reshape(-1)

    def fixed_rows(self) -> np.ndarray:
        """The clients in row order, where a cycle has all clusters."""
        return self.clustering.table().reshape(-1)

    def at(self, plan, step, cycle=0):
        clusters = plan.clusters[cycle]

        def apply(tree, mesh=None):
            return self._mixed(tree, clusters, mesh)

        def matrix():
            return jax.scipy.linalg.block_diag(*self._padded()[clusters])

        return Operator(apply, matrix)

    def spectral_gap(self):
        return max(kernel.spectral_gap() for kernel in set(self.kernels))

    def _mixed(self, tree: PyTree, clusters: Array, mesh: Mesh | None) -> PyTree:
        groups, width = len(clusters), self.clustering.width
        alike, kernel = self._are_alike, self.kernels[0]
        if width == 1:
            return tree
        mix: Callable[[PyTree], PyTree]
        if alike and isinstance(kernel, Shifts):
            mix = functools.partial(kernel.in_clusters, count=groups, mesh=mesh)
        elif alike and groups == 1 and isinstance(kernel, Average | Star):
            mix = kernel.apply
        elif groups % blocks_of(mesh) == 0:
            each: Callable[[PyTree], PyTree] = jax.vmap(kernel.apply)
            if not alike:
                each = functools.partial(jax.vmap(gossip), self._padded()[clusters])
            mix = in_clusters(each, groups)
        else:
            return self._by_blocks(tree, clusters, cast(Mesh, mesh))
        return on_first(groups * width, mix, tree)

    def _by_blocks(self, tree: PyTree, clusters: Array, mesh: Mesh) -> PyTree:
        """Clusters that several devices share, by their matrices."""
        groups, width = len(clusters), self.clustering.width

        def weights(blocks, to, source):
            to, source = to[:, None], source[None]
            inside = (to // width == source // width) & (to < groups * width)
            block = jnp.minimum(to // width, groups - 1)
            return jnp.where(inside, blocks[block, to % width, source % width], 0)

        return by_blocks(weights, self._padded()[clusters], tree, mesh)

    @property
    def _are_alike(self) -> bool:
        return all(kernel is self.kernels[0] for kernel in self.kernels)

    def _padded(self) -> Array:
        """`[K, width, width]`; padding keeps its model."""
        blocks = np.stack([np.eye(self.clustering.width)] * len(self.kernels))
        for block, kernel in zip(blocks, self.kernels, strict=True):
            block[: kernel.n, : kernel.n] = kernel.matrix()
        return jnp.asarray(blocks)


@dataclass(frozen=True)
class AmongSelected:
    """Only the clients that compute at a step mix: a new ring over them, per cluster.

    The communication-adapted variants AFGA(a) and CAFGA(a). Neighbours are those next
    in client id; everybody else keeps its model.

    Attributes:
      num_clients: N.
    """

    num_clients: int

    def rows(self, plan, cycle=0):
        return plan.cycle(cycle).members

    def at(self, plan, step, cycle=0):
        part = plan.cycle(cycle)
        active = part.active[step]
        groups, width = active.shape
        rows = self.rows(plan, cycle)
        place = positions(rows, active, self.num_clients)
        count = part.active_count
        count = jnp.full(groups, width) if count is None else count[step]
        rings = jax.vmap(lambda number: ring_of_first(number, width))(count)

        def mix(x):
            chosen = x.at[place].get(mode="clip")
            mixed = jnp.einsum("gij,gj...->gi...", rings.astype(x.dtype), chosen)
            # Added, not set: a sum can be transposed (see `reach`).
            return x.at[place].add(mixed - chosen, mode="drop")

        def matrix():
            total = self.num_clients if rows is None else len(rows)
            return mix(jnp.eye(total))

        return Operator(lambda tree, mesh=None: jax.tree.map(mix, tree), matrix)

    def spectral_gap(self):
        return None


@dataclass(frozen=True)
class Every:
    """Mix only after every q-th local step of a cycle (HA-Fed, Appendix F.3)."""

    mixing: Mixing
    period: int

    def rows(self, plan, cycle=0):
        return self.mixing.rows(plan, cycle)

    def fixed_rows(self) -> np.ndarray | None:
        """The clients in row order, if it is the same in every round."""
        return getattr(self.mixing, "fixed_rows", lambda: None)()

    def at(self, plan, step, cycle=0):
        operator = self.mixing.at(plan, step, cycle)
        return either((step + 1) % self.period == 0, operator, identity(operator))

    def spectral_gap(self):
        return self.mixing.spectral_gap()


@dataclass(frozen=True)
class PeriodicAverage:
    """Gossip with exact averaging in place of every H-th mixing, counted over rounds.

    Reference: Chen et al., Accelerating gossip SGD with periodic global averaging,
    2021.
    """

    mixing: Mixing
    num_clients: int
    period: int

    def rows(self, plan, cycle=0):
        return self.mixing.rows(plan, cycle)

    def fixed_rows(self) -> np.ndarray | None:
        """The clients in row order, if it is the same in every round."""
        return getattr(self.mixing, "fixed_rows", lambda: None)()

    def at(self, plan, step, cycle=0):
        steps = plan.cycles.active.shape[1]
        number = plan.round * steps + step + 1
        operator, rows = self.mixing.at(plan, step, cycle), self.rows(plan, cycle)
        real = jnp.ones(self.num_clients, bool)
        if rows is not None:
            real = rows < self.num_clients

        def average(x):
            here = jnp.pad(real, (0, len(x) - len(real)))
            shares = here.astype(x.dtype) / self.num_clients
            # As a product: a reduction over the first axis is slow on CPU.
            mean = jnp.tensordot(shares, x, 1)[None]
            if len(x) == self.num_clients:
                return jnp.broadcast_to(mean, x.shape)
            # Rows that are nobody's keep what they have.
            return jnp.where(here.reshape(-1, *[1] * (x.ndim - 1)), mean, x)

        def apply(tree, mesh=None):
            return jax.tree.map(average, tree)

        def matrix():
            return average(jnp.eye(len(real)))

        return either(number % self.period == 0, Operator(apply, matrix), operator)

    def spectral_gap(self):
        return self.mixing.spectral_gap()


@dataclass(frozen=True)
class Varying:
    """A matrix for every round and step: `matrix_at(round, step) -> [N, N]`, traced.

    Rows must sum to one; the graph of a single step need not be connected.
    """

    matrix_at: Callable[[Array, Array], Array]

    def rows(self, plan, cycle=0):
        return None

    def at(self, plan, step, cycle=0):
        weights = self.matrix_at(plan.round, jnp.asarray(step))

        def apply(tree, mesh=None):
            if mesh is None:
                return gossip(weights, tree)
            at = lambda table, to, source: table[to[:, None], source[None]]  # noqa: E731
            return by_blocks(at, weights, tree, mesh)

        return Operator(apply, lambda: weights)

    def spectral_gap(self):
        return None


def every(mixing: Mixing, period: int, local_steps: int) -> Mixing:
    """Thins out a mixing to every `period`-th step."""
    checks.integer("mix_every", period)
    if period > local_steps:
        raise ValueError(
            f"mix_every = {period}, but it must be <= local_steps = {local_steps}: "
            "otherwise nobody ever mixes. Lower mix_every."
        )
    return mixing if period == 1 else Every(mixing, period)
