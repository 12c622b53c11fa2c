"""Who mixes with whom, and when.

A `Mixing` answers two questions about a plan: which clients hold a model during a cycle
(`rows`), and by which operator their models are mixed after local step t (`at`). An
operator's `apply` is the cheapest exact form, `matrix` the plain reference:
`operator.apply(tree)` equals `gossip(operator.matrix(), tree)`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import checks
from afga_jax.clustering import Clustering
from afga_jax.kernels import Average, Kernel, Shifts, gossip
from afga_jax.participation import Plan
from afga_jax.typing import Array, PyTree


class Operator(NamedTuple):
    """The mixing of one step, on trees whose leaves are `[rows, ...]`."""

    apply: Callable[[PyTree], PyTree]
    matrix: Callable[[], Array]


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
        return Operator(lambda tree: tree, lambda: jnp.eye(count))

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
        groups = plan.clusters.shape[1]
        width = self.clustering.width
        first = self.kernels[0]
        if any(kernel is not first for kernel in self.kernels):
            chosen = self._padded()[plan.clusters[cycle]]
            mix = jax.vmap(gossip)
            apply = _blocks(lambda tree: mix(chosen, tree), groups)
        elif isinstance(first, Shifts):
            apply = functools.partial(first.apply_blocks, blocks=groups)
        else:
            apply = _blocks(jax.vmap(first.apply), groups)

        def matrix():
            blocks = self._padded()[plan.clusters[cycle]]
            return jax.scipy.linalg.block_diag(*blocks)

        return Operator(apply if width > 1 else lambda tree: tree, matrix)

    def spectral_gap(self):
        return max(kernel.spectral_gap() for kernel in set(self.kernels))

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
        rings = jax.vmap(lambda number: _ring_of_first(number, width))(count)

        def mix(x):
            chosen = x.at[place].get(mode="clip")
            mixed = jnp.einsum("gij,gj...->gi...", rings.astype(x.dtype), chosen)
            # Added, not set: a sum can be transposed (see `reach`).
            return x.at[place].add(mixed - chosen, mode="drop")

        def matrix():
            total = self.num_clients if rows is None else len(rows)
            identity = jnp.eye(total)
            return mix(identity)

        return Operator(lambda tree: jax.tree.map(mix, tree), matrix)

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
        return _either((step + 1) % self.period == 0, operator, _identity(operator))

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
        exact = Operator(average.apply, lambda: jnp.asarray(average.matrix()))
        operator = self.mixing.at(plan, step, cycle)
        return _either(number % self.period == 0, exact, operator)

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
        return Operator(lambda tree: gossip(weights, tree), lambda: weights)

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


def _identity(like: Operator) -> Operator:
    return Operator(lambda tree: tree, lambda: jnp.eye(len(like.matrix())))


def _either(condition: Array, first: Operator, second: Operator) -> Operator:
    return Operator(
        lambda tree: jax.lax.cond(condition, first.apply, second.apply, tree),
        lambda: jnp.where(condition, first.matrix(), second.matrix()),
    )


def _blocks(mix: Callable, groups: int) -> Callable:
    def apply(tree):
        split = lambda x: x.reshape(groups, -1, *x.shape[1:])  # noqa: E731
        mixed = mix(jax.tree.map(split, tree))
        return jax.tree.map(lambda x, like: x.reshape(like.shape), mixed, tree)

    return apply


def _ring_of_first(count: Array, width: int) -> Array:
    """The ring's matrix over the first `count` of `width` places."""
    place = jnp.arange(width)
    number = jnp.maximum(count, 1)
    neighbours = [place, (place + 1) % number, (place - 1) % number]
    ring = sum(jax.nn.one_hot(n, width, dtype=float) for n in neighbours) / 3
    pair = (
        jax.nn.one_hot(place, width, dtype=float)
        + jax.nn.one_hot(1 - place, width, dtype=float)
    ) / 2
    ring = jnp.where(count == 2, pair, ring)
    real = place < count
    return jnp.where(real[:, None], ring, jnp.eye(width))
