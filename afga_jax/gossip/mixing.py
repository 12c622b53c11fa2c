"""Who mixes with whom, and when.

A `Mixing` answers two questions about a plan: which clients hold a model during a cycle
(`rows`), and by which operator their models are mixed after local step t (`at`). An
operator's `apply` is the cheapest exact form, `matrix` the plain reference:
`operator.apply(tree)` equals `gossip(operator.matrix(), tree)`, but for gossip that is
robust (`gossip.robust`), where the matrix has the weights it starts from.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # `scipy.sparse` is imported where it is used first
from jax.sharding import Mesh

from afga_jax import checks
from afga_jax.gossip import topology
from afga_jax.gossip.kernels import Average, Kernel, by_cluster, gossip, ring
from afga_jax.gossip.links import Links
from afga_jax.gossip.messages import StepMessages, Traffic, in_sequence, of_matrix
from afga_jax.gossip.operators import (
    Operator,
    by_blocks,
    by_matrix,
    either,
    identity,
    on_first,
    ring_of_first,
    same,
    sparse_rings,
)
from afga_jax.gossip.stencil import WrappedGrid
from afga_jax.mesh import blocks_of
from afga_jax.population.clustering import Clustering
from afga_jax.population.sampling import Participants, Plan
from afga_jax.typing import Array, PyTree


class Mixing(ABC):
    """Who mixes with whom, when.

    A kind of mixing defines `rows`, `at` and `spectral_gap`. All else follows from
    these, by matrices of all rows; a kind with more structure has its own closed forms.
    """

    @abstractmethod
    def rows(self, plan: Plan, cycle: Array | int = 0) -> Array | None:
        """Ids of the clients that hold a model, in row order; None: 0, 1, …, N−1."""

    @abstractmethod
    def at(self, plan: Plan, step: Array | int, cycle: Array | int = 0) -> Operator:
        """The operator of a local step.

        Mixing that is random draws with `plan.mixing_key(step, cycle)`: the same for
        all engines and the ledger, another for every seed, round and step.
        """

    @abstractmethod
    def spectral_gap(self) -> float | None:
        """ρ, the largest over clusters; None where it changes with the plan."""

    @property
    def mixes(self) -> bool:
        """Whether clients ever mix."""
        return True

    #: Whether mixed models are sums of the models by W, whatever these are.
    linear = True
    #: Whether clients remember what their neighbours know of them (`exchange`).
    remembers = False

    def is_due(self, step: Array | int) -> Array | bool:
        """Whether anybody mixes after a local step."""
        return True

    def message_bits(self, size: int) -> float | None:
        """Bits of a message of so many numbers; None: the numbers as they are."""
        return None

    def degrees(self) -> np.ndarray | None:
        """How many neighbours clients have, `[n]`; None: it changes with the plan."""
        return None

    @property
    def symmetric(self) -> bool:
        """Whether W = Wᵀ at every step, as links that fail need it."""
        return True

    def over(
        self, links: Links, plan: Plan, step: Array | int, cycle: Array | int = 0
    ) -> Operator:
        """The operator of a local step over the links that are up.

        Args:
          links: Which links are up at this step.
          plan: The round's plan.
          step: Number of the local step in the cycle.
          cycle: Number of the cycle in the round.
        """
        matrix, ids = self.at(plan, step, cycle).matrix(), self.rows(plan, cycle)
        ids = jnp.arange(len(matrix)) if ids is None else ids
        return by_matrix(links.kept(matrix, ids))

    def neighbourhood(self, clients: np.ndarray) -> np.ndarray:
        """Positions such that clients that are close mix with each other first."""
        return np.zeros(len(clients), np.int64)

    def fixed_rows(self) -> np.ndarray | None:
        """The clients in row order, where it is the same in every round."""
        return None

    def holders(self, participants: Participants) -> np.ndarray:
        """Number of clients that hold a model, `[cycles, groups]`."""
        holders = participants.sizes.copy()
        # Those outside of a cycle's clusters are counted with the first cluster.
        holders[:, 0] += participants.num_clients - holders.sum(1)
        return holders

    def messages(self, participants: Participants) -> StepMessages:
        """The messages of each mixing step."""
        cycles = range(len(participants.clusters))

        def at(round, step, plan):
            matrices = (self.at(plan, step, cycle).matrix() for cycle in cycles)
            return in_sequence([of_matrix(matrix)] for matrix in matrices)

        return StepMessages(at, needs_plan=True)

    def grid(self, mixes: np.ndarray) -> WrappedGrid | None:
        """The clusters as grids that wrap around, where mixing is a mean of shifts.

        Args:
          mixes: Whether clients mix after each local step, `[steps]`.
        """
        return None

    def involved(self, plan: Plan, cycle: int, clients: np.ndarray) -> Array | None:
        """Ids that mixing does not lead out of, among them `clients`; None: all."""
        return self.rows(plan, cycle)

    def sparse(
        self, plan: Plan, step: int, cycle: int, ids: np.ndarray
    ) -> "scipy.sparse.csr_array | None":
        """W of a step among the clients that are involved; None: nobody mixes.

        Args:
          plan: The round's plan, on the host.
          step: Number of the local step in the cycle.
          cycle: Number of the cycle in the round.
          ids: Ids of the clients that are `involved`, sorted and without padding.
        """
        matrix = np.asarray(self.at(plan, step, cycle).matrix(), np.float64)
        rows = self.rows(plan, cycle)
        if rows is not None:
            order = np.argsort(np.asarray(rows), kind="stable")[: len(ids)]
            matrix = matrix[np.ix_(order, order)]
        return scipy.sparse.csr_array(matrix)

    def matrix_entries(self, num_rows: int) -> int:
        """How many numbers the matrices have that `sparse` is made from."""
        return num_rows**2


def positions(rows: Array | None, ids: Array, num_clients: int) -> Array:
    """The rows that hold these clients; padding is sent past the last row."""
    if rows is None:
        return ids
    # By comparing: cheaper to compile than a sort, and few ids are looked up at once.
    row = (ids[..., None] == rows.reshape(*[1] * ids.ndim, -1)).argmax(-1)
    return jnp.where(ids < num_clients, row, len(rows))


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

    def at(self, plan, step, cycle=0):
        return self._rings(plan, step, cycle)

    def over(self, links, plan, step, cycle=0):
        return self._rings(plan, step, cycle, links)

    def _rings(self, plan, step, cycle, links: Links | None = None) -> Operator:
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
class _At(Mixing):
    """Another mixing, at some of the steps."""

    mixing: Mixing

    def rows(self, plan, cycle=0):
        return self.mixing.rows(plan, cycle)

    @property
    def symmetric(self):
        return self.mixing.symmetric

    def spectral_gap(self):
        return self.mixing.spectral_gap()

    def fixed_rows(self):
        return self.mixing.fixed_rows()

    def holders(self, participants):
        return self.mixing.holders(participants)


@dataclass(frozen=True)
class Every(_At):
    """Mix only after every q-th local step of a cycle (HA-Fed, Appendix F.3).

    Attributes:
      mixing: Who mixes with whom.
      period: q.
    """

    period: int

    def at(self, plan, step, cycle=0):
        return self._if_due(self.mixing.at(plan, step, cycle), step)

    def over(self, links, plan, step, cycle=0):
        return self._if_due(self.mixing.over(links, plan, step, cycle), step)

    def _if_due(self, operator: Operator, step: Array | int) -> Operator:
        return either(self.is_due(step), operator, identity(operator))

    def is_due(self, step):
        return (step + 1) % self.period == 0

    def neighbourhood(self, clients):
        return self.mixing.neighbourhood(clients)

    @property
    def mixes(self):
        return self.mixing.mixes

    def messages(self, participants):
        inner = self.mixing.messages(participants)

        def at(round, step, plan):
            due = (step + 1) % self.period == 0
            return inner.at(round, step, plan) if due else Traffic()

        return inner._replace(at=at)

    def degrees(self):
        return self.mixing.degrees()

    def grid(self, mixes):
        due = np.arange(1, len(mixes) + 1) % self.period == 0
        return self.mixing.grid(mixes & due)

    def involved(self, plan, cycle, clients):
        return self.mixing.involved(plan, cycle, clients)

    def sparse(self, plan, step, cycle, ids):
        if (step + 1) % self.period:
            return None
        return self.mixing.sparse(plan, step, cycle, ids)

    def matrix_entries(self, num_rows):
        return self.mixing.matrix_entries(num_rows)


@dataclass(frozen=True)
class PeriodicAverage(_At):
    """Gossip with exact averaging in place of every H-th mixing, counted over rounds.

    Attributes:
      mixing: Who mixes with whom at the other steps.
      num_clients: N.
      period: H.

    Reference: Chen et al., Accelerating gossip SGD with periodic global averaging,
    2021.
    """

    num_clients: int
    period: int

    def at(self, plan, step, cycle=0):
        number = self._number(plan, step)
        others, average = self.mixing.at(plan, step, cycle), self._average(plan, cycle)
        return either(number % self.period == 0, average, others)

    def over(self, links, plan, step, cycle=0):
        matrix, ids = self._average(plan, cycle).matrix(), self.rows(plan, cycle)
        ids = jnp.arange(self.num_clients) if ids is None else ids
        average = by_matrix(links.kept(matrix, ids))
        others = self.mixing.over(links, plan, step, cycle)
        return either(self._number(plan, step) % self.period == 0, average, others)

    def _number(self, plan: Plan, step: Array | int) -> Array:
        """The number of a mixing step, counted over rounds from 1."""
        return plan.round * plan.cycles.active.shape[1] + step + 1

    def _average(self, plan, cycle) -> Operator:
        rows = self.rows(plan, cycle)
        real = jnp.ones(self.num_clients, bool)
        if rows is not None:
            real = rows < self.num_clients

        def average(x):
            here = jnp.pad(real, (0, len(x) - len(real)))
            weights = here.astype(x.dtype) / self.num_clients
            # As a product: a reduction over the first axis is slow on CPU.
            mean = jnp.tensordot(weights, x, 1)[None]
            if len(x) == self.num_clients:
                return jnp.broadcast_to(mean, x.shape)
            # Rows that are nobody's keep what they have.
            return jnp.where(here.reshape(-1, *[1] * (x.ndim - 1)), mean, x)

        def apply(tree, mesh=None):
            return jax.tree.map(average, tree)

        def matrix():
            return average(jnp.eye(len(real)))

        return Operator(apply, matrix)

    def messages(self, participants):
        # Averaging counts as what it is here, a step on the complete graph; a
        # deployment may have a cheaper all-reduce.
        average = Average(self.num_clients).messages()
        average = in_sequence([[average]] * len(participants.clusters))
        inner = self.mixing.messages(participants)

        def at(round, step, plan):
            number = round * participants.steps + step + 1
            return inner.at(round, step, plan) if number % self.period else average

        return inner._replace(at=at)


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
        weights = self._weights(plan, step, cycle)

        def apply(tree, mesh=None):
            if mesh is None:
                return gossip(weights, tree)
            at = lambda table, to, source: table[to[:, None], source[None]]  # noqa: E731
            return by_blocks(at, weights, tree, mesh)

        return Operator(apply, lambda: weights)

    def _weights(self, plan, step, cycle):
        return self.matrix_at(plan.round, jnp.asarray(step))

    def spectral_gap(self):
        return None

    def messages(self, participants):
        cycles = len(participants.clusters)

        def at(round, step, plan):
            matrix = self.matrix_at(np.int32(round), np.int32(step))
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


@dataclass(frozen=True)
class _FromMethods(Mixing):
    """The methods of a mixing whose class is not derived from `Mixing`."""

    rows: Any = None
    at: Any = None
    spectral_gap: Any = None


def every(mixing: Any, period: int, local_steps: int) -> Mixing:
    """Thins out a mixing to every `period`-th step.

    Args:
      mixing: A `Mixing`, or any value with `rows`, `at` and `spectral_gap`.
      period: Number of local steps from one mixing to the next.
      local_steps: Number of local steps of a cycle.
    """
    checks.integer("mix_every", period)
    if period > local_steps:
        raise ValueError(
            f"mix_every = {period}, but it must be <= local_steps = {local_steps}: "
            "otherwise nobody ever mixes. Lower mix_every."
        )
    if not isinstance(mixing, Mixing):
        mixing = _FromMethods(mixing.rows, mixing.at, mixing.spectral_gap)
    return mixing if period == 1 else Every(mixing, period)
