"""Client data in blocks over devices: a client's samples are on its own device only."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import afga_jax
import toy
from afga_jax import data
from afga_jax.data import samples
from afga_jax.data.clients import client_data
from afga_jax.data.partition.assignment import members, stored
from afga_jax.rounds import client_blocks

CLIENTS = 6


def build(name, **options):
    more = {"num_clients": CLIENTS, "local_steps": 2, **options}
    return afga_jax.build(name, toy.logistic(), **more)


@pytest.fixture
def clients():
    """Unequal clients, two of which share a sample; a sample is its own number."""
    held = np.array([3, 9, 1, 0, 3, 2, 7, 5, 4, 6, 8])
    assignment = stored(held, np.array([2, 1, 3, 1, 1, 3]))
    inputs = np.arange(10, dtype=np.uint8).reshape(-1, 1, 1, 1)
    source = samples.images(inputs, np.arange(10), mean=np.zeros(1), std=np.ones(1))
    return client_data(source, assignment, batch_size=2)


def part_of(own, device, devices):
    """What a device gets of every array."""

    def block(x):
        size = len(x) // devices
        assert size * devices == len(x)
        return x[device * size : (device + 1) * size]

    return jax.tree.map(block, own)


# Rows of unequal clusters are padded by nobody's (6).
@pytest.mark.parametrize(
    "blocks", [[[0, 1, 2], [3, 4, 5]], [[4, 2], [0, 6], [5, 3], [1, 6]]]
)
def test_each_device_has_its_own_clients_samples(clients, blocks):
    own = clients.in_blocks(np.array(blocks))
    for device, ids in enumerate(blocks):
        part = part_of(own, device, len(blocks))
        for row, client in enumerate(ids):
            if client == CLIENTS:
                continue
            there = members(part.assignment, row)
            expected = members(clients.assignment, client)
            assert part.source.targets[there].tolist() == expected.tolist()
            key = jax.random.key(client)
            found, drawn = part.batch(key, row), clients.batch(key, client)
            np.testing.assert_array_equal(found.inputs, drawn.inputs)
            np.testing.assert_array_equal(found.targets, drawn.targets)
            whole, same = part.full(row), clients.full(client)
            np.testing.assert_array_equal(whole.mask, same.mask)
            real = np.asarray(same.mask) == 1
            np.testing.assert_array_equal(whole.inputs[real], same.inputs[real])
    # No device has them all.
    assert len(own.source.targets) < len(blocks) * 10


def test_rows_that_stay_where_they_are():
    def rows(name, **options):
        found = client_blocks.row_order(build(name, **options).recipe)
        return None if found is None else found.tolist()

    everybody = list(range(CLIENTS))
    assert rows("afga", active=2) == everybody
    assert rows("dsgd") == everybody
    assert rows("afga", active=2, mix_every=2) == everybody
    assert rows("afga_adapted", active=2) == everybody
    clustered = rows("cafga", num_clusters=2, active=2)
    assert sorted(clustered) == everybody
    unequal = rows("cafga", clustering=[0, 1, 1, 1, 0, 1], participation=0.5)
    assert sorted(unequal) == [*everybody, CLIENTS, CLIENTS]
    # Who holds a model changes with the plan, or with the cycle.
    assert rows("fedavg", active=2) is None
    assert rows("afga_adapted", active=2, adapted="per_round") is None
    assert rows("fedcluster", num_clusters=2, participation=0.5) is None


def test_what_lies_in_blocks_and_what_is_copied(clients):
    recipe = build("cafga", num_clusters=2, active=2).recipe
    assert client_blocks.can_be_split(clients, recipe)
    blocks = client_blocks.split(clients, recipe, 2)
    assert blocks.aligned
    np.testing.assert_array_equal(blocks.sizes, clients.sizes)
    assert blocks.row_of[CLIENTS] == CLIENTS
    spec = client_blocks.specs(blocks)
    assert (spec.own, spec.sizes) == (PartitionSpec("clients"), PartitionSpec())
    assert not client_blocks.split(clients, build("fedavg").recipe, 2).aligned
    # One client that holds everything, data of one's own, samples that are computed.
    assert not client_blocks.can_be_split(clients, build("sgd").recipe)
    assert not client_blocks.can_be_split(toy.clients(CLIENTS), recipe)
    digits = data.digits()
    held = data.partition.build("overlap", digits.train_targets, 6, client_size=4)
    computed = data.from_dataset(digits, held, batch_size=2)
    assert not client_blocks.can_be_split(computed, recipe)
    assert client_blocks.specs(computed) == PartitionSpec()
