"""The compiled round against the papers' boxes in NumPy, in double precision.

Tolerance 1e-10: the two sum in different orders, so they differ by rounding (1e-16 per
operation), amplified by 1/√ε ≤ 1e4 in the adaptive steps. Changing single lines of the
reference (ε outside the root, no max, Wᵀ, H counted per round, …) moved the models by
2e-5 at the least.
"""

from functools import partial

import jax
import numpy as np
import pytest

import reference_parts as parts
import toy
from afga_jax.algorithms import build
from afga_jax.keys import batch_key
from reference_cases import CASES, Case

CLIENTS, STEPS, ROUNDS = 9, 4, 4
SIZES = [2, 5, 3, 7, 4, 6, 2, 5, 3]

close = partial(np.testing.assert_allclose, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_round_is_the_papers_box(name, x64):
    start, rounds = run(CASES[name])
    for state, info, expected in rounds:
        params, stats = flat(state)
        close(params, expected.params)
        close(stats, expected.stats)
        needed = expected.losses if expected.needed is None else expected.needed
        close(info.loss, np.mean(needed))
        assert info.needed == len(needed)
        assert info.gradients == len(expected.losses)
        assert info.uploads == expected.uploads
    assert np.abs(params - start).max() > 0.01


def run(case: Case):
    """The start, and each round's state and info beside what the reference says."""
    labels = case.labels or [0] * CLIENTS
    algorithm = build(
        case.algorithm,
        toy.logistic(norm=case.norm),
        num_clients=CLIENTS,
        local_steps=STEPS,
        clustering=labels,
        **case.numbers,
        **case.options,
    )
    data, key = toy.clients(CLIENTS, sizes=SIZES), jax.random.key(3)

    @jax.jit
    def advance(state):
        plan = algorithm.plan(key, state.round)
        return plan, *algorithm.round(key, state, data, plan)

    state = algorithm.init(key)
    clusters = [
        np.flatnonzero(np.equal(labels, k)).tolist() for k in sorted(set(labels))
    ]
    problem = parts.Problem(*flat(state), np.array(SIZES), clusters)
    plans, states, infos = [], [], []
    for _ in range(ROUNDS):
        plan, state, info = advance(state)
        plans.append(draws(plan, data, key))
        states.append(state)
        infos.append(info)
    expected = case.expected(problem, plans, **case.numbers)
    return problem.params, zip(states, infos, expected, strict=True)


def draws(plan, data, key) -> list[parts.Draws]:
    """Who is sampled in the cycles of a round, from its plan, and their batches."""
    cycles = []
    for number, clusters in enumerate(np.asarray(plan.clusters)):
        cycle = plan.cycle(number)
        batch = jax.tree.map(np.asarray, batches(data, key, plan.round, number))
        active = [real(at) for at in cycle.active]
        drawn = parts.Draws(clusters[0], active, real(cycle.upload), *batch[:2])
        cycles.append(drawn)
    return cycles


@jax.jit
def batches(data, key, round, cycle):
    """Every client's batch at every step of a cycle, `[steps, clients, ...]`."""

    def one(step, client):
        return data.batch(batch_key(key, round, cycle, step, client), client)

    steps, clients = np.arange(STEPS), np.arange(CLIENTS)
    return jax.vmap(lambda step: jax.vmap(partial(one, step))(clients))(steps)


def real(padded) -> set[int]:
    """Client ids without the padding."""
    return {int(i) for i in np.ravel(padded) if i < CLIENTS}


def flat(state) -> tuple[np.ndarray, np.ndarray]:
    """A state's parameters, weights before bias, and its statistics, as vectors."""
    params = np.concatenate([np.ravel(state.params[name]) for name in ("w", "b")])
    stats = state.stats["mean"] if state.stats else np.zeros(0)
    return params, np.asarray(stats)
