"""The round: what it touches, what it leaves alone, and what it counts."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import afga_jax
import toy
from afga_jax.rounds import needed
from cases import marked

KEY = jax.random.key(11)


@pytest.fixture(autouse=True)
def fresh_trace_counter():
    """Chex counts traces by a function's name, and all rounds have the same."""
    chex.clear_trace_counter()


def poison(data, keep):
    """NaN in the data of everybody but `keep`."""
    bad = ~np.isin(np.arange(len(data.sizes)), keep)
    inputs = np.array(data.inputs)
    inputs[bad] = np.nan
    return data.replace(inputs=jnp.asarray(inputs))


COMPUTE = [
    *(("afga", 3), ("scaffold", 3), ("fedcluster", None), ("afga", None)),
    *(("fedavg", None), ("cafga", None), ("afga_adapted", None), ("hafed_active", 3)),
]


@pytest.mark.parametrize(("name", "chunk"), marked(COMPUTE, COMPUTE[:3]))
def test_only_the_needed_clients_compute(name, chunk):
    options = toy.options_for(name, 24)
    if name == "hafed_active":
        options["active_prob"] = 0.1
    algorithm = afga_jax.build(name, toy.logistic(norm=True), **options)
    data = toy.clients(24)
    # A round in which somebody matters: here and there, the adapted have none.
    number, active = next(
        (r, ids) for r in range(9) if len(ids := needed_clients(algorithm, r))
    )
    state = algorithm.init(KEY).replace(round=jnp.int32(number))
    execution = afga_jax.Execution(chunk=chunk)
    step = jax.jit(functools.partial(algorithm.round, execution=execution))
    assert 0 < len(active) < 24
    expected = step(KEY, state, data)
    poisoned = step(KEY, state, poison(data, active))
    chex.assert_tree_all_finite(poisoned)
    chex.assert_trees_all_equal(poisoned, expected)
    # The test can fail: without one of the needed clients, NaN is everywhere.
    lost = step(KEY, state, poison(data, active[1:]))
    assert np.isnan(lost[1].loss)


def needed_clients(algorithm, number):
    plan = jax.jit(algorithm.plan)(KEY, number)
    ids = [np.array([], int)]
    for cycle in range(len(plan.clusters)):
        active, _ = plan.cycle(cycle).flat_active(24)
        matters = needed.mask(algorithm.recipe, plan, cycle)
        ids.append(np.unique(active if matters is None else active[matters]))
    ids = np.unique(np.concatenate(ids))
    return ids[ids < 24]


def test_nobody_active_is_a_round_without_gradients():
    algorithm = afga_jax.build(
        "hafed_active",
        toy.logistic(),
        active_prob=1e-9,
        **toy.options_for("hafed_active"),
    )
    state = algorithm.init(KEY)
    after, info = jax.jit(algorithm.round)(KEY, state, poison(toy.clients(12), []))
    chex.assert_tree_all_finite((after, info))
    assert int(info.gradients) == 0
    assert int(info.idle_uploads) == int(info.uploads) == 4


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", marked(["hafed_active", "scaffold"], ["scaffold"]))
def test_chunks_of_clients_change_nothing(name):
    data = toy.clients(12)
    results = []
    algorithm = afga_jax.build(name, toy.logistic(), **toy.options_for(name))
    step = jax.jit(algorithm.round, static_argnames="execution")
    for chunk in (1, 3, 100):
        execution = afga_jax.Execution(chunk=chunk)
        results.append(step(KEY, algorithm.init(KEY), data, execution=execution))
    for other in results[1:]:
        chex.assert_trees_all_close(results[0], other, rtol=0, atol=1e-12)


def test_full_batches_ignore_padding_and_keys():
    data = toy.clients(6, sizes=(3, 5, 2, 5, 4, 1))
    algorithm = afga_jax.build(
        "fedavg", toy.logistic(), num_clients=6, active=6, full_batch=True
    )
    state = algorithm.init(KEY)
    results = [
        jax.jit(algorithm.round)(jax.random.key(seed), state, data) for seed in (0, 1)
    ]
    chex.assert_tree_all_finite(results[0])
    chex.assert_trees_all_close(*results, rtol=1e-6)


# The named ones are compared with the papers' boxes, for some algorithms and for all
# that `tests/properties` generates.
@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("hafed_active", optax.adam(0.01)), ("dsgd", lambda rate: optax.rmsprop(rate))],
    ids=["optax", "function"],
)
def test_any_local_optimizer(name, optimizer):
    algorithm = afga_jax.build(
        name, toy.logistic(), local_optimizer=optimizer, **toy.options_for(name)
    )
    state = algorithm.init(KEY)
    state, info = jax.jit(algorithm.round)(KEY, state, toy.clients(12))
    chex.assert_tree_all_finite((state, info))


