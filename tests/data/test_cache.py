"""The decoded cache: what is written is read, and nothing else is trusted."""

import os
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

import loopback
import stored
from afga_jax.data.store import cache
from afga_jax.data.store.catalog import DataError


def test_what_is_written_is_read(access):
    arrays = loopback.arrays_of("cifar10")
    path = stored.store(access, "cifar10", arrays, "somewhere")
    found, header = cache.read("cifar10", access.cache_dir)
    stored.assert_same(found, arrays)
    assert header.origin == "somewhere"
    assert cache.peek("cifar10", access.cache_dir) == header
    assert list(access.cache_dir.iterdir()) == [path]


def test_nothing_written_is_nothing_read(access):
    assert cache.read("cifar10", access.cache_dir) is None
    assert cache.peek("cifar10", access.cache_dir) is None


@pytest.mark.parametrize("kept", [0, 1, 100, 0.3, 0.9, 0.9999])
def test_truncated_cache_is_refused(kept, access):
    path = stored.store(access, "mnist", loopback.arrays_of("mnist"))
    whole = path.read_bytes()
    path.write_bytes(whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
    with pytest.raises(DataError, match="damaged") as caught:
        cache.read("mnist", access.cache_dir)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_altered_cache_is_refused_whatever_byte_changes(access):
    arrays = {"train_inputs": np.arange(40, dtype=np.uint8)}
    path = stored.store(access, "mnist", arrays)
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
            stored.assert_same(found, arrays)
            assert header.origin == "originals"
    assert refused > len(whole) / 2


def test_array_with_a_new_checksum_but_the_old_header_is_refused(access):
    arrays = loopback.arrays_of("mnist")
    path = stored.store(access, "mnist", arrays)
    with np.load(path) as content:
        members = dict(content)
    members["train_targets"][3] += 1
    with open(path, "wb") as file:
        np.savez(file, **members)
    with pytest.raises(DataError, match="train_targets changed"):
        cache.read("mnist", access.cache_dir)


def test_cache_of_another_set_or_format_is_refused(access, monkeypatch):
    stored.store(access, "mnist", loopback.arrays_of("mnist"))
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
    path = stored.store(access, "mnist", arrays)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        stored.store(access, "mnist", loopback.arrays_of("mnist", seed=1))
    assert path.read_bytes() == before
    assert list(access.cache_dir.iterdir()) == [path]


def test_whoever_reads_while_it_is_replaced_gets_a_whole_set(access):
    before, after = (loopback.arrays_of("mnist", seed) for seed in (1, 2))
    path = stored.store(access, "mnist", before)
    whole = path.read_bytes()
    with open(path, "rb") as reader:
        half = reader.read(len(whole) // 2)
        stored.store(access, "mnist", after)
        assert half + reader.read() == whole
    stored.assert_same(cache.read("mnist", access.cache_dir)[0], after)


def test_python_objects_are_not_stored(access):
    with pytest.raises(TypeError, match="references"):
        stored.store(access, "mnist", {"names": np.array([{}, []], dtype=object)})
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
