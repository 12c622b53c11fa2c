"""The parts together: data, models, tasks and rounds."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import loopback
import stored
from afga_jax import data, models

KEY = jax.random.key(0)

needs_data = pytest.mark.skipif(
    not os.environ.get("TFDS_DATA_DIR"),
    reason="TFDS_DATA_DIR is not set, so there are no real data sets to read",
)


def digits_clients(num_clients=10, **options):
    digits = data.digits()
    held = data.partition.build("dirichlet", digits.train_targets, num_clients)
    return digits, data.from_dataset(digits, held, batch_size=16, **options)


@pytest.mark.slow
def test_convmixer_learns_the_digits_by_afga():
    digits, clients = digits_clients()
    model = models.create("convmixer", 10, width=16, depth=1, patch=2, kernel=3)
    task = models.classifier(model, (8, 8, 1))
    algorithm = afga_jax.build(
        "afga",
        task,
        num_clients=10,
        active=3,
        local_steps=6,
        local_lr=0.5,
        server_lr=0.03,
        eps=1e-6,
    )
    test = data.held_out(digits)
    result = afga_jax.fit(algorithm, clients, key=KEY, rounds=80, test=test)
    losses = result.history.train_loss
    assert losses[-5:].mean() < 0.5 * losses[0]
    assert result.history.test_accuracy[-1] > 0.8
    right = result.predict(test.inputs).argmax(-1) == test.targets
    np.testing.assert_allclose(right.mean(), result.history.test_accuracy[-1])
    assert np.abs(jax.tree.leaves(result.state.stats)[0]).max() > 0


def test_centralised_sgd_pools_the_clients():
    digits, clients = digits_clients()
    task = models.classifier(models.create("mlp", 10), (8, 8, 1))
    algorithm = afga_jax.build("sgd", task, num_clients=10, local_steps=50)
    result = afga_jax.fit(algorithm, clients, key=KEY, rounds=8)
    assert result.evaluate(data.held_out(digits))["accuracy"] > 0.9
    assert result.history.gradients.tolist() == [50] * 8
    with pytest.raises(ValueError, match=r"data has 10 clients.*data.pooled\(\)"):
        jax.jit(algorithm.round)(KEY, result.state, clients)


def test_ten_million_clients():
    digits = data.digits()
    number = 10_000_000
    held = data.partition.build(
        "overlap", digits.train_targets, number, client_size=100
    )
    clients = data.from_dataset(digits, held, batch_size=16)
    task = models.classifier(models.create("mlp", 10), (8, 8, 1))
    algorithm = afga_jax.build(
        "fedamsgrad", task, num_clients=number, active=5, local_steps=4, local_lr=0.1
    )
    result = afga_jax.fit(algorithm, clients, key=KEY, rounds=3)
    assert np.isfinite(result.history.train_loss).all()
    assert all(leaf.size < 10_000 for leaf in jax.tree.leaves(result.state))


@pytest.mark.slow
def test_lstm_learns_a_role():
    line = (
        "to be, or not to be, that is the question: whether it is nobler in the mind "
    )
    role = data.shakespeare.Role("play_hamlet", "play", "hamlet", line * 6)
    corpus = data.from_roles([role], window=20)
    clients = data.text_clients(corpus, data.natural(corpus), batch_size=32)
    model = models.create("lstm", 80, hidden=32, embedding=16)
    task = models.next_character(model, 20)
    algorithm = afga_jax.build(
        "fedavg",
        task,
        num_clients=1,
        active=1,
        local_steps=10,
        local_optimizer="adam",
        local_lr=0.01,
    )
    losses = afga_jax.fit(algorithm, clients, key=KEY, rounds=8).history.train_loss
    assert losses[-1] < 0.7 * losses[0]


def test_cifar100_from_a_small_prepared_set(tmp_path):
    arrays = loopback.arrays_of("cifar100")
    stored.prepare(tmp_path, "cifar100", arrays)
    access = data.Access(data_dir=tmp_path, cache_dir=tmp_path / "cache", offline=True)
    loaded = data.load("cifar100", access)
    assert loaded.num_classes == 100
    assert len(loaded.label_names) == 100
    np.testing.assert_array_equal(loaded.train_inputs, arrays["train_inputs"])
    np.testing.assert_array_equal(loaded.test_targets, arrays["test_targets"])


def test_the_full_batch_mode_on_the_gaussians():
    clients = data.gaussians()
    task = models.classifier(models.create("mlp", 2, hidden=(10,)), (2,))
    algorithm = afga_jax.build(
        "hafed",
        task,
        num_clients=2,
        num_clusters=1,
        local_steps=5,
        full_batch=True,
        eps=1e-4,
    )
    losses = afga_jax.fit(algorithm, clients, key=KEY, rounds=30).history.train_loss
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.slow
@needs_data
def test_partitions_of_the_real_cifar10(tmp_path):
    cifar = data.load("cifar10", data.Access(cache_dir=tmp_path, offline=True))
    labels = cifar.train_targets
    np.testing.assert_array_equal(np.bincount(labels), [5000] * 10)

    skewed = data.partition.build("dirichlet", labels, 100, alpha=0.6, seed=1)
    members = [data.partition.members(skewed, client) for client in range(100)]
    np.testing.assert_array_equal(np.sort(np.concatenate(members)), np.arange(50_000))
    histograms = np.stack([np.bincount(labels[own], minlength=10) for own in members])
    np.testing.assert_array_equal(histograms.sum(0), [5000] * 10)
    shares = histograms / histograms.sum(1, keepdims=True)
    assert shares.max(1).mean() > 0.25  # i.i.d. would be about 0.1
    again = data.partition.build("dirichlet", labels, 100, alpha=0.6, seed=1)
    np.testing.assert_array_equal(members[7], data.partition.members(again, 7))

    paper = data.partition.PAPER_SHARDS["cifar10"]
    shards = data.partition.build("shards", labels, 32, **paper)
    for client in range(32):
        own = data.partition.members(shards, client)
        assert len(own) == 6 * 250
        assert len(np.unique(labels[own])) <= 6

    major = data.partition.build("major_class", labels, 1000, rho_device=0.7)
    counts = np.bincount(major.major_class, minlength=10)
    np.testing.assert_array_equal(counts, [100] * 10)
    for client in (0, 500, 999):
        own = data.partition.members(major, client)
        assert len(own) == 500
        assert (labels[own] == major.major_class[client]).sum() == 350

    clients = data.from_dataset(cifar, skewed, batch_size=50, augment=True)
    batch = jax.jit(clients.batch)(KEY, jnp.int32(3))
    assert batch.inputs.shape == (50, 32, 32, 3)
    assert set(np.unique(batch.targets)) <= set(np.unique(labels[members[3]]))
