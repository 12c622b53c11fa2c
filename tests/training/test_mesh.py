"""Meshes, and what a round on one device shares with one on many."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh

import afga_jax
import toy
from afga_jax.gossip import kernels
from afga_jax.mesh import make_mesh
from afga_jax.runs import devices
from afga_jax.runs.config import Config, differences
from afga_jax.training import placement
from cases import marked

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
        devices.wanted({"mesh": text})


def test_a_mesh_that_does_not_fit():
    devices = jax.devices() * 4
    with pytest.raises(
        ValueError, match=r"takes 8 devices, but there are 4: .*cpu_dev"
    ):
        make_mesh({"clients": 8}, devices)
    with pytest.raises(ValueError, match=r"not divide the 10 clients.* take clients:2"):
        make_mesh({"clients": 4}, devices, clients=10, seeds=1)
    with pytest.raises(ValueError, match=r"not divide the 3 seeds.* take seeds:1"):
        make_mesh({"seeds": 2, "clients": 2}, devices, clients=10, seeds=3)
    mesh = make_mesh({"seeds": 1}, seeds=1)
    with pytest.raises(ValueError, match="one key and not several"):
        placement.placement(mesh, KEY, blocks=True)


def test_devices_that_a_mesh_asks_for():
    assert devices.wanted({"mesh": "seeds:2,clients:4"}) == 8
    assert devices.wanted({"mesh": "clients:8", "cpu_devices": 2}) == 2
    assert devices.wanted({}) is None
    assert devices.mesh_of(Config()) is None
    assert not differences(Config(mesh="clients:2"), Config())


@pytest.mark.parametrize("devices", [2, 4, 5])
@pytest.mark.parametrize(
    ("make", "size", "clusters"),
    [
        (kernels.ring, 16, 1),
        (kernels.ring, 5, 3),
        (kernels.torus, 12, 2),
        (kernels.exponential, 7, 3),
    ],
)
def test_shifts_of_clusters_that_blocks_cut(make, size, clusters, devices):
    """As on a mesh of so many devices, computed on one."""
    kernel, mesh = make(size), AbstractMesh((devices,), ("clients",))
    x = np.random.default_rng(0).normal(size=(size * clusters, 2))
    matrix = np.kron(np.eye(clusters), kernel.matrix())
    with jax.enable_x64(True):
        mixed = kernel.in_clusters(jnp.asarray(x), clusters, mesh)
    np.testing.assert_allclose(mixed, matrix @ x, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", marked(["afga", "scaffold", "dsgd"], ["scaffold"]))
def test_a_mesh_of_one_device_is_one_device(name, x64):
    options = {} if name == "dsgd" else {"active": 3}
    algorithm = afga_jax.build(
        name, toy.logistic(), num_clients=8, local_steps=2, **options
    )
    ended = []
    for mesh in (None, make_mesh({"clients": 1}, clients=8)):
        execution = afga_jax.Execution("dense", mesh=mesh)
        trainer = afga_jax.Trainer(algorithm, execution, capacity=2)
        ended.append(trainer.run(KEY, trainer.init(KEY), toy.clients(8), 2))
    chex.assert_trees_all_close(*ended, rtol=0, atol=1e-13)
