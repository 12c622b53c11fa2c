"""Who mixes with whom, and when.

A `Mixing` answers two questions about a plan: which clients hold a model during a cycle
(`rows`), and by which operator their models are mixed after local step t (`at`). An
operator's `apply` is the cheapest exact form, `matrix` the plain reference:
`operator.apply(tree)` equals `gossip(operator.matrix(), tree)`. `on` is the same for
rows that several devices share.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import checks, exchange
from afga_jax.clustering import Clustering
from afga_jax.kernels import Average, Kernel, Shifts, gossip
from afga_jax.operators import (
    Operator,
    either,
    identity,
    in_blocks,
    ring_of_first,
    same,
)
from afga_jax.participation import Plan
from afga_jax.shares import Share
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
        return Operator(same, lambda: jnp.eye(count), lambda share: same)

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

    def at(self, plan, step, cycle=0):
        clusters = plan.clusters[cycle]

        def matrix():
            return jax.scipy.linalg.block_diag(*self._padded()[clusters])

        split = functools.partial(self._split, clusters)
        return Operator(self._apply(clusters), matrix, split)

    def spectral_gap(self):
        return max(kernel.spectral_gap() for kernel in set(self.kernels))

    def _apply(self, clusters: Array) -> Callable[[PyTree], PyTree]:
        groups, first = len(clusters), self.kernels[0]
        if self.clustering.width == 1:
            return same
        if not self._are_alike:
            chosen = self._padded()[clusters]
            mix = jax.vmap(gossip)
            return in_blocks(lambda tree: mix(chosen, tree), groups)
        if isinstance(first, Shifts):
            return functools.partial(first.apply_blocks, blocks=groups)
        return in_blocks(jax.vmap(first.apply), groups)

    def _split(self, clusters: Array, share: Share) -> Callable[[PyTree], PyTree]:
        """Clusters that live on one device each need nothing from the others."""
        groups, width = len(clusters), self.clustering.width
        if width == 1:
            return same
        if groups % share.devices == 0:
            return self._apply(Share(groups, share.axis).mine(clusters))
        form = exchange.form_of(self.kernels[0]) if self._are_alike else None
        if form is not None:
            return form(self.kernels[0], share)
        blocks = self._padded()[clusters]

        def weights(to, source):
            to, source = to[:, None], source[None]
            inside = (to // width == source // width) & (to < share.rows)
            block = jnp.minimum(to // width, groups - 1)
            return jnp.where(inside, blocks[block, to % width, source % width], 0)

        return exchange.by_matrix(weights, share)

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

        def split(share):
            # The selected change with every step: their models go to every device.
            def mix(x):
                chosen = share.collect(x, place.reshape(-1))
                chosen = chosen.reshape(*place.shape, *x.shape[1:])
                moved = jnp.einsum("gij,gj...->gi...", rings.astype(x.dtype), chosen)
                return x.at[share.local(place)].add(moved - chosen, mode="drop")

            return lambda tree: jax.tree.map(mix, tree)

        return Operator(lambda tree: jax.tree.map(mix, tree), matrix, split)

    def spectral_gap(self):
        return None


@dataclass(frozen=True)
class Every:
    """Mix only after every q-th local step of a cycle (HA-Fed, Appendix F.3)."""

    mixing: Mixing
    period: int

    def rows(self, plan, cycle=0):
        return self.mixing.rows(plan, cycle)

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

    def at(self, plan, step, cycle=0):
        steps = plan.cycles.active.shape[1]
        number = plan.round * steps + step + 1
        average = Average(self.num_clients)
        exact = Operator(
            average.apply,
            lambda: jnp.asarray(average.matrix()),
            functools.partial(exchange.averaged, average),
        )
        rows = self.rows(plan, cycle)
        if rows is not None and len(rows) > self.num_clients:
            exact = _average_of_real(rows < self.num_clients, self.num_clients)
        operator = self.mixing.at(plan, step, cycle)
        return either(number % self.period == 0, exact, operator)

    def spectral_gap(self):
        return self.mixing.spectral_gap()


def _average_of_real(real: Array, count: int) -> Operator:
    """The mean of the `count` rows that are a client's; padding keeps its model."""

    def mean_on(share: Share) -> Callable[[PyTree], PyTree]:
        mine = share.mine(real)

        def mix(x):
            mean = share.total(jnp.tensordot((mine / count).astype(x.dtype), x, 1))
            return jnp.where(mine.reshape(-1, *[1] * (x.ndim - 1)), mean[None], x)

        return lambda tree: jax.tree.map(mix, tree)

    apply = mean_on(Share(len(real)))
    return Operator(apply, lambda: apply(jnp.eye(len(real))), mean_on)


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

        def split(share):
            at = lambda to, source: weights[to[:, None], source[None]]  # noqa: E731
            return exchange.by_matrix(at, share)

        return Operator(lambda tree: gossip(weights, tree), lambda: weights, split)

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
