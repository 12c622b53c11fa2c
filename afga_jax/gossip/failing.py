"""Mixing over links that fail, and among clients that leave."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # `scipy.sparse` is imported where it is used first

from afga_jax.gossip.base import Mixing
from afga_jax.gossip.links import Links
from afga_jax.gossip.messages import StepMessages, in_sequence, of_sparse
from afga_jax.mesh import quick_to_compile
from afga_jax.population.sampling import Plan, link_key


@dataclass(frozen=True, eq=False)
class Failing(Mixing):
    """Another mixing, over the links that are up; see `afga_jax.gossip.links`.

    Links are drawn by the plan's key, the step and the ids of their two clients, and
    those of a client that is not there are down (`Toll.until`).

    Attributes:
      mixing: Who mixes with whom where nothing fails; its W must be symmetric.
      num_clients: N.
      link_failure: Probability with which a link is down at a step.
    """

    mixing: Mixing
    num_clients: int
    link_failure: float

    def rows(self, plan, cycle=0):
        return self.mixing.rows(plan, cycle)

    def fixed_rows(self):
        return self.mixing.fixed_rows()

    def holders(self, participants):
        return self.mixing.holders(participants)

    def at(self, plan, step, cycle=0):
        toll, there, key = plan.cycle(cycle).toll, None, None
        if toll is not None and toll.until is not None:
            there = step < jnp.asarray(toll.until)
        if self.link_failure:
            key = plan.link_key(step, cycle)
        links = Links(key, self.link_failure, there)
        return self.mixing.over(links, plan, step, cycle)

    def is_due(self, step):
        return self.mixing.is_due(step)

    def spectral_gap(self):
        return None

    def involved(self, plan, cycle, clients):
        return self.mixing.involved(plan, cycle, clients)

    def neighbourhood(self, clients):
        return self.mixing.neighbourhood(clients)

    def matrix_entries(self, num_rows):
        return self.mixing.matrix_entries(num_rows)

    def sparse(self, plan, step, cycle, ids):
        matrix = self.mixing.sparse(plan, step, cycle, ids)
        if matrix is None:
            return None
        entries = matrix.tocoo()
        apart = entries.row != entries.col
        row, column = entries.row[apart], entries.col[apart]
        up = self._up(plan, step, cycle, ids[row], ids[column])
        row, column, weight = row[up], column[up], entries.data[apart][up]
        kept = np.bincount(row, weight, minlength=len(ids))
        own = np.arange(len(ids))
        rows, columns = np.append(row, own), np.append(column, own)
        weights = np.append(weight, 1 - kept)
        return scipy.sparse.csr_array((weights, (rows, columns)), matrix.shape)

    def messages(self, participants):
        cycles = range(len(participants.clusters))

        def at(round, step, plan):
            matrices = (self._of_all(plan, step, cycle) for cycle in cycles)
            return in_sequence([of_sparse(matrix)] for matrix in matrices)

        return StepMessages(at, needs_plan=True)

    def _of_all(self, plan: Plan, step: int, cycle: int):
        """W of all who mix at a step; None: nobody does."""
        part = plan.cycle(cycle)
        clients = np.concatenate([np.ravel(part.active), np.ravel(part.upload)])
        ids = self.involved(plan, cycle, clients)
        ids = np.arange(self.num_clients) if ids is None else np.unique(ids)
        return self.sparse(plan, step, cycle, ids[ids < self.num_clients])

    def _up(self, plan: Plan, step: int, cycle: int, first, second) -> np.ndarray:
        """Which links are up, on the host; `at` draws the same."""
        toll = plan.cycle(cycle).toll
        up = np.ones(len(first), bool)
        if toll is not None and toll.until is not None:
            there = step < np.asarray(toll.until)
            up = there[first] & there[second]
        if not self.link_failure:
            return up
        ends = np.minimum(first, second) * self.num_clients + np.maximum(first, second)
        # Each link once, and padded, so that few programs are compiled.
        links, which = np.unique(ends, return_inverse=True)
        padded = np.zeros(max(64, 1 << (len(links) - 1).bit_length()), np.int64)
        padded[: len(links)] = links
        low, high = (x.astype(np.int32) for x in np.divmod(padded, self.num_clients))
        place = (plan.key_data, plan.round, step, cycle)
        chances = np.asarray(_chances()(*place, low, high))
        return up & (chances[which] >= self.link_failure)


@functools.cache
def _chances() -> Callable:
    """`Links.chances` of a step, compiled."""

    def chances(key_data, round, step, cycle, low, high):
        return Links(link_key(key_data, round, step, cycle)).chances(low, high)

    return jax.jit(chances, compiler_options=quick_to_compile())
