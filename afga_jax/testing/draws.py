"""What an algorithm of the package draws, as the boxes take it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax.gossip.base import Mixing
from afga_jax.keys import batch_key
from afga_jax.population.sampling import Plan
from afga_jax.testing.parts import Draws
from afga_jax.typing import Array, Batch, ClientData


def draws_of(
    plan: Plan, data: ClientData, key: Array, mixing: Mixing | None = None
) -> list[Draws]:
    """Who is sampled in each cycle of a round, and every client's batches.

    Args:
      plan: `algorithm.plan(key, round)`.
      data: The clients' data.
      key: The run's key.
      mixing: Says who sends to whom; None: nobody asks.
    """
    cycles = []
    for number, clusters in enumerate(np.asarray(plan.clusters)):
        cycle = plan.cycle(number)
        batches = _batches(data, key, plan.round, number, steps=len(cycle.active))
        active = [_without_padding(ids, data) for ids in np.asarray(cycle.active)]
        upload = _without_padding(cycle.upload, data)
        inputs, targets = np.asarray(batches.inputs), np.asarray(batches.targets)
        peers: list[list[set[int]]] = []
        if mixing is not None:
            peers = _peers(mixing, plan, number, len(active))
        cycles.append(Draws(int(clusters[0]), active, upload, inputs, targets, peers))
    return cycles


def _peers(mixing: Mixing, plan: Plan, cycle: int, steps: int) -> list[list[set[int]]]:
    """To whom each client sends after each step, where all hold a model."""
    matrix_at = jax.vmap(lambda step: mixing.at(plan, step, cycle).matrix())
    matrices = np.asarray(matrix_at(jnp.arange(steps)))
    return [
        [set(np.flatnonzero(sent).tolist()) - {j} for j, sent in enumerate(matrix.T)]
        for matrix in matrices
    ]


@functools.partial(jax.jit, static_argnames="steps")
def _batches(data: ClientData, key: Array, round: Array, cycle: int, *, steps: int):
    """Every client's batch at every step of a cycle, `[steps, clients, ...]`."""

    def batch(step: Array, client: Array) -> Batch:
        return data.batch(batch_key(key, round, cycle, step, client), client)

    over_steps = jax.vmap(jax.vmap(batch, (None, 0)), (0, None))
    return over_steps(jnp.arange(steps), jnp.arange(len(data.sizes)))


def _without_padding(ids: Array, data: ClientData) -> set[int]:
    return {int(i) for i in np.ravel(ids) if i < len(data.sizes)}
