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
from afga_jax import reach, topology

KEY = jax.random.key(11)
CLUSTERED = {"cafga", "cafga_adapted", "hafed", "hafed_partial", "hafed_active"}


@pytest.fixture(autouse=True)
def fresh_trace_counter():
    """Chex counts traces by a function's name, and all rounds have the same."""
    chex.clear_trace_counter()


def options_for(name, num_clients=12):
    """A small setting that fits every algorithm."""
    options = {"num_clients": num_clients, "active": 4, "local_steps": 3}
    if name in CLUSTERED or name == "fedcluster":
        options["num_clusters"] = 2
    if name == "hafed_active":
        options["mix_every"] = 2
    return options


def poison(data, keep):
    """NaN in the data of everybody but `keep`."""
    bad = ~np.isin(np.arange(len(data.sizes)), keep)
    inputs = np.array(data.inputs)
    inputs[bad] = np.nan
    return data.replace(inputs=jnp.asarray(inputs))


@pytest.mark.parametrize("name", afga_jax.ALGORITHMS)
def test_protocol(name):
    """Shapes, dtypes, finiteness, determinism, counts, one trace, for any algorithm."""
    task = toy.logistic(norm=True)
    algorithm = afga_jax.build(name, task, **options_for(name))
    first, second = toy.clients(12, seed=0), toy.clients(12, seed=1)
    step = jax.jit(chex.assert_max_traces(algorithm.round, n=1))
    start = jax.jit(algorithm.init)(KEY)
    state, info = step(KEY, start, first)
    chex.assert_trees_all_equal_shapes_and_dtypes(state, start)
    chex.assert_tree_all_finite((state, info))
    again, info_again = step(KEY, start, first)
    chex.assert_trees_all_equal((state, info), (again, info_again))
    state, info = step(KEY, state, second)
    chex.assert_trees_all_equal_shapes_and_dtypes(state, start)
    chex.assert_tree_all_finite((state, info))
    assert int(state.round) == 2
    chex.assert_shape([info.loss, info.delta_norm, info.spread], ())
    assert set(info.metrics) == {"accuracy"}

    plan = algorithm.plan(KEY, 1)
    sizes = plan.cycles.active
    everybody = sizes.size if plan.cycles.active_count is None else None
    counted = everybody or int(plan.cycles.active_count.sum())
    assert int(info.gradients) == counted
    other = step(jax.random.key(12), start, first)[0]
    with pytest.raises(AssertionError):
        chex.assert_trees_all_close(other.params, again.params)


@pytest.mark.parametrize(
    "name",
    [
        "fedavg",
        "afga",
        "cafga",
        "afga_adapted",
        "hafed_active",
        "fedcluster",
        "scaffold",
    ],
)
@pytest.mark.parametrize("chunk", [None, 3])
def test_only_the_needed_clients_compute(name, chunk):
    options = options_for(name, 24)
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
    plan = algorithm.plan(KEY, number)
    ids = [np.array([], int)]
    for cycle in range(len(plan.clusters)):
        active, _ = plan.cycle(cycle).flat_active(24)
        matters = reach.needed(algorithm.recipe, plan, cycle)
        ids.append(np.unique(active if matters is None else active[matters]))
    ids = np.unique(np.concatenate(ids))
    return ids[ids < 24]


