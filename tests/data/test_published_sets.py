"""FEMNIST, Tiny-ImageNet and CINIC-10: small files in their form, fetched or put there.

No checksum of these files is published, so the first fetch records it.
"""

import logging

import numpy as np
import pytest

import loopback
from afga_jax import data
from afga_jax.data.store import cache, catalog, fetch, sources
from afga_jax.data.store.catalog import DataError
from afga_jax.data.tables.build import held_back

NAMES = ("femnist", "tiny_imagenet", "cinic10")


@pytest.fixture
def online(access):
    return sources.Access(access.data_dir, access.cache_dir, offline=False, attempts=1)


@pytest.fixture
def served(server, monkeypatch):
    """Serves small sets; returns what they hold, by name."""
    arrays = {name: loopback.arrays_of(name) for name in NAMES}
    stand_ins = {
        name: server.stand_in(name, loopback.originals_of(name, arrays[name]))
        for name in NAMES
    }
    loopback.register(stand_ins, monkeypatch.setattr)
    return arrays


def put(folder, name, arrays):
    """Writes the files that a publisher has into a folder."""
    folder.mkdir(parents=True)
    for file, content in loopback.originals_of(name, arrays).items():
        (folder / file).write_bytes(content)


def damage(access, name):
    path = cache.path_of(name, access.cache_dir)
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("name", ["tiny_imagenet", "cinic10"])
def test_fetched_equals_what_was_published(name, served, online):
    dataset = data.load(name, online)
    for part in ("train_inputs", "train_targets", "test_inputs", "test_targets"):
        np.testing.assert_array_equal(getattr(dataset, part), served[name][part])
    assert dataset.label_names == tuple(served[name]["label_names"])
    assert dataset.train_clients is None


def test_femnist_is_of_writers_and_a_fifth_of_each_is_for_testing(served, online):
    dataset = data.load("femnist", online)
    images, writers = served["femnist"]["train_inputs"], np.arange(50) // 10
    held = held_back(writers, 0.2)
    np.testing.assert_array_equal(dataset.train_inputs, images[~held])
    np.testing.assert_array_equal(dataset.test_inputs, images[held])
    np.testing.assert_array_equal(dataset.train_clients, writers[~held])
    assert dataset.client_names == tuple(f"f000{number}_14" for number in range(5))
    assert np.bincount(dataset.train_clients).tolist() == [8] * 5


def test_a_first_fetch_is_recorded_and_later_ones_are_compared(
    served, server, online, caplog
):
    with caplog.at_level(logging.WARNING):
        sources.load_arrays(catalog.find("cinic10"), online)
    path = fetch.recorded_in("cinic10", online.cache_dir)
    assert (
        "cinic10 is unverified: no checksum of its files is published." in caplog.text
    )
    assert str(path) in caplog.text
    files = loopback.originals_of("cinic10", served["cinic10"])
    assert [line.split("  ")[1] for line in path.read_text().splitlines()] == [*files]
    caplog.clear()

    damage(online, "cinic10")
    sources.load_arrays(catalog.find("cinic10"), online)
    assert "unverified" not in caplog.text

    damage(online, "cinic10")
    before = path.read_text()
    other = loopback.originals_of("cinic10", loopback.arrays_of("cinic10", seed=1))
    server.stand_in("cinic10", other)
    with pytest.raises(
        DataError, match=r"wrong checksum.*at the first fetch.*delete"
    ) as said:
        sources.load_arrays(catalog.find("cinic10"), online)
    assert str(path) in str(said.value)
    assert path.read_text() == before


def test_it_is_said_to_be_unverified(served, online):
    assert sources.status("femnist", online).download[0].about > 0
    sources.load_arrays(catalog.find("femnist"), online)
    status = sources.status("femnist", online)
    assert (status.state, status.note) == ("cached", "unverified")
    (line,) = sources.verify("femnist", online)
    assert line.endswith("50 train, 62 classes, content unverified")


def test_no_more_is_taken_than_twice_what_the_page_says(served, server, online):
    ((path, content),) = [x for x in server.files.items() if "femnist" in x[0]]
    server.files[path] = content * 3
    with pytest.raises(DataError, match=f"more than {2 * len(content):,} bytes"):
        sources.load_arrays(catalog.find("femnist"), online)
    assert list(online.cache_dir.iterdir()) == []


@pytest.mark.parametrize("place", ["cinic10", "cinic10/data"])
def test_files_that_lie_there_need_no_network(place, served, access, monkeypatch):
    specs = dict(catalog.CATALOG)
    tables = specs["cinic10"].tables
    below = {
        split: (f"data/{path}", size) for split, (path, size) in tables.files.items()
    }
    specs["cinic10"] = catalog.dataclasses.replace(
        specs["cinic10"], tables=tables._replace(files=below)
    )
    monkeypatch.setattr(catalog, "CATALOG", specs)
    with pytest.raises(
        DataError, match=r"that has train-0.*and test-0.* in a folder cinic10\."
    ):
        data.load("cinic10", access)
    put(access.data_dir / place, "cinic10", served["cinic10"])
    for _ in range(2):  # decoded, and from the cache
        dataset = data.load("cinic10", access)
        np.testing.assert_array_equal(
            dataset.test_inputs, served["cinic10"]["test_inputs"]
        )
    assert sources.status("cinic10", access).state == "prepared"
    assert len(sources.verify("cinic10", access)) == 2


def test_files_of_another_set_are_refused(served, access):
    arrays = {key: array[:40] for key, array in served["femnist"].items()}
    put(
        access.data_dir / "femnist",
        "femnist",
        {**arrays, "label_names": served["femnist"]["label_names"]},
    )
    with pytest.raises(DataError, match=r"are not it \(train images are uint8\[40, 28"):
        data.load("femnist", access)
    (path,) = (access.data_dir / "femnist").iterdir()
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"femnist: cannot read train-0.*as Parquet"):
        data.load("femnist", access)
