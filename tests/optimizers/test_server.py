"""Server optimizers against their equations, and in the company of optax."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import afga_jax
import toy
from afga_jax.testing import parts

DELTAS = np.random.default_rng(0).normal(size=(6, 5)) * [1, 1e-2, 1e-4, 0, 3]

pytestmark = pytest.mark.usefixtures("x64")


def run(server, deltas=DELTAS):
    """What is added to the model, given the pseudo-gradients −Δ."""
    state, updates = server.init(jnp.zeros(5)), []
    step = jax.jit(server.update)
    for delta in jnp.asarray(deltas):
        update, state = step(-delta, state)
        updates.append(update)
    return np.asarray(updates)


def equations(kind, **numbers):
    """What the papers add to the model, at η = 0.1."""
    step = getattr(parts, kind)(**{"eps": 1e-3, **numbers})
    return np.asarray([0.1 * step(delta) for delta in DELTAS])


@pytest.mark.parametrize("kind", ["fedamsgrad", "fedams", "fedadam", "fedyogi"])
def test_equations(kind):
    made = getattr(afga_jax, kind)(0.1, b1=0.8, b2=0.95, eps=1e-3)
    np.testing.assert_allclose(
        run(made), equations(kind, b1=0.8, b2=0.95), rtol=1e-12, atol=1e-14
    )


def test_adagrad_equations():
    made = afga_jax.fedadagrad(0.1, b1=0.8, eps=1e-3)
    np.testing.assert_allclose(run(made), equations("fedadagrad", b1=0.8), rtol=1e-12)


def test_eps_outside_the_root():
    made = afga_jax.fedamsgrad(0.1, eps=1e-3, eps_inside=False)
    expected = equations("fedamsgrad", eps_inside=False)
    np.testing.assert_allclose(run(made), expected, rtol=1e-12)


def test_average_is_the_delta():
    np.testing.assert_allclose(run(afga_jax.average(0.5)), DELTAS / 2)


def test_fedamsgrad_is_optax_amsgrad_without_corrections():
    eps = 1e-6
    other = optax.chain(
        optax.scale_by_amsgrad(0.9, 0.99, eps=0.0, eps_root=eps), optax.scale(-0.1)
    )
    # optax always corrects for the bias, so undo it: t is known.
    corrected = afga_jax.fedamsgrad(0.1, eps=eps, bias_correction=True)
    np.testing.assert_allclose(run(corrected), run(other), rtol=1e-10, atol=1e-14)
    plain = afga_jax.fedamsgrad(0.1, eps=eps)
    assert np.abs(run(plain) - run(corrected)).max() > 1e-3


def test_updates_follow_the_delta():
    update = run(afga_jax.fedamsgrad(0.1))[0]
    np.testing.assert_array_equal(np.sign(update), np.sign(DELTAS[0]))


def test_schedules():
    falling = afga_jax.fedamsgrad(lambda count: 0.1 / (1 + count))
    rates = 1 / (1 + np.arange(6))
    constant = run(afga_jax.fedamsgrad(0.1))
    np.testing.assert_allclose(run(falling), constant * rates[:, None], rtol=1e-12)


def test_injected_hyperparams_can_be_changed():
    server = optax.inject_hyperparams(afga_jax.fedamsgrad)(learning_rate=0.1, eps=1e-6)
    state = server.init(jnp.zeros(5))
    delta = jnp.asarray(DELTAS[0])
    first, after = jax.jit(server.update)(delta, state)
    after.hyperparams["learning_rate"] = jnp.asarray(0.2)
    state.hyperparams["learning_rate"] = jnp.asarray(0.2)
    doubled, _ = jax.jit(server.update)(delta, state)
    np.testing.assert_allclose(doubled, 2 * first, rtol=1e-6)


@pytest.mark.parametrize(
    "server",
    [
        optax.sgd(1.0, momentum=0.9),
        optax.lion(1e-2),
        optax.chain(optax.clip_by_global_norm(1.0), afga_jax.fedamsgrad(0.05)),
        optax.chain(optax.add_decayed_weights(1e-4), afga_jax.fedadam(0.05)),
    ],
    ids=["sgd", "lion", "clipped", "decayed"],
)
def test_any_optax_optimizer_descends(server):
    data, task = toy.clients(8), toy.logistic()
    algorithm = afga_jax.build(
        "afga", task, num_clients=8, active=4, local_lr=0.1, server_optimizer=server
    )
    key = jax.random.key(0)
    start, step = algorithm.init(key), jax.jit(algorithm.round)
    state = start
    for _ in range(20):
        state, _ = step(key, state, data)

    def loss(params):
        of = lambda client: task.loss(params, (), data.full(client), key, False)[0]  # noqa: E731
        return float(jax.vmap(of)(jnp.arange(8)).mean())

    assert loss(state.params) < 0.9 * loss(start.params)


def test_chain_with_optax():
    clipped = optax.chain(optax.clip(0.5), afga_jax.fedamsgrad(0.1))
    expected = run(afga_jax.fedamsgrad(0.1), np.clip(DELTAS, -0.5, 0.5))
    np.testing.assert_allclose(run(clipped), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["fedamsgrad", "fedams", "fedadam", "fedyogi"])
def test_trees_and_dtypes(kind):
    tree = {"a": jnp.ones((2, 3), jnp.float32), "b": [jnp.ones((), jnp.bfloat16)]}
    server = getattr(afga_jax, kind)(0.1)
    update, state = server.update(tree, server.init(tree))
    chex.assert_trees_all_equal_shapes_and_dtypes(update, tree)
    again, _ = server.update(tree, state)
    chex.assert_tree_all_finite(again)
