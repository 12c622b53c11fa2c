"""Defences at the server: against plain NumPy, and what they are known to guarantee."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax import aggregators
from afga_jax.testing import defences

pytestmark = pytest.mark.usefixtures("x64")
SIZE = 5

MADE = {
    "mean": (aggregators.mean(), lambda x, w: w @ x),
    "median": (aggregators.median(), lambda x, w: defences.median(x)),
    "trimmed": (
        aggregators.trimmed_mean(2),
        lambda x, w: defences.trimmed_mean(x, 2),
    ),
    "krum": (aggregators.krum(2), lambda x, w: defences.krum(x, 2)),
    "multi-krum": (aggregators.krum(2, 3), lambda x, w: defences.krum(x, 2, 3)),
    "centred": (
        aggregators.centred_clipping(1.2, 3),
        lambda x, w: defences.centred_clipping(x, w, np.zeros(SIZE), 1.2, 3),
    ),
    "clipped": (
        aggregators.norm_clipping(1.5),
        lambda x, w: defences.norm_clipping(x, w, 1.5),
    ),
}


def uploads(count, seed):
    """Deltas, weights that differ, and some distance between the deltas."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.5, 1.5, count)
    return rng.normal(size=(count, SIZE)), weights / weights.sum()


def aggregated(aggregator, deltas, weights, state=None):
    """The aggregate, with padding between the uploads and after them."""
    count = len(deltas)
    at = np.arange(count) + np.arange(count) // 2
    rows, given = np.zeros((at[-1] + 3, SIZE)), np.zeros(at[-1] + 3)
    rows[at], given[at] = deltas, weights
    state = aggregator.init(jnp.zeros(SIZE)) if state is None else state
    arguments = jnp.asarray(rows), jnp.asarray(given), state, jnp.arange(len(rows))
    aggregate, state, _ = aggregator.apply(jax.random.key(0), *arguments)
    return np.asarray(aggregate), state


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("count", [7, 8])
def test_is_the_plain_loop_s_whatever_the_padding(name, count):
    aggregator, expected = MADE[name]
    for seed in range(3):
        deltas, weights = uploads(count, seed)
        found, _ = aggregated(aggregator, deltas, weights)
        np.testing.assert_allclose(found, expected(deltas, weights), rtol=0, atol=1e-12)


def test_centred_clipping_begins_where_the_round_before_ended():
    aggregator, center, state = aggregators.centred_clipping(0.3), np.zeros(SIZE), None
    for seed in range(4):
        deltas, weights = uploads(6, seed)
        found, state = aggregated(aggregator, deltas, weights, state)
        center = defences.centred_clipping(deltas, weights, center, 0.3)
        np.testing.assert_allclose(found, center, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", range(3, 10))
def test_the_median_ignores_less_than_half(count):
    """And a trimmed mean ignores as many as it is built for."""
    liars = (count - 1) // 2
    robust = [aggregators.median(), aggregators.trimmed_mean(liars)]
    for seed in range(3):
        deltas, weights = uploads(count, seed)
        low, high = deltas[liars:].min(0), deltas[liars:].max(0)
        for lie in (1e12, -1e12):
            deltas[:liars] = lie
            for aggregator in robust:
                found, _ = aggregated(aggregator, deltas, weights)
                assert (found >= low).all()
                assert (found <= high).all()


def test_a_median_gives_way_to_half():
    deltas, weights = uploads(6, 0)
    deltas[:3] = 1e12
    assert aggregated(aggregators.median(), deltas, weights)[0].min() > 1e11


def test_krum_takes_an_honest_upload():
    """2f + 2 < n, and liars far away: the result is one of the others'."""
    for seed in range(5):
        deltas, weights = uploads(9, seed)
        deltas[:3] += 50 * np.random.default_rng(seed).normal(size=(3, SIZE))
        found, _ = aggregated(aggregators.krum(3), deltas, weights)
        assert any(np.allclose(found, honest, atol=0) for honest in deltas[3:])


@pytest.mark.parametrize("make", ["norm_clipping", "centred_clipping"])
def test_a_clipped_upload_moves_the_server_by_at_most_its_weight_times_the_radius(make):
    """By its being there: from what the others alone come to."""
    aggregator = getattr(aggregators, make)(0.7)
    for lie in (0.1, 1.0, 1e9):
        deltas, weights = uploads(6, 2)
        deltas[0] = lie
        with_liar, _ = aggregated(aggregator, deltas, weights)
        deltas[0] = 0
        without, _ = aggregated(aggregator, deltas, weights)
        moved = np.linalg.norm(with_liar - without)
        assert moved <= weights[0] * 0.7 * (1 + 1e-12)
    assert moved > 0.99 * weights[0] * 0.7


@pytest.mark.parametrize("name", MADE)
def test_fewer_uploads_than_it_is_made_for(name):
    """What is lost on the way is no reason for NaN."""
    for count in (1, 2, 3):
        found, _ = aggregated(MADE[name][0], *uploads(count, 0))
        assert np.isfinite(found).all()


BAD = [
    ({"active": 4, "aggregator": aggregators.trimmed_mean(2)}, "at least 5 uploads"),
    ({"active": 4, "aggregator": aggregators.krum(2)}, "at least 5 uploads"),
    (
        {"active": 4, "num_clusters": 4, "aggregator": aggregators.krum(0)},
        "needs at least 3 uploads, but up to 1 arrive at once: raise active",
    ),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=range(len(BAD)))
def test_too_few_uploads_are_refused_when_built(options, message):
    algorithm = "fedcluster" if "num_clusters" in options else "fedavg"
    with pytest.raises(ValueError, match=message):
        afga_jax.build(algorithm, toy.logistic(), num_clients=8, **options)


WRONG = [
    (lambda: aggregators.trimmed_mean(-1), "b = -1"),
    (lambda: aggregators.krum(1, 0), "multi = 0"),
    (lambda: aggregators.norm_clipping(0.0), "radius = 0.0, but it must be > 0"),
    (lambda: aggregators.centred_clipping(1.0, 0), "iterations = 0"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=range(len(WRONG)))
def test_wrong_numbers_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
