"""Which place serves a data set, and the real data sets where they are at hand."""

import os
from pathlib import Path

import numpy as np
import pytest

import loopback
import stored
from afga_jax.data.store import cache, catalog, prepared, sources
from afga_jax.data.store.catalog import DataError
from afga_jax.data.text.shakespeare import (
    Role,
    pack,
    parse,
    plays_sha256,
    read_text,
    unpack,
)

real_data = pytest.mark.skipif(
    not os.environ.get("TFDS_DATA_DIR"),
    reason="TFDS_DATA_DIR is not set, so there are no real data sets to read",
)


def test_damaged_cache_is_made_anew(access, small_sets, caplog):
    arrays = loopback.arrays_of("cifar10")
    stored.prepare(access.data_dir, "cifar10", arrays)
    sources.load("cifar10", access)
    path = cache.path_of("cifar10", access.cache_dir)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    stored.assert_same(sources.load_arrays(catalog.find("cifar10"), access), arrays)
    assert "made anew" in caplog.text
    stored.assert_same(cache.read("cifar10", access.cache_dir)[0], arrays)


def test_cache_of_an_own_variant_does_not_pass_for_the_data_set(access):
    stored.store(
        access, "mnist", loopback.arrays_of("mnist"), origin="prepared elsewhere"
    )
    assert sources.status("mnist", access).state == "missing"
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
        "`afga_jax.data.load('cifar10')` fetches it",
        "TFDS_DATA_DIR",
        "`data_dir`",
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


def test_problems_name_what_is_wrong(small_sets):
    spec = catalog.find("cifar10")
    arrays = loopback.arrays_of("cifar10")
    assert catalog.problems(spec, arrays) == []
    short = arrays | {"train_inputs": arrays["train_inputs"][1:]}
    assert "uint8[49, 32, 32, 3], not uint8[50" in catalog.problems(spec, short)[0]
    short = arrays | {"test_targets": arrays["test_targets"][1:]}
    assert catalog.problems(spec, short) == ["test has 9 labels, not 10"]
    labels = arrays["test_targets"].copy()
    labels[4] = 10
    (problem,) = catalog.problems(spec, arrays | {"test_targets": labels})
    assert "test label 10 of sample 4 is outside [0, 10)" in problem
    names = arrays["label_names"][:9]
    (problem,) = catalog.problems(spec, arrays | {"label_names": names})
    assert problem == "9 label names for 10 classes"
    del arrays["label_names"]
    assert catalog.problems(spec, arrays) == ["label_names is missing"]


def test_roles_survive_packing():
    before = [
        Role("A_B", "A", "B", "words\nmore words\n"),
        Role("C_D", "C", "D", "“é”\n"),
        Role("E_F", "E", "F", ""),
    ]
    assert unpack(pack(before)) == before


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
@pytest.mark.parametrize(
    "name", [name for name, spec in catalog.CATALOG.items() if not spec.tables]
)
def test_real_set_is_verified(name, tmp_path, decoded_once):
    access = sources.Access(cache_dir=tmp_path)
    (line,) = sources.verify(name, access)
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
    stored.assert_same(cache.read("cifar10", access.cache_dir)[0], expected)
    np.testing.assert_array_equal(data.train_inputs, expected["train_inputs"])
    assert data.label_names[:2] == ("airplane", "automobile")
    (line, _) = sources.verify("cifar10", access)
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
def test_one_changed_letter_of_the_plays_is_noticed():
    works = sources.Access().data_dir / "raw" / "shakespeare_complete_works.txt.gz"
    text, registered = read_text(works), catalog.find("shakespeare").plays_sha256
    assert plays_sha256(text) == registered
    assert plays_sha256(text.replace("To be, or not", "To be, or nut")) != registered
    assert plays_sha256(text.replace("\n", "\r\n")) == registered


@real_data
def test_real_works_served_as_a_zip_decode_to_the_same(tmp_path, monkeypatch):
    access = sources.Access()
    text = read_text(access.data_dir / "raw" / "shakespeare_complete_works.txt.gz")
    # The archive has a byte-order mark and the line ends of another system; its header
    # and licence need not be those of our copy.
    framed = f"A header\n{text}Its licence\n"
    published = framed.replace("\n", "\r\n").encode("utf-8-sig")
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
    (line,) = sources.verify("shakespeare", elsewhere)
    assert "1,129 roles, 4,226,158 samples" in line
