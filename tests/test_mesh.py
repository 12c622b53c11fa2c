"""Meshes, who holds which rows, and what is sent; on one device, or with NumPy."""

import chex
import jax
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax import exchange, kernels, placement
from afga_jax.config import Config, differences
from afga_jax.shares import Share
from experiments import cores

KEY = jax.random.key(1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cliants:8", r"names the axis 'cliants', but .* seeds and clients"),
        ("clients:2,clients:2", "names the axis 'clients', but .* at most once"),
        ("clients", r"gives clients '' devices, but .* for example clients:4"),
        ("clients:0", "gives clients '0' devices, but it must be a whole number >= 1"),
    ],
)
def test_a_mesh_that_cannot_be_read(text, message):
    with pytest.raises(ValueError, match=message):
        Config(mesh=text)
    with pytest.raises(ValueError, match=message):
        cores.wanted({"mesh": text})


def test_a_mesh_that_does_not_fit():
    devices = jax.devices() * 4
    with pytest.raises(
        ValueError, match=r"takes 8 devices, but there are 4: .*cpu_dev"
    ):
        placement.make_mesh({"clients": 8}, devices)
    with pytest.raises(ValueError, match=r"not divide the 10 clients.* take clients:2"):
        placement.make_mesh({"clients": 4}, devices, clients=10, seeds=1)
    with pytest.raises(ValueError, match=r"not divide the 3 seeds.* take seeds:1"):
        placement.make_mesh({"seeds": 2, "clients": 2}, devices, clients=10, seeds=3)
    mesh = placement.make_mesh({"seeds": 1}, seeds=1)
    with pytest.raises(ValueError, match="one key and not several"):
        placement.placement(mesh, KEY, blocks=True)


def test_devices_that_a_mesh_asks_for():
    assert cores.wanted({"mesh": "seeds:2,clients:4"}) == 8
    assert cores.wanted({"mesh": "clients:8", "cpu_devices": 2}) == 2
    assert cores.wanted({}) is None
    assert cores.mesh_of(Config()) is None
    assert not differences(Config(mesh="clients:2"), Config())


def mixed_in_blocks(kernel, x, devices):
    """What `exchange.shifted` does, device by device."""
    size = -(-len(x) // devices)
    whole = np.concatenate([x, np.full(devices * size - len(x), np.nan)])
    blocks = whole.reshape(devices, size)
    edges = exchange.edges(kernel, len(x), devices)
    parts = [[block] for block in blocks]
    for pairs, table in edges.sends:
        got = {to: blocks[sender][table[sender]] for sender, to in pairs}
        for device, part in enumerate(parts):
            part.append(got.get(device, np.full(table.shape[1], np.nan)))
    near = [np.concatenate(part) for part in parts]
    shifted = [
        np.concatenate([near[d][source[d]] for d in range(devices)])
        for source in edges.sources
    ]
    return ((whole + sum(shifted)) / (1 + len(shifted)))[: len(x)]


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("make", "size", "clusters"),
    [
        (kernels.ring, 16, 1),
        (kernels.ring, 8, 2),
        (kernels.ring, 5, 3),
        (kernels.torus, 12, 1),
        (kernels.torus, 12, 2),
        (kernels.exponential, 16, 1),
        (kernels.exponential, 7, 2),
    ],
)
def test_neighbours_are_found_in_other_blocks(make, size, clusters, devices):
    kernel = make(size)
    x = np.random.default_rng(0).normal(size=size * clusters)
    matrix = np.kron(np.eye(clusters), kernel.matrix())
    mixed = mixed_in_blocks(kernel, x, devices)
    np.testing.assert_allclose(mixed, matrix @ x, rtol=0, atol=1e-14)


def test_rows_that_are_sent():
    # Two over each edge of a block, not as many as there are clients.
    assert exchange.edges(kernels.ring(64), 64, 8).rows == 2 * 8
    assert exchange.edges(kernels.ring(64), 64, 2).rows == 2 * 2
    assert exchange.edges(kernels.torus(64), 64, 8).rows == 2 * 8 * 8
    # Clusters that fill devices.
    assert exchange.edges(kernels.ring(8), 64, 8).rows == 0
    # Of a cluster on two devices both edges are between the same two.
    assert exchange.edges(kernels.ring(16), 64, 8).rows == 2 * 8


@pytest.mark.parametrize("name", ["afga", "scaffold", "dsgd"])
def test_a_mesh_of_one_device_is_one_device(name, x64):
    options = {} if name == "dsgd" else {"active": 3}
    algorithm = afga_jax.build(
        name, toy.logistic(), num_clients=8, local_steps=2, **options
    )
    ended = []
    for mesh in (None, placement.make_mesh({"clients": 1}, clients=8)):
        execution = afga_jax.Execution("dense", mesh=mesh)
        trainer = afga_jax.Trainer(algorithm, execution, capacity=2)
        ended.append(trainer.run(KEY, trainer.init(KEY), toy.clients(8), 2))
    chex.assert_trees_all_close(*ended, rtol=0, atol=1e-13)


def test_blocks_of_rows():
    share = Share(10)
    assert (share.devices, share.size) == (1, 10)
    held = share.held(np.arange(3))
    assert held.order is None
    mesh = placement.make_mesh({"clients": 1})

    def on_device(place):
        share = Share(10, "clients")
        held = share.held(place, 3)
        picked = held.pick(place, -1)
        return share.local(place), held.count, picked, held.everywhere(picked)

    spec = jax.sharding.PartitionSpec()
    run = jax.shard_map(
        on_device, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )
    local, count, picked, everywhere = run(np.array([7, 10, 2, 5]))
    # Padding (10) is past the last row, and the fourth is beyond the count.
    assert local.tolist() == [7, 10, 2, 5]
    assert int(count) == 2
    assert picked.tolist() == [7, 2, -1, -1]
    assert everywhere.tolist() == [7, 0, 2, 0]
