"""Plans: who computes and who uploads, drawn fairly and at a cost that ignores N."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import afga_jax
import toy
from afga_jax import keys
from afga_jax.population import sampling

KEY = jax.random.key(3)


def plan_of(name, round=0, **options):
    algorithm = afga_jax.build(name, toy.logistic(), **options)
    return jax.tree.map(np.asarray, jax.jit(algorithm.plan)(KEY, round))


@pytest.mark.parametrize(("size", "count"), [(5, 2), (6, 3), (5, 4)])
def test_every_subset_is_equally_likely(size, count):
    draws = 20_000
    draw = functools.partial(
        sampling.draw_distinct, size=size, count=count, capacity=count, fill=size
    )
    samples = np.asarray(jax.vmap(draw)(jax.random.split(KEY, draws)))
    subsets = list(itertools.combinations(range(size), count))
    seen = dict.fromkeys(subsets, 0)
    for sample in samples:
        seen[tuple(sample.tolist())] += 1  # sorted and distinct, or a KeyError
    # Deterministic in the key: a p-value below 1e-4 would be a bug, not bad luck.
    assert stats.chisquare(list(seen.values())).pvalue > 1e-4


def test_huge_populations_are_drawn_from_evenly():
    size, count = 10_000_000, 7
    draw = functools.partial(
        sampling.draw_distinct, size=size, count=count, capacity=count, fill=size
    )
    samples = np.asarray(jax.vmap(draw)(jax.random.split(KEY, 3_000)))
    assert (np.diff(samples, axis=1) > 0).all()
    assert samples.min() >= 0
    assert samples.max() < size
    uniform = stats.kstest(samples.ravel() / size, "uniform")
    assert uniform.pvalue > 1e-4


def test_drawing_costs_the_same_for_any_population():
    def cost(size):
        def draw(key):
            return sampling.draw_distinct(key, size, 5, 5, size)

        return jax.jit(draw).lower(KEY).compile().cost_analysis()["flops"]

    assert cost(100) == cost(10_000_000)


def test_traced_sizes_and_counts():
    draw = jax.jit(
        lambda key, size, count: sampling.draw_distinct(key, size, count, 6, 99)
    )
    for size, count in [(6, 6), (9, 4), (1, 1), (50, 6)]:
        sample = np.asarray(draw(KEY, size, count))
        assert len(set(sample[:count].tolist())) == count
        assert sample[:count].max() < size
        assert (sample[count:] == 99).all()


def test_fixed_clients_compute_and_upload():
    plan = plan_of("fedavg", num_clients=20, active=5, local_steps=3)
    cycle = plan.cycles
    assert cycle.active.shape == (1, 3, 1, 5)
    np.testing.assert_array_equal(cycle.active[0, 0], cycle.upload[0])
    np.testing.assert_array_equal(cycle.active[0, 0], cycle.active[0, 2])


def test_resampled_clients_change_with_step_and_round():
    options = {"num_clients": 50, "active": 5, "local_steps": 8}
    first, second = (plan_of("afga", r, **options).cycles for r in (0, 1))
    assert first.active.shape == (1, 8, 1, 5)
    assert len({tuple(ids.ravel()) for ids in first.active[0]}) == 8
    assert (first.active != second.active).any()
    assert (first.upload != second.upload).any()


def test_the_same_seed_draws_the_same_uploads_for_every_algorithm():
    options = {"num_clients": 30, "active": 6, "local_steps": 2, "num_clusters": 1}
    names = ["fedavg", "fedamsgrad", "scaffold", "afga", "cafga", "hafed_partial"]
    uploads = [plan_of(name, 4, **options).cycles.upload for name in names]
    for other in uploads[1:]:
        np.testing.assert_array_equal(uploads[0], other)


def test_clusters_each_send_their_own():
    options = {"num_clients": 24, "active": 8, "local_steps": 3, "num_clusters": 4}
    algorithm = afga_jax.build("cafga", toy.logistic(), **options)
    plan = jax.jit(algorithm.plan)(KEY, 2)
    labels = algorithm.recipe.clustering.labels()
    assert plan.cycles.upload.shape == (1, 4, 2)
    for cluster in range(4):
        assert (labels[plan.cycles.upload[0, cluster]] == cluster).all()
        assert (labels[plan.cycles.active[0, :, cluster]] == cluster).all()


def test_unequal_clusters_sample_their_share():
    labels = [0] * 10 + [1] * 4 + [2] * 6
    options = {"clustering": labels, "participation": 0.5, "local_steps": 2}
    plan = plan_of("cafga", num_clients=20, **options)
    np.testing.assert_array_equal(plan.cycles.upload_count[0], [5, 2, 3])
    for cluster, count in enumerate([5, 2, 3]):
        ids = plan.cycles.upload[0, cluster]
        assert len(set(ids[:count].tolist())) == count
        assert (np.asarray(labels)[ids[:count]] == cluster).all()
        assert (ids[count:] == 20).all()


def test_bernoulli_counts_and_independence():
    options = {"num_clients": 40, "num_clusters": 4, "participation": 0.25}
    plan = plan_of("hafed_active", active_prob=0.3, local_steps=200, **options)
    active, count = plan.cycles.active[0], plan.cycles.active_count[0]
    assert active.shape == (200, 4, 10)
    clustering = afga_jax.clustering.equal(40, 4)
    for step, cluster in itertools.product(range(200), range(4)):
        ids, number = active[step, cluster], count[step, cluster]
        assert len(set(ids[:number].tolist())) == number
        assert set(ids[:number].tolist()) <= set(clustering.members[cluster].tolist())
        assert (ids[number:] == 40).all()
    trials = stats.binomtest(int(count.sum()), 200 * 40, 0.3)
    assert trials.pvalue > 1e-4
    often = np.bincount(active.ravel(), minlength=41)[:40]
    assert stats.chisquare(often).pvalue > 1e-4


@pytest.mark.parametrize("shuffle", [True, False])
def test_clusters_take_turns(shuffle):
    options = {"num_clients": 40, "num_clusters": 8, "active": 16, "local_steps": 2}
    algorithm = afga_jax.build("fedcluster", toy.logistic(), shuffle=shuffle, **options)
    orders = [np.asarray(algorithm.plan(KEY, r).clusters)[:, 0] for r in range(4)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(8))
    assert (len({tuple(order) for order in orders}) > 1) == shuffle
    labels = algorithm.recipe.clustering.labels()
    plan = jax.jit(algorithm.plan)(KEY, 1)
    for cycle in range(8):
        ids = np.asarray(plan.cycles.upload)[cycle, 0]
        assert (labels[ids] == np.asarray(plan.clusters)[cycle, 0]).all()


def test_everybody_without_a_server():
    plan = plan_of("dsgd", num_clients=6, local_steps=2)
    assert np.array_equal(plan.cycles.active[0, 1, 0], np.arange(6))


def test_a_plan_is_the_same_in_and_out_of_jit():
    algorithm = afga_jax.build("cafga", toy.logistic(), num_clients=20, num_clusters=2)
    inside = jax.jit(algorithm.plan)(KEY, 5)
    jax.tree.map(np.testing.assert_array_equal, inside, algorithm.plan(KEY, 5))


def test_places_have_keys_of_their_own():
    last = (keys.MAX_CYCLES - 1, keys.MAX_STEPS - 1)
    places = [
        (round, cycle, step)
        for round in (0, 1)
        for cycle, step in [(0, 0), (0, 1), (1, 0), last, (0, last[1]), (last[0], 0)]
    ]
    words = jnp.array(places, jnp.uint32).T
    drawn = [
        jax.random.key_data(
            jax.vmap(functools.partial(keys.place_key, KEY, purpose))(*words)
        )
        for purpose in keys.Purpose
    ]
    everything = np.concatenate(drawn)
    assert len(np.unique(everything, axis=0)) == len(everything)
