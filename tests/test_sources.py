"""Prepared sets, the decoded cache, and which of them serves a data set."""

import io
import json
import os
import threading
import zipfile
from pathlib import Path

import loopback
import numpy as np
import pytest
import tensorflow_datasets as tfds
from array_record.python import array_record_module
from PIL import Image
from tensorflow_datasets.core.hashing import Hasher
from tensorflow_datasets.proto import tf_example_pb2

from afga_jax.data import cache, catalog, content, inventory, prepared, roles, sources
from afga_jax.data.catalog import DataError
from afga_jax.data.shakespeare import Role, parse, read_text

real_data = pytest.mark.skipif(
    not os.environ.get("TFDS_DATA_DIR"),
    reason="TFDS_DATA_DIR is not set, so there are no real data sets to read",
)


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


def prepare(data_dir, name, arrays, form="array_record"):
    """Writes a set as TFDS prepares it: encoded, in the order of a salted hash."""
    folder = data_dir / name / "3.0.2"
    folder.mkdir(parents=True)
    spec = catalog.find(name)
    names = arrays["label_names"].tolist()
    features = {
        "image": tfds.features.Image(shape=spec.shape),
        "label": tfds.features.ClassLabel(names=names),
    }
    if name.startswith("cifar"):
        features["id"] = tfds.features.Text()
    tfds.features.FeaturesDict(features).save_config(folder)
    splits = []
    for split in ("train", "test"):
        images, labels = arrays[f"{split}_inputs"], arrays[f"{split}_targets"]
        splits.append({"name": split, "shardLengths": [str(len(labels))]})
        splits[-1]["filepathTemplate"] = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        path = folder / f"{name}-{split}.{form}-00000-of-00001"
        writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
        for row in sorted(range(len(labels)), key=Hasher(split).hash_key):
            file = io.BytesIO()
            Image.fromarray(np.squeeze(images[row])).save(file, "PNG")
            example = tf_example_pb2.Example()
            feature = example.features.feature
            feature["image"].bytes_list.value.append(file.getvalue())
            feature["label"].int64_list.value.append(int(labels[row]))
            if "id" in features:
                feature["id"].bytes_list.value.append(f"{split}_{row:05d}".encode())
            writer.write(example.SerializeToString())
        writer.close()
    info = {"name": name, "version": "3.0.2", "fileFormat": form, "splits": splits}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    return folder


def store(access, name, arrays, origin="originals"):
    with cache.workspace(name, access.cache_dir) as scratch:
        cache.write(name, access.cache_dir, arrays, origin, scratch)
    return cache.path_of(name, access.cache_dir)


def assert_same(arrays, expected):
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


# The cache.


def test_what_is_written_is_read(access):
    arrays = loopback.arrays_of("cifar10")
    path = store(access, "cifar10", arrays, "somewhere")
    found, header = cache.read("cifar10", access.cache_dir)
    assert_same(found, arrays)
    assert header.origin == "somewhere"
    assert cache.peek("cifar10", access.cache_dir) == header
    assert list(access.cache_dir.iterdir()) == [path]


def test_nothing_written_is_nothing_read(access):
    assert cache.read("cifar10", access.cache_dir) is None
    assert cache.peek("cifar10", access.cache_dir) is None


