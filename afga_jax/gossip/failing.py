"""Mixing over links that fail, and among clients that leave."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # `scipy.sparse` is imported where it is used first

from afga_jax.gossip.base import AmongTheSame
from afga_jax.gossip.links import Links
from afga_jax.gossip.messages import StepMessages, in_sequence, of_sparse
from afga_jax.mesh import quick_to_compile
from afga_jax.population.sampling import Plan, link_key


@dataclass(frozen=True, eq=False)
class Failing(AmongTheSame):
    """Another mixing, over the links that are up; see `afga_jax.gossip.links`.

    Links are drawn by the plan's key, the step and the ids of their two clients, and
    those of a client that is not there are down (`Toll.until`).

    Attributes:
      mixing: Who mixes with whom where nothing fails; its W must be symmetric.
      num_clients: N.
      link_failure: Probability with which a link is down at a step.
    """

    num_clients: int
    link_failure: float

    def at(self, plan, step, cycle=0):
        toll, there, key = plan.cycle(cycle).toll, None, None
        if toll is not None and toll.until is not None:
            there = step < jnp.asarray(toll.until)
        if self.link_failure:
            key = plan.link_key(step, cycle)
        links = Links(key, self.link_failure, there)
        return self.mixing.over(links, plan, step, cycle)

    def spectral_gap(self):
        return None

    def degrees(self):
        return None

    def sparse(self, plan, step, cycle, ids):
        matrix = self.mixing.sparse(plan, step, cycle, ids)
        return self._kept(plan, [step], cycle, ids, [matrix])[0]

    def sparse_steps(self, plan, steps, cycle, ids):
        matrices = self.mixing.sparse_steps(plan, steps, cycle, ids)
        return self._kept(plan, range(steps), cycle, ids, matrices)

    def messages(self, participants):
        cycles = range(len(participants.clusters))

        def at(round, step, plan):
            matrices = (of_all(plan, step, cycle) for cycle in cycles)
            return in_sequence([of_sparse(matrix)] for matrix in matrices)

        def of_all(plan, step, cycle):
            part = plan.cycle(cycle)
            clients = np.concatenate([np.ravel(part.active), np.ravel(part.upload)])
            ids = self.involved(plan, cycle, clients)
            ids = np.arange(self.num_clients) if ids is None else np.unique(ids)
            return self.sparse(plan, step, cycle, ids[ids < self.num_clients])

        return StepMessages(at, needs_plan=True)

    def _kept(
        self, plan: Plan, steps: Sequence[int], cycle: int, ids: np.ndarray, matrices
    ) -> list:
        """W of each step over the links that are up, all drawn in one call."""
        entries = [
            (step, matrix.tocoo())
            for step, matrix in zip(steps, matrices, strict=True)
            if matrix is not None
        ]
        apart = [each.row != each.col for _, each in entries]
        ends = [
            (np.full(keep.sum(), step), ids[each.row[keep]], ids[each.col[keep]])
            for (step, each), keep in zip(entries, apart, strict=True)
        ]
        if not ends:
            return list(matrices)
        up = self._up(plan, cycle, *map(np.concatenate, zip(*ends, strict=True)))
        each_up = np.split(up, np.cumsum([len(step) for step, _, _ in ends])[:-1])
        kept = iter(
            _with_diagonal(each, keep, here)
            for (_, each), keep, here in zip(entries, apart, each_up, strict=True)
        )
        return [None if matrix is None else next(kept) for matrix in matrices]

    def _up(self, plan: Plan, cycle: int, step, first, second) -> np.ndarray:
        """Which links are up at which steps, on the host; `at` draws the same."""
        toll = plan.cycle(cycle).toll
        up = np.ones(len(first), bool)
        if toll is not None and toll.until is not None:
            until = np.asarray(toll.until)
            up = (step < until[first]) & (step < until[second])
        if not self.link_failure:
            return up
        low, high = np.minimum(first, second), np.maximum(first, second)
        places = np.stack([step, low, high])
        # Each link once a step, and padded, so that few programs are compiled.
        numbers = np.ravel_multi_index(
            places, (int(step.max(initial=0)) + 1, *[self.num_clients] * 2)
        )
        _, chosen, which = np.unique(numbers, return_index=True, return_inverse=True)
        padded = np.zeros((3, max(64, 1 << (len(chosen) - 1).bit_length())), np.int32)
        padded[:, : len(chosen)] = places[:, chosen]
        chances = np.asarray(_chances()(plan.key_data, plan.round, cycle, *padded))
        return up & (chances[which] >= self.link_failure)


def _with_diagonal(entries, apart: np.ndarray, up: np.ndarray):
    """W of the links that are up; what the others weigh returns to the diagonal."""
    row, column = entries.row[apart][up], entries.col[apart][up]
    weight, size = entries.data[apart][up], entries.shape[0]
    own = np.arange(size)
    weights = np.append(weight, 1 - np.bincount(row, weight, minlength=size))
    rows, columns = np.append(row, own), np.append(column, own)
    return scipy.sparse.csr_array((weights, (rows, columns)), entries.shape)


@functools.cache
def _chances() -> Callable:
    """`Links.chances` of links at their steps, compiled."""

    def chances(key_data, round, cycle, step, low, high):
        def draw(step, low, high):
            return Links(link_key(key_data, round, step, cycle)).chances(low, high)

        return jax.vmap(draw)(step, low, high)

    return jax.jit(chances, compiler_options=quick_to_compile())
