"""Many rounds in one program, for one seed or several."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax import Execution
from afga_jax.rounds.update_rows import over_clients
from afga_jax.training.seeds import keys_of
from cases import marked

KEY = jax.random.key(5)
OPTIONS = {"num_clients": 8, "active": 3, "local_steps": 2}


def build(name="afga", **more):
    return afga_jax.build(name, toy.logistic(), **OPTIONS, **more)


def test_many_rounds_equal_single_ones_and_compile_once():
    algorithm, data = build(), toy.clients(8)
    trainer = afga_jax.Trainer(algorithm, capacity=5)
    state, infos = trainer.run(KEY, trainer.init(KEY), data, 5)
    chex.assert_shape(infos.loss, (5,))

    split = trainer.init(KEY)
    losses = []
    for rounds in (2, 1, 2):
        split, info = trainer.run(KEY, split, data, rounds)
        losses.extend(info.loss.tolist())
    chex.assert_trees_all_equal(split, state)
    np.testing.assert_array_equal(losses, infos.loss)
    assert trainer._run._cache_size() == 1

    step, single = jax.jit(algorithm.round), algorithm.init(KEY)
    for number in range(5):
        single, info = step(KEY, single, data)
        np.testing.assert_allclose(info.loss, infos.loss[number], rtol=1e-5)
    chex.assert_trees_all_close(single.params, state.params, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["afga", "dsgd", "scaffold"])
def test_the_callers_state_stays_unless_it_is_donated(name):
    data = toy.clients(8)
    trainer = afga_jax.Trainer(build(name), capacity=20)
    start = trainer.init(KEY)
    before = jax.tree.map(np.array, start)
    states = [trainer.run(KEY, start, data, 10)[0] for _ in range(2)]
    chex.assert_trees_all_equal(start, before)
    chex.assert_trees_all_equal(*states)

    donating = afga_jax.Trainer(build(name), capacity=20, donate=True)
    after, _ = donating.run(KEY, start, data, 10)
    chex.assert_trees_all_equal(after, states[0])
    assert jax.tree.leaves(start.params)[0].is_deleted()


def test_training_learns():
    data = toy.clients(8, samples=20)
    algorithm = build(local_lr=0.5, server_lr=0.1)
    losses = afga_jax.fit(algorithm, data, key=KEY, rounds=60).history.train_loss
    assert losses[-10:].mean() < 0.7 * losses[:5].mean()


def test_old_keys_are_the_same_keys():
    data, trainer = toy.clients(8), afga_jax.Trainer(build())
    old, new = jax.random.PRNGKey(4), jax.random.key(4)
    chex.assert_trees_all_equal(trainer.init(old), trainer.init(new))
    chex.assert_trees_all_equal(trainer.start(old, data), trainer.init(new))
    states = [trainer.run(key, trainer.init(new), data, 2)[0] for key in (old, new)]
    chex.assert_trees_all_equal(*states)
    olds = jnp.stack([jax.random.PRNGKey(seed) for seed in (3, 4)])
    several = afga_jax.Trainer(build())
    chex.assert_trees_all_equal(several.init(olds), several.init(keys_of(3, 2)))


def test_a_trainer_evaluates_states():
    data, trainer = toy.clients(8), afga_jax.Trainer(build())
    state, _ = trainer.run(KEY, trainer.init(KEY), data, 2)
    batch = data.full(3)
    metrics = trainer.evaluate(state, batch)
    clients = trainer.evaluate_clients(state, data)
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(clients.values[name][3], metrics[name], rtol=1e-6)


@pytest.mark.slow
def test_seeds_in_one_program_equal_seeds_apart():
    algorithm, data = build(), toy.clients(8)

    def train(key):
        state = algorithm.init(key)
        for _ in range(2):
            state, info = algorithm.round(key, state, data)
        return state.params, info

    keys = jax.vmap(jax.random.key)(jnp.arange(3))
    together = jax.jit(lambda keys: afga_jax.over_seeds(train, keys))(keys)
    by_vmap = jax.jit(jax.vmap(train))(keys)
    apart = [jax.jit(train)(key) for key in keys]
    apart = jax.tree.map(lambda *x: jnp.stack(x), *apart)
    chex.assert_trees_all_close(together, apart, rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_close(by_vmap, apart, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", marked(["dense", "span"], ["span"]))
def test_a_trainer_runs_several_seeds_and_returns_what_is_observed(engine):
    algorithm, data, execution = build(), toy.clients(8), Execution(engine)
    trainer = afga_jax.Trainer(
        algorithm, execution, observe=lambda state, info: (info.loss, state.round)
    )
    keys = keys_of(3, 2)
    states, (losses, rounds) = trainer.run(keys, trainer.init(keys), data, 3)
    assert rounds.tolist() == [[1, 1], [2, 2], [3, 3]]
    for seed, key in enumerate(keys):
        alone = afga_jax.fit(algorithm, data, key=key, rounds=3, execution=execution)
        np.testing.assert_allclose(losses[:, seed], alone.info.loss, rtol=1e-5)
        one = jax.tree.map(lambda x: x[seed], states.params)  # noqa: B023
        chex.assert_trees_all_close(one, alone.state.params, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 4, 7, 10])
@pytest.mark.parametrize("chunk", [1, 3, 10, 99])
def test_counted_clients(count, chunk):
    inputs = jnp.arange(10.0)
    poisoned = jnp.where(jnp.arange(10) < count, inputs, jnp.nan)
    run = jax.jit(
        lambda x, n: over_clients(lambda v: (2 * v, v + 1), x, chunk=chunk, count=n)
    )
    doubled, more = run(poisoned, count)
    np.testing.assert_array_equal(doubled[:count], 2 * inputs[:count])
    np.testing.assert_array_equal(more[:count], 1 + inputs[:count])
    np.testing.assert_array_equal(doubled[count:], 0)


def test_counted_clients_cost_only_what_they_compute():
    calls = []

    def observed(value):
        jax.debug.callback(lambda v: calls.append(float(v)), value)
        return value

    over_clients(observed, jnp.arange(10.0), chunk=2, count=jnp.int32(3))
    jax.effects_barrier()
    assert sorted(calls) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: afga_jax.Trainer(build(), capacity=0), "capacity = 0.*>= 1"),
        (
            lambda: afga_jax.Trainer(build()).run(KEY, None, toy.clients(5), 1),
            "data has 5 clients.*num_clients = 8",
        ),
        (lambda: afga_jax.Trainer(build()).init(0), "key = 0.*jax.random.key"),
        (
            lambda: afga_jax.Trainer(build(), capacity=2).run(KEY, None, None, 3),
            "rounds = 3.*<= capacity = 2",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