@pytest.mark.parametrize("kept", [0, 1, 100, 0.3, 0.9, 0.9999])
def test_truncated_cache_is_refused(kept, access):
    path = store(access, "mnist", loopback.arrays_of("mnist"))
    whole = path.read_bytes()
    path.write_bytes(whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
    with pytest.raises(DataError, match="damaged") as caught:
        cache.read("mnist", access.cache_dir)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_altered_cache_is_refused_whatever_byte_changes(access):
    arrays = {"train_inputs": np.arange(40, dtype=np.uint8)}
    path = store(access, "mnist", arrays)
    whole = path.read_bytes()
    refused = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            found, header = cache.read("mnist", access.cache_dir)
        except DataError:
            refused += 1
        else:
            # Bytes that mean nothing, such as a member's date.
            assert_same(found, arrays)
            assert header.origin == "originals"
    assert refused > len(whole) / 2


def test_array_with_a_new_checksum_but_the_old_header_is_refused(access):
    arrays = loopback.arrays_of("mnist")
    path = store(access, "mnist", arrays)
    with np.load(path) as stored:
        members = dict(stored)
    members["train_targets"][3] += 1
    with open(path, "wb") as file:
        np.savez(file, **members)
    with pytest.raises(DataError, match="train_targets changed"):
        cache.read("mnist", access.cache_dir)


def test_cache_of_another_set_or_format_is_refused(access, monkeypatch):
    store(access, "mnist", loopback.arrays_of("mnist"))
    stranger = cache.path_of("fashion_mnist", access.cache_dir)
    stranger.write_bytes(cache.path_of("mnist", access.cache_dir).read_bytes())
    with pytest.raises(DataError, match="holds 'mnist'"):
        cache.read("fashion_mnist", access.cache_dir)
    monkeypatch.setattr(cache, "FORMAT", cache.FORMAT + 1)
    with pytest.raises(DataError, match="in format 1, not 'mnist' in format 2"):
        cache.read("mnist", access.cache_dir)
    assert cache.peek("mnist", access.cache_dir) is None


def test_foreign_files_are_refused(access, tmp_path):
    access.cache_dir.mkdir()
    path = cache.path_of("mnist", access.cache_dir)
    np.savez_compressed(path, header=np.array("{}"), train_inputs=np.zeros(10**6))
    with pytest.raises(DataError, match="compressed members"):
        cache.read("mnist", access.cache_dir)
    np.savez(path, header=np.array({"a": open}, dtype=object))
    with pytest.raises(DataError, match="allow_pickle"):
        cache.read("mnist", access.cache_dir)
    np.savez(path, header=np.array("[1, 2]"))
    with pytest.raises(DataError, match="damaged"):
        cache.read("mnist", access.cache_dir)
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match="damaged"):
        cache.read("mnist", access.cache_dir)


def test_array_that_claims_more_than_the_file_has_is_refused(access):
    access.cache_dir.mkdir()
    path = cache.path_of("mnist", access.cache_dir)
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999999999,), }"
    with zipfile.ZipFile(path, "w") as members:
        npy = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        members.writestr("header.npy", npy)
    with pytest.raises(DataError, match="damaged"):
        cache.read("mnist", access.cache_dir)


def test_failed_write_leaves_what_was_there(access, monkeypatch):
    arrays = loopback.arrays_of("mnist")
    path = store(access, "mnist", arrays)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store(access, "mnist", loopback.arrays_of("mnist", seed=1))
    assert path.read_bytes() == before
    assert list(access.cache_dir.iterdir()) == [path]


