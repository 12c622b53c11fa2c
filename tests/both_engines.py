"""Rounds of both engines against what a box says of them."""

from functools import partial

import jax
import numpy as np

import afga_jax
import toy
from afga_jax.testing import BoxResult, BoxStart, boxes, draws_of

ROUNDS = 2

close = partial(np.testing.assert_allclose, rtol=0, atol=1e-10)


def compare(algorithm, data, key, **numbers) -> list[BoxResult]:
    """Asserts that both engines compute `boxes.by_matrices`, and returns its rounds.

    Tolerance 1e-10: they sum in different orders, and the adaptive step amplifies
    rounding by 1/√ε = 1e4.
    """
    start = jax.jit(algorithm.init)(key)
    labels = algorithm.recipe.clustering.labels()
    clusters = [np.flatnonzero(labels == k).tolist() for k in range(labels.max() + 1)]
    problem = BoxStart(*toy.flat(start), np.asarray(data.sizes), clusters)
    plans, dense = dense_rounds(algorithm, start, data, key)
    draws = [draws_of(plan, data, key) for plan in plans]
    expected = list(boxes.by_matrices(problem, draws, **numbers))
    assert_same("dense", dense, expected)
    assert_same("span", span_rounds(algorithm, start, data, key), expected)
    assert np.abs(expected[-1].params - problem.params).max() > 0.01
    return expected


def dense_rounds(algorithm, state, data, key):
    """Each round's plan, and each round's state and info."""

    @jax.jit
    def advance(state):
        plan = algorithm.plan(key, state.round)
        return plan, algorithm.round(key, state, data, plan)

    plans, seen = [], []
    for _ in range(ROUNDS):
        plan, (state, info) = advance(state)
        plans.append(plan)
        seen.append((state, info))
    return plans, seen


def span_rounds(algorithm, state, data, key, width=2):
    """Each round's state and info."""
    # As many rounds as a schedule is sized by, so that plans are compiled once.
    trainer = afga_jax.Trainer(
        algorithm,
        afga_jax.Execution("span", slot_width=width),
        capacity=8,
        observe=lambda *seen: seen,
    )
    _, seen = trainer.run(key, state, data, ROUNDS)
    assert trainer.choice.engine == "span"
    return [jax.tree.map(lambda x: x[number], seen) for number in range(ROUNDS)]  # noqa: B023


def assert_same(engine, rounds, expected):
    for (state, info), right in zip(rounds, expected, strict=True):
        params, stats = toy.flat(state)
        close(params, right.params, err_msg=engine)
        close(stats, right.stats, err_msg=engine)
        loss = np.mean(right.needed) if right.needed else 0.0
        close(info.loss, loss, err_msg=engine)
        counts = info.needed, info.gradients, info.uploads, info.idle_uploads
        known = len(right.needed), len(right.losses), right.uploads, right.idle
        assert (engine, *map(int, counts)) == (engine, *known)
