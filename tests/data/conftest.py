"""A server on this machine, an access without a network, and small stand-in sets."""

import pytest

import loopback
from afga_jax.data.store import sources


@pytest.fixture
def server():
    with loopback.serving() as running:
        yield running


@pytest.fixture
def access(tmp_path):
    (tmp_path / "tfds").mkdir()
    return sources.Access(
        data_dir=tmp_path / "tfds", cache_dir=tmp_path / "cache", offline=True
    )


@pytest.fixture
def small_sets(monkeypatch):
    names = ("cifar10", "cifar100", "fashion_mnist", "mnist")
    loopback.register({name: {} for name in names}, monkeypatch.setattr)