def test_whoever_reads_while_it_is_replaced_gets_a_whole_set(access):
    before, after = (loopback.arrays_of("mnist", seed) for seed in (1, 2))
    path = store(access, "mnist", before)
    whole = path.read_bytes()
    with open(path, "rb") as reader:
        half = reader.read(len(whole) // 2)
        store(access, "mnist", after)
        assert half + reader.read() == whole
    assert_same(cache.read("mnist", access.cache_dir)[0], after)


def test_python_objects_are_not_stored(access):
    with pytest.raises(TypeError, match="references"):
        store(access, "mnist", {"names": np.array([{}, []], dtype=object)})
    assert list(access.cache_dir.iterdir()) == []


def test_workspace_removes_what_a_killed_process_left(access):
    left = access.cache_dir / ".mnist.partial"
    left.mkdir(parents=True)
    (left / "half.gz").write_bytes(b"half")
    (access.cache_dir / ".mnist.lock").touch()
    with cache.workspace("mnist", access.cache_dir) as scratch:
        assert list(scratch.iterdir()) == []
    assert list(access.cache_dir.iterdir()) == []


def test_workspace_is_had_by_one_at_a_time(tmp_path):
    counter = tmp_path / "count"
    counter.write_text("0")

    def count_up():
        for _ in range(50):
            with cache.workspace("mnist", tmp_path):
                counter.write_text(str(int(counter.read_text()) + 1))

    # Each opens the lock anew, so the kernel treats threads like processes here.
    crowd = [threading.Thread(target=count_up) for _ in range(4)]
    for member in crowd:
        member.start()
    for member in crowd:
        member.join()
    assert counter.read_text() == "200"
    assert list(tmp_path.iterdir()) == [counter]


def test_cache_folder_by_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("AFGA_CACHE_DIR", str(tmp_path / "own"))
    assert cache.default_folder() == tmp_path / "own"
    monkeypatch.delenv("AFGA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.default_folder() == tmp_path / "afga_jax"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.default_folder() == Path.home() / ".cache" / "afga_jax"


# Prepared sets.


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion_mnist"])
def test_prepared_set_comes_in_the_original_order(name, access, small_sets):
    arrays = loopback.arrays_of(name)
    folder = prepare(access.data_dir, name, arrays)
    found = prepared.find(catalog.find(name), access.data_dir)
    assert (found.folder, found.readable) == (folder, True)
    assert_same(prepared.read(catalog.find(name), found), arrays)
    data = sources.load(name, access)
    assert data.label_names == tuple(arrays["label_names"])
    np.testing.assert_array_equal(data.test_inputs, arrays["test_inputs"])


def test_reading_writes_nothing_beside_the_prepared_set(access, small_sets):
    prepare(access.data_dir, "cifar100", loopback.arrays_of("cifar100"))
    before = {path: path.stat().st_mtime_ns for path in access.data_dir.rglob("*")}
    sources.load("cifar100", access)
    after = {path: path.stat().st_mtime_ns for path in access.data_dir.rglob("*")}
    assert after == before


def test_newest_whole_version_is_taken(access, small_sets):
    folder = prepare(access.data_dir, "mnist", loopback.arrays_of("mnist"))
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
    prepare(access.data_dir, "cifar10", arrays)
    sources.load("cifar10", access)
    monkeypatch.setattr(prepared, "read", None)
    assert_same(sources.load_arrays(catalog.find("cifar10"), access), arrays)


def test_prepared_set_is_preferred_to_the_cache(access, small_sets):
    ours, theirs = (loopback.arrays_of("cifar10", seed) for seed in (1, 2))
    store(access, "cifar10", ours)
    assert_same(sources.load_arrays(catalog.find("cifar10"), access), ours)
    prepare(access.data_dir, "cifar10", theirs)
    assert_same(sources.load_arrays(catalog.find("cifar10"), access), theirs)


def test_prepared_anew_is_decoded_anew(access, small_sets):
    before, after = (loopback.arrays_of("mnist", seed) for seed in (1, 2))
    folder = prepare(access.data_dir, "mnist", before)
    sources.load("mnist", access)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.parent.rmdir()
    prepare(access.data_dir, "mnist", after)
    assert_same(sources.load_arrays(catalog.find("mnist"), access), after)


@pytest.mark.parametrize("damage", ["truncate", "remove", "info", "features"])
def test_damaged_prepared_set_is_named(damage, access, small_sets):
    folder = prepare(access.data_dir, "mnist", loopback.arrays_of("mnist"))
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
    prepare(access.data_dir, "cifar10", loopback.arrays_of("cifar10"))
    monkeypatch.setattr(prepared, "_position", lambda identifier: 0)
    with pytest.raises(DataError, match="ids of split train"):
        sources.load("cifar10", access)


def test_form_that_needs_tensorflow_is_named(access, small_sets):
    prepare(access.data_dir, "mnist", loopback.arrays_of("mnist"), form="tfrecord")
    with pytest.raises(DataError, match="only as tfrecord, which needs TensorFlow"):
        sources.load("mnist", access)
    status = inventory.status("mnist", access)
    assert status.state == "missing"
    assert status.note.endswith("is tfrecord, which needs TensorFlow")


def test_verify_looks_at_every_place(access, small_sets):
    arrays = loopback.arrays_of("mnist")
    folder = prepare(access.data_dir, "mnist", arrays)
    path = store(access, "mnist", arrays)
    prepared_line, cached_line = inventory.verify("mnist", access)
    assert prepared_line.startswith(str(folder))
    assert cached_line.startswith(str(path))
    path.write_bytes(b"no archive")
    record = folder / "mnist-train.array_record-00000-of-00001"
    record.write_bytes(record.read_bytes()[:-5000])
    with pytest.raises(DataError) as caught:
        inventory.verify("mnist", access)
    assert f"{folder} is damaged" in str(caught.value)
    assert f"{path} is damaged" in str(caught.value)


def test_labels_outside_the_classes_are_refused(access, small_sets):
    arrays = loopback.arrays_of("cifar10")
    arrays["train_targets"][7] = 11
    arrays["label_names"] = np.array([str(k) for k in range(12)])
    prepare(access.data_dir, "cifar10", arrays)
    with pytest.raises(DataError, match=r"label 11 of sample 7 is outside \[0, 10\)"):
        sources.load("cifar10", access)


def test_unwritable_cache_does_not_stop_a_prepared_set(access, small_sets, caplog):
    arrays = loopback.arrays_of("mnist")
    prepare(access.data_dir, "mnist", arrays)
    access.cache_dir.write_text("a file where the folder should be")
    np.testing.assert_array_equal(
        sources.load("mnist", access).train_inputs, arrays["train_inputs"]
    )
    assert "is not kept for the next run" in caplog.text


# Which of them serves.


def test_damaged_cache_is_made_anew(access, small_sets, caplog):
    arrays = loopback.arrays_of("cifar10")
    prepare(access.data_dir, "cifar10", arrays)
    sources.load("cifar10", access)
    path = cache.path_of("cifar10", access.cache_dir)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert_same(sources.load_arrays(catalog.find("cifar10"), access), arrays)
    assert "made anew" in caplog.text
    assert_same(cache.read("cifar10", access.cache_dir)[0], arrays)


def test_cache_of_an_own_variant_does_not_pass_for_the_data_set(access):
    store(access, "mnist", loopback.arrays_of("mnist"), origin="prepared elsewhere")
    assert inventory.status("mnist", access).state == "missing"
    with pytest.raises(DataError, match="neither prepared under"):
        sources.load("mnist", access)


def test_missing_set_names_the_folders_and_the_ways(access):
    with pytest.raises(DataError) as caught:
        sources.load("cifar10", access)
    message = str(caught.value)
    for part in (
        "cifar10",
        str(access.data_dir),
        str(access.cache_dir),
        "python -m experiments.data fetch cifar10",
        "TFDS_DATA_DIR",
        "--data_dir",
    ):
        assert part in message
    assert "\n" not in message
    assert isinstance(caught.value, ValueError)


def test_bad_arguments(tmp_path, access):
    with pytest.raises(DataError, match="no data set 'cifar'; choose one of cifar10"):
        sources.load("cifar", access)
    with pytest.raises(DataError, match="use `load_roles`"):
        sources.load("shakespeare", access)
    with pytest.raises(DataError, match=r"nowhere does not exist"):
        sources.Access(data_dir=tmp_path / "nowhere")
    with pytest.raises(DataError, match="timeout is 0"):
        sources.Access(timeout=0)
    with pytest.raises(DataError, match="attempts is -1"):
        sources.Access(attempts=-1)


def test_tfds_folder_by_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "not there yet"))
    assert sources.Access().data_dir == tmp_path / "not there yet"
    monkeypatch.delenv("TFDS_DATA_DIR")
    assert sources.Access().data_dir == Path.home() / "tensorflow_datasets"


