"""Sets that TFDS has prepared: read in the original order, preferred, never written."""

import numpy as np
import pytest

import loopback
import stored
from afga_jax.data.store import catalog, prepared, sources
from afga_jax.data.store.catalog import DataError


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion_mnist"])
def test_prepared_set_comes_in_the_original_order(name, access, small_sets):
    arrays = loopback.arrays_of(name)
    folder = stored.prepare(access.data_dir, name, arrays)
    found = prepared.find(catalog.find(name), access.data_dir)
    assert (found.folder, found.readable) == (folder, True)
    stored.assert_same(prepared.read(catalog.find(name), found), arrays)
    data = sources.load(name, access)
    assert data.label_names == tuple(arrays["label_names"])
    np.testing.assert_array_equal(data.test_inputs, arrays["test_inputs"])


def test_reading_writes_nothing_beside_the_prepared_set(access, small_sets):
    stored.prepare(access.data_dir, "cifar100", loopback.arrays_of("cifar100"))
    before = {path: path.stat().st_mtime_ns for path in access.data_dir.rglob("*")}
    sources.load("cifar100", access)
    after = {path: path.stat().st_mtime_ns for path in access.data_dir.rglob("*")}
    assert after == before


def test_newest_whole_version_is_taken(access, small_sets):
    folder = stored.prepare(access.data_dir, "mnist", loopback.arrays_of("mnist"))
    for version in ("3.0.1", "2.10.0", "3.0.10.incompleteABC", "4.0.0"):
        (folder.parent / version).mkdir()
    for version in ("3.0.1", "2.10.0", "3.0.10.incompleteABC"):
        (folder.parent / version / "dataset_info.json").write_text("{}")
    found = prepared.find(catalog.find("mnist"), access.data_dir)
    assert found.folder == folder
    folder.rename(folder.parent / "3.0.10")
    found = prepared.find(catalog.find("mnist"), access.data_dir)
    assert found.folder.name == "3.0.10"


def test_prepared_set_is_decoded_once(access, small_sets, monkeypatch):
    arrays = loopback.arrays_of("cifar10")
    stored.prepare(access.data_dir, "cifar10", arrays)
    sources.load("cifar10", access)
    monkeypatch.setattr(prepared, "read", None)
    stored.assert_same(sources.load_arrays(catalog.find("cifar10"), access), arrays)


def test_prepared_set_is_preferred_to_the_cache(access, small_sets):
    ours, theirs = (loopback.arrays_of("cifar10", seed) for seed in (1, 2))
    stored.store(access, "cifar10", ours)
    stored.assert_same(sources.load_arrays(catalog.find("cifar10"), access), ours)
    stored.prepare(access.data_dir, "cifar10", theirs)
    stored.assert_same(sources.load_arrays(catalog.find("cifar10"), access), theirs)


def test_prepared_anew_is_decoded_anew(access, small_sets):
    before, after = (loopback.arrays_of("mnist", seed) for seed in (1, 2))
    folder = stored.prepare(access.data_dir, "mnist", before)
    sources.load("mnist", access)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.parent.rmdir()
    stored.prepare(access.data_dir, "mnist", after)
    stored.assert_same(sources.load_arrays(catalog.find("mnist"), access), after)


@pytest.mark.parametrize("damage", ["truncate", "remove", "info", "features"])
def test_damaged_prepared_set_is_named(damage, access, small_sets):
    folder = stored.prepare(access.data_dir, "mnist", loopback.arrays_of("mnist"))
    record = folder / "mnist-train.array_record-00000-of-00001"
    if damage == "truncate":
        record.write_bytes(record.read_bytes()[:-5000])
    elif damage == "remove":
        record.unlink()
    elif damage == "info":
        (folder / "dataset_info.json").write_text("{")
    else:
        (folder / "features.json").unlink()
    with pytest.raises(DataError, match="damaged") as caught:
        sources.load("mnist", access)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not access.cache_dir.exists()


def test_ids_that_do_not_count_the_records_are_refused(access, small_sets, monkeypatch):
    stored.prepare(access.data_dir, "cifar10", loopback.arrays_of("cifar10"))
    monkeypatch.setattr(prepared, "_position", lambda identifier: 0)
    with pytest.raises(DataError, match="ids of split train"):
        sources.load("cifar10", access)


def test_form_that_needs_tensorflow_is_named(access, small_sets):
    stored.prepare(
        access.data_dir, "mnist", loopback.arrays_of("mnist"), form="tfrecord"
    )
    with pytest.raises(DataError, match="only as tfrecord, which needs TensorFlow"):
        sources.load("mnist", access)
    status = sources.status("mnist", access)
    assert status.state == "missing"
    assert status.note.endswith("is tfrecord, which needs TensorFlow")


def test_verify_looks_at_every_place(access, small_sets):
    arrays = loopback.arrays_of("mnist")
    folder = stored.prepare(access.data_dir, "mnist", arrays)
    path = stored.store(access, "mnist", arrays)
    prepared_line, cached_line = sources.verify("mnist", access)
    assert prepared_line.startswith(str(folder))
    assert cached_line.startswith(str(path))
    path.write_bytes(b"no archive")
    record = folder / "mnist-train.array_record-00000-of-00001"
    record.write_bytes(record.read_bytes()[:-5000])
    with pytest.raises(DataError) as caught:
        sources.verify("mnist", access)
    assert f"{folder} is damaged" in str(caught.value)
    assert f"{path} is damaged" in str(caught.value)


def test_labels_outside_the_classes_are_refused(access, small_sets):
    arrays = loopback.arrays_of("cifar10")
    arrays["train_targets"][7] = 11
    arrays["label_names"] = np.array([str(k) for k in range(12)])
    stored.prepare(access.data_dir, "cifar10", arrays)
    with pytest.raises(DataError, match=r"label 11 of sample 7 is outside \[0, 10\)"):
        sources.load("cifar10", access)


def test_unwritable_cache_does_not_stop_a_prepared_set(access, small_sets, caplog):
    arrays = loopback.arrays_of("mnist")
    stored.prepare(access.data_dir, "mnist", arrays)
    access.cache_dir.write_text("a file where the folder should be")
    np.testing.assert_array_equal(
        sources.load("mnist", access).train_inputs, arrays["train_inputs"]
    )
    assert "is not kept for the next run" in caplog.text