# The reference has others.
@pytest.mark.parametrize("inner", ["scaffold", "feddyn", "afga_adapted"])
def test_any_algorithm_inside_fedcluster(inner):
    options = {"num_clients": 12, "num_clusters": 3, "active": 6, "local_steps": 2}
    algorithm = afga_jax.build("fedcluster", toy.logistic(), inner=inner, **options)
    state, info = jax.jit(algorithm.round)(KEY, algorithm.init(KEY), toy.clients(12))
    chex.assert_tree_all_finite((state, info))
    assert int(info.uploads) == 6
    assert int(info.gradients) == 6 * 2


def test_numbers_are_traced():
    algorithm = afga_jax.build("afga", toy.logistic(), **toy.options_for("afga"))
    step = jax.jit(chex.assert_max_traces(algorithm.round, n=1))
    data = toy.clients(12)
    results = []
    for rate in (0.1, 1.0):
        state, _ = step(KEY, algorithm.init(KEY, local_lr=rate, eps=1e-4), data)
        results.append(state.params)
        other = afga_jax.build(
            "afga", toy.logistic(), local_lr=rate, eps=1e-4, **toy.options_for("afga")
        )
        expected, _ = jax.jit(other.round)(KEY, other.init(KEY), data)
        chex.assert_trees_all_close(state.params, expected.params, rtol=1e-6)
    with pytest.raises(AssertionError):
        chex.assert_trees_all_close(*results)


def test_schedules_follow_the_round():
    constant = afga_jax.build("fedavg", toy.logistic(), **toy.options_for("fedavg"))
    falling = afga_jax.build(
        "fedavg",
        toy.logistic(),
        local_lr=lambda round: jnp.where(round == 0, 0.1, 0.0),
        **toy.options_for("fedavg"),
    )
    data, step = toy.clients(12), jax.jit(falling.round)
    expected, _ = jax.jit(constant.round)(KEY, constant.init(KEY), data)
    state, _ = step(KEY, falling.init(KEY), data)
    chex.assert_trees_all_close(state.params, expected.params, rtol=1e-6)
    stopped, info = step(KEY, state, data)
    chex.assert_trees_all_equal(stopped.params, state.params)
    assert float(info.delta_norm) == 0


def test_own_server_optimizer():
    options = toy.options_for("afga")
    server = optax.chain(optax.clip_by_global_norm(1e-3), afga_jax.average(1.0))
    algorithm = afga_jax.build(
        "afga", toy.logistic(), server_optimizer=server, **options
    )
    start = algorithm.init(KEY)
    state, _ = jax.jit(algorithm.round)(KEY, start, toy.clients(12))
    moved = jax.tree.map(jnp.subtract, state.params, start.params)
    np.testing.assert_allclose(optax.tree.norm(moved), 1e-3, rtol=1e-4)


def test_uploads_by_size_and_clusters_by_size():
    sizes = (1, 2, 3, 4, 5, 6, 7, 8)
    data = toy.clients(8, sizes=sizes)
    labels = (0, 0, 0, 0, 0, 0, 1, 1)
    options = {
        "num_clients": 8,
        "clustering": labels,
        "participation": 1.0,
        "full_batch": True,
        "local_steps": 1,
        "local_lr": 0.1,
    }
    task = toy.logistic()

    def step_with(**more):
        algorithm = afga_jax.build("fedavg", task, **options, **more)
        start = algorithm.init(KEY)
        state, _ = jax.jit(algorithm.round)(KEY, start, data)
        return jax.tree.map(jnp.subtract, state.params, start.params)["b"]

    alone = []
    start = afga_jax.build("fedavg", task, **options).init(KEY).params
    for client in range(8):
        gradient = jax.grad(lambda p, c: task.loss(p, (), data.full(c), None, True)[0])
        alone.append(-0.1 * gradient(start, client)["b"])
    alone = np.asarray(alone)
    one, two = alone[:6], alone[6:]
    by_size = (np.average(one, 0, sizes[:6]) + np.average(two, 0, sizes[6:])) / 2
    expected = {
        (): (one.mean(0) + two.mean(0)) / 2,
        (("cluster_weighting", "size"),): alone.mean(0),
        (("weighting", "size"),): by_size,
    }
    for more, value in expected.items():
        np.testing.assert_allclose(step_with(**dict(more)), value, rtol=1e-4, atol=1e-7)