def test_nobody_active_is_a_round_without_gradients():
    algorithm = afga_jax.build(
        "hafed_active", toy.logistic(), active_prob=1e-9, **options_for("hafed_active")
    )
    state = algorithm.init(KEY)
    after, info = jax.jit(algorithm.round)(KEY, state, poison(toy.clients(12), []))
    chex.assert_tree_all_finite((after, info))
    assert int(info.gradients) == 0
    assert int(info.idle_uploads) == int(info.uploads) == 4


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["afga", "dsgd", "damsgrad"])
def test_relabelling_clients_changes_nothing(name):
    num_clients, rng = 10, np.random.default_rng(0)
    to = rng.permutation(num_clients)  # client i becomes client to[i]
    data = toy.clients(num_clients)
    moved = jax.tree.map(lambda x: jnp.zeros_like(x).at[to].set(x), data)
    weights = topology.random(num_clients, density=0.3)
    moved_weights = np.zeros_like(weights)
    moved_weights[np.ix_(to, to)] = weights
    options = {"num_clients": num_clients, "local_steps": 4, "full_batch": True}
    options |= {"active": 3} if name == "afga" else {}
    make = functools.partial(afga_jax.build, name, toy.logistic(), **options)
    first, second = make(topology=weights), make(topology=moved_weights)
    state, other = first.init(KEY), second.init(KEY)
    for number in range(2):
        plan = first.plan(KEY, number)
        cycles = plan.cycles._replace(
            active=jnp.asarray(to)[plan.cycles.active],
            upload=jnp.asarray(to)[plan.cycles.upload],
        )
        state, info = jax.jit(first.round)(KEY, state, data, plan)
        plan = plan._replace(cycles=cycles)
        other, other_info = jax.jit(second.round)(KEY, other, moved, plan)
        chex.assert_trees_all_close(
            (state.params, info), (other.params, other_info), rtol=0, atol=1e-10
        )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["afga", "hafed_active", "cafga", "scaffold"])
def test_chunks_of_clients_change_nothing(name):
    data = toy.clients(12)
    results = []
    algorithm = afga_jax.build(name, toy.logistic(), **options_for(name))
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


@pytest.mark.parametrize("name", ["fedavg", "afga", "cafga", "hafed_active", "dsgd"])
@pytest.mark.parametrize(
    "optimizer",
    ["momentum", "adam", optax.adam(0.01), lambda rate: optax.rmsprop(rate)],
    ids=["momentum", "adam", "optax", "function"],
)
def test_any_local_optimizer(name, optimizer):
    algorithm = afga_jax.build(
        name, toy.logistic(), local_optimizer=optimizer, **options_for(name)
    )
    state = algorithm.init(KEY)
    state, info = jax.jit(algorithm.round)(KEY, state, toy.clients(12))
    chex.assert_tree_all_finite((state, info))


INNER = [
    "fedavg",
    "fedamsgrad",
    "fedprox",
    "scaffold",
    "feddyn",
    "afga",
    "afga_adapted",
]


@pytest.mark.parametrize("inner", INNER)
def test_any_algorithm_inside_fedcluster(inner):
    options = {"num_clients": 12, "num_clusters": 3, "active": 6, "local_steps": 2}
    algorithm = afga_jax.build("fedcluster", toy.logistic(), inner=inner, **options)
    state, info = jax.jit(algorithm.round)(KEY, algorithm.init(KEY), toy.clients(12))
    chex.assert_tree_all_finite((state, info))
    assert int(info.uploads) == 6
    assert int(info.gradients) == 6 * 2


def test_numbers_are_traced():
    algorithm = afga_jax.build("afga", toy.logistic(), **options_for("afga"))
    step = jax.jit(chex.assert_max_traces(algorithm.round, n=1))
    data = toy.clients(12)
    results = []
    for rate in (0.1, 1.0):
        state, _ = step(KEY, algorithm.init(KEY, local_lr=rate, eps=1e-4), data)
        results.append(state.params)
        other = afga_jax.build(
            "afga", toy.logistic(), local_lr=rate, eps=1e-4, **options_for("afga")
        )
        expected, _ = jax.jit(other.round)(KEY, other.init(KEY), data)
        chex.assert_trees_all_close(state.params, expected.params, rtol=1e-6)
    with pytest.raises(AssertionError):
        chex.assert_trees_all_close(*results)


def test_schedules_follow_the_round():
    constant = afga_jax.build("fedavg", toy.logistic(), **options_for("fedavg"))
    falling = afga_jax.build(
        "fedavg",
        toy.logistic(),
        local_lr=lambda round: jnp.where(round == 0, 0.1, 0.0),
        **options_for("fedavg"),
    )
    data, step = toy.clients(12), jax.jit(falling.round)
    expected, _ = jax.jit(constant.round)(KEY, constant.init(KEY), data)
    state, _ = step(KEY, falling.init(KEY), data)
    chex.assert_trees_all_close(state.params, expected.params, rtol=1e-6)
    stopped, info = step(KEY, state, data)
    chex.assert_trees_all_equal(stopped.params, state.params)
    assert float(info.delta_norm) == 0


def test_own_server_optimizer():
    options = options_for("afga")
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
