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
    plans, dense, span = rounds(algorithm, start, data, key)
    draws = [draws_of(plan, data, key) for plan in plans]
    expected = list(boxes.by_matrices(problem, draws, **numbers))
    assert_same("dense", dense, expected)
    assert_same("span", span, expected)
    assert np.abs(expected[-1].params - problem.params).max() > 0.01
    return expected


def rounds(algorithm, start, data, key, width=2):
    """Each round's plan, and its state and info by the dense and the span engine."""
    trainer = afga_jax.Trainer(
        algorithm,
        afga_jax.Execution("span", slot_width=width),
        observe=lambda *seen: seen,
    )
    _, seen = trainer.run(key, start, data, ROUNDS)
    assert trainer.choice.engine == "span"
    plans = jax.device_get(trainer._plans_of(key, 0)[0])
    plans, span = ([at(tree, n) for n in range(ROUNDS)] for tree in (plans, seen))
    dense, state, advance = [], start, jax.jit(algorithm.round)
    for plan in plans:
        state, info = advance(key, state, data, plan)
        dense.append((state, info))
    return plans, dense, span


def at(tree, number):
    return jax.tree.map(lambda x: x[number], tree)


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
