"""Metrics of every client, against a plain loop over the clients."""

import jax
import numpy as np
import pytest

import toy
from afga_jax.training import client_metrics
from afga_jax.training.client_metrics import LEVELS, ClientMetrics

KEY = jax.random.key(3)


def measured(data, task=None):
    task = task or toy.logistic()
    params, stats = task.init(KEY)
    run = jax.jit(lambda p: client_metrics.each_client(task, p, stats, data))
    return client_metrics.on_host(run(params), data)


def one_after_another(data):
    """Loss and accuracy of each client, from its real samples alone."""
    task = toy.logistic()
    params, stats = task.init(KEY)
    pairs = []
    for client, size in enumerate(data.sizes.tolist()):
        batch = toy.Batch(data.inputs[client, :size], data.targets[client, :size])
        loss, (_, metrics) = task.loss(params, stats, batch, KEY, False)
        pairs.append((float(loss), float(metrics["accuracy"])))
    return np.array(pairs).T


def test_every_client_on_its_own_samples(x64):
    data = toy.clients(6, sizes=range(1, 7))
    clients = measured(data)
    loss, accuracy = one_after_another(data)
    np.testing.assert_allclose(clients.values["loss"], loss, rtol=1e-12)
    np.testing.assert_allclose(clients.values["accuracy"], accuracy, rtol=1e-12)
    assert clients.sizes.tolist() == list(range(1, 7))


def test_summary(x64):
    data = toy.clients(21, sizes=range(1, 22))
    clients = measured(data)
    summary = clients.summary()
    for name in ("loss", "accuracy"):
        values = clients.values[name]
        ordered = np.sort(values)
        worst = ordered[-2:] if name == "loss" else ordered[:2]
        np.testing.assert_allclose(summary[f"client_{name}"], values.mean())
        np.testing.assert_allclose(summary[f"worst_tenth_{name}"], worst.mean())
        # Of 21 values in order, the quantiles of these levels are values themselves.
        for level, rank in {
            0: 0,
            10: 2,
            25: 5,
            50: 10,
            75: 15,
            90: 18,
            100: 20,
        }.items():
            np.testing.assert_allclose(
                summary[f"client_{name}_q{level}"], ordered[rank]
            )
    assert len(summary) == 2 * (2 + len(LEVELS))


def test_histogram_counts_every_client_once():
    clients = measured(toy.clients(30, samples=7))
    counts, edges = clients.histogram("accuracy", bins=4, bounds=(0, 1))
    assert edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    accuracy = clients.values["accuracy"]
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        inside = (accuracy >= low) & ((accuracy < high) | (accuracy == 1) & (high == 1))
        assert count == inside.sum()
    counts, edges = clients.histogram("loss")
    assert counts.sum() == 30
    np.testing.assert_allclose(edges[-1], clients.values["loss"].max(), rtol=1e-6)


def test_seeds_have_an_axis_of_their_own():
    rng = np.random.default_rng(0)
    values = rng.random((3, 40))
    together = ClientMetrics({"accuracy": values}, np.ones(40))
    for seed in range(3):
        alone = ClientMetrics({"accuracy": values[seed]}, np.ones(40))
        for name, value in alone.summary().items():
            assert together.summary()[name][seed] == value
        counts, _ = alone.histogram("accuracy", bounds=(0, 1))
        both, _ = together.histogram("accuracy", bounds=(0, 1))
        np.testing.assert_array_equal(both[seed], counts)


def test_a_task_without_accuracy_has_losses():
    task = toy.logistic()

    def loss(*arguments):
        value, (stats, _) = task.loss(*arguments)
        return value, (stats, {})

    summary = measured(toy.clients(5), task._replace(loss=loss)).summary()
    assert "client_loss_q50" in summary
    assert not [name for name in summary if "accuracy" in name]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda clients: clients.quantiles("acuracy"), "did you mean 'accuracy'"),
        (lambda clients: clients.worst_tenth("perplexity"), "Known: accuracy, loss"),
        (lambda clients: clients.histogram("accuracy", bins=0), "bins = 0.*>= 1"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(ClientMetrics({"accuracy": np.ones(3)}, np.ones(3)))
