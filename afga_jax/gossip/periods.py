"""How often clients mix: at every q-th step, several times, or exactly in between."""

import functools
import operator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import checks
from afga_jax.gossip.base import AmongTheSame, Around, Mixing
from afga_jax.gossip.kernels import Average
from afga_jax.gossip.messages import Traffic, in_sequence
from afga_jax.gossip.operators import Operator, by_matrix, either, identity
from afga_jax.population.sampling import Plan
from afga_jax.typing import Array


@dataclass(frozen=True)
class Every(AmongTheSame):
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

    def _if_due(self, mix: Operator, step: Array | int) -> Operator:
        return either(self.is_due(step), mix, identity(mix))

    def is_due(self, step):
        return (step + 1) % self.period == 0

    def contraction(self, link_failure=0.0, every=1):
        return self.mixing.contraction(link_failure, every * self.period)

    def messages(self, participants):
        inner = self.mixing.messages(participants)

        def at(round, step, plan):
            return inner.at(round, step, plan) if self.is_due(step) else Traffic()

        return inner._replace(at=at)

    def grid(self, mixes):
        due = np.arange(1, len(mixes) + 1) % self.period == 0
        return self.mixing.grid(mixes * due)

    def sparse(self, plan, step, cycle, ids):
        if (step + 1) % self.period:
            return None
        return self.mixing.sparse(plan, step, cycle, ids)


@dataclass(frozen=True)
class Repeated(AmongTheSame):
    """Mix several times after a step, by the same matrix: W^Q in place of W.

    Links that fail at a step are down for all its mixings.

    Attributes:
      mixing: Who mixes with whom.
      times: Q.
    """

    times: int

    @property
    def linear(self):
        return self.mixing.linear

    def at(self, plan, step, cycle=0):
        once = self.mixing.at(plan, step, cycle)

        def apply(tree, mesh=None):
            for _ in range(self.times):
                tree = once.apply(tree, mesh)
            return tree

        return Operator(
            apply, lambda: jnp.linalg.matrix_power(once.matrix(), self.times)
        )

    def spectral_gap(self):
        contraction = self.contraction()
        return None if contraction is None else contraction.rho

    def contraction(self, link_failure=0.0, every=1):
        """ρ^Q where W is the same at every step, otherwise it is not known."""
        once = self.mixing.contraction(link_failure, every)
        if once is None or link_failure or self.degrees() is None:
            return None
        return once._replace(rho=once.rho**self.times)

    def messages(self, participants):
        once = self.mixing.messages(participants)

        def at(round, step, plan):
            return Traffic(*(self.times * x for x in once.at(round, step, plan)))

        return once._replace(at=at)

    def grid(self, mixes):
        return self.mixing.grid(self.times * mixes)

    def sparse(self, plan, step, cycle, ids):
        return self._power(self.mixing.sparse(plan, step, cycle, ids))

    def sparse_steps(self, plan, steps, cycle, ids):
        once = self.mixing.sparse_steps(plan, steps, cycle, ids)
        return [self._power(matrix) for matrix in once]

    def matrix_entries(self, num_rows):
        return self.times * self.mixing.matrix_entries(num_rows)

    def _power(self, matrix):
        if matrix is None:
            return None
        return functools.reduce(operator.matmul, [matrix] * self.times)


@dataclass(frozen=True)
class PeriodicAverage(Around):
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

    # Also where nobody mixes in between.
    mixes = True

    def is_due(self, step):
        return True

    def degrees(self):
        return None

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


def repeated(mixing: Mixing, times: int) -> Mixing:
    """Each mixing `times` times in a row.

    Args:
      mixing: Who mixes with whom, and what goes wrong with it.
      times: Q.
    """
    if times == 1:
        return mixing
    if mixing.remembers:
        raise ValueError(
            f"mix_times = {times}, but compressed gossip follows each model by one "
            "message per step: leave mix_times out, or compress_gossip."
        )
    return Repeated(mixing, times)