def test_digits_stand_in_only_for_what_nobody_asked_for(access, small_sets):
    data, note = sources.load_or_digits(None, "cifar10", access)
    assert data.name == "digits"
    assert "BUILT-IN DIGITS" in note
    assert "cifar10" in note
    assert "\n" not in note
    with pytest.raises(DataError, match="cifar10"):
        sources.load_or_digits("cifar10", "mnist", access)
    prepare(access.data_dir, "cifar10", loopback.arrays_of("cifar10"))
    data, note = sources.load_or_digits(None, "cifar10", access)
    assert (data.name, note) == ("cifar10", "")
    data, note = sources.load_or_digits("cifar10", "mnist", access)
    assert (data.name, note) == ("cifar10", "")


# Content.


def test_problems_name_what_is_wrong(small_sets):
    spec = catalog.find("cifar10")
    arrays = loopback.arrays_of("cifar10")
    assert content.problems(spec, arrays) == []
    short = arrays | {"train_inputs": arrays["train_inputs"][1:]}
    assert "uint8[49, 32, 32, 3], not uint8[50" in content.problems(spec, short)[0]
    short = arrays | {"test_targets": arrays["test_targets"][1:]}
    assert content.problems(spec, short) == ["test has 9 labels, not 10"]
    labels = arrays["test_targets"].copy()
    labels[4] = 10
    (problem,) = content.problems(spec, arrays | {"test_targets": labels})
    assert "test label 10 of sample 4 is outside [0, 10)" in problem
    names = arrays["label_names"][:9]
    (problem,) = content.problems(spec, arrays | {"label_names": names})
    assert problem == "9 label names for 10 classes"
    del arrays["label_names"]
    assert content.problems(spec, arrays) == ["label_names is missing"]


def test_roles_survive_packing():
    before = [
        Role("A_B", "A", "B", "words\nmore words\n"),
        Role("C_D", "C", "D", "“é”\n"),
        Role("E_F", "E", "F", ""),
    ]
    assert roles.unpack(roles.pack(before)) == before


# Real data.


@pytest.fixture(scope="module")
def decoded_once():
    """Lets the real sets be decoded once for all tests: it takes ten seconds each."""
    known, read = {}, prepared.read

    def remembered(spec, found):
        if spec.name not in known:
            known[spec.name] = read(spec, found)
        return known[spec.name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "read", remembered)
        yield


@real_data
@pytest.mark.slow
@pytest.mark.parametrize("name", list(catalog.CATALOG))
def test_real_set_is_verified(name, tmp_path, decoded_once):
    access = sources.Access(cache_dir=tmp_path)
    (line,) = inventory.verify(name, access)
    spec = catalog.find(name)
    assert str(access.data_dir / spec.prepared_name) in line
    assert "content as known" in line


@real_data
@pytest.mark.slow
def test_real_cifar10_rebuilt_and_served_decodes_to_the_same(
    tmp_path, decoded_once, monkeypatch
):
    spec, access = catalog.find("cifar10"), sources.Access(cache_dir=tmp_path / "cache")
    expected = prepared.read(spec, prepared.find(spec, access.data_dir))
    members = loopback.cifar_members("cifar10", expected)
    archive = loopback.tar_of(members, compresslevel=0)
    (tmp_path / "nothing prepared").mkdir()
    elsewhere = sources.Access(
        data_dir=tmp_path / "nothing prepared",
        cache_dir=access.cache_dir,
        offline=False,
    )
    with loopback.serving() as server:
        stand_in = server.stand_in("cifar10", {"cifar10.tar.gz": archive})
        loopback.register({"cifar10": stand_in}, monkeypatch.setattr)
        monkeypatch.setattr(catalog, "CATALOG", {"cifar10": spec})
        data = sources.load("cifar10", elsewhere)
    assert_same(cache.read("cifar10", access.cache_dir)[0], expected)
    np.testing.assert_array_equal(data.train_inputs, expected["train_inputs"])
    assert data.label_names[:2] == ("airplane", "automobile")
    (line, _) = inventory.verify("cifar10", access)
    assert "50,000 train, 10,000 test, 10 classes" in line


@real_data
def test_real_works_give_the_prepared_roles(tmp_path):
    access = sources.Access(cache_dir=tmp_path, offline=True)
    found = sources.load_roles(access)
    assert len(found) == 1129
    text = access.data_dir / "raw" / "shakespeare_complete_works.txt.gz"
    assert parse(read_text(text)) == found
    assert sources.load_roles(access) == found


@real_data
def test_real_works_served_as_a_zip_decode_to_the_same(tmp_path, monkeypatch):
    access = sources.Access()
    text = read_text(access.data_dir / "raw" / "shakespeare_complete_works.txt.gz")
    # The archive has a byte-order mark and the line ends of another system.
    published = text.replace("\n", "\r\n").encode("utf-8-sig")
    (tmp_path / "nothing prepared").mkdir()
    elsewhere = sources.Access(
        data_dir=tmp_path / "nothing prepared",
        cache_dir=tmp_path / "cache",
        offline=False,
    )
    with loopback.serving() as server:
        archive = loopback.zip_of({"100.txt": published})
        stand_in = server.stand_in("shakespeare", {"works.zip": archive})
        loopback.register({"shakespeare": stand_in}, monkeypatch.setattr)
        served = sources.load_roles(elsewhere)
    assert served == parse(text)
    (line,) = inventory.verify("shakespeare", elsewhere)
    assert "1,129 roles, 4,226,158 samples" in line
