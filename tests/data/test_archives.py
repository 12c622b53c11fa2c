"""Archives that are broken or were made to do harm: one line, nothing unpacked.

A registered checksum is compared before (`test_fetch`), so few of these can be met.
"""

import gzip
import io
import pickle
import tarfile

import numpy as np
import pytest

import loopback
from afga_jax.data.store import archives, catalog
from afga_jax.data.store.catalog import DataError

pytestmark = pytest.mark.usefixtures("small_sets")


def refusal(tmp_path, name, files):
    """The message with which the files are refused; nothing else may be written."""
    folder = tmp_path / "originals"
    folder.mkdir()
    for file, content in files.items():
        (folder / file).write_bytes(content)
    paths = {file: folder / file for file in files}
    with pytest.raises(DataError) as caught:
        archives.decode(catalog.find(name), paths)
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(
        ["originals", *files]
    )
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{name}: cannot read {', '.join(files)}: ")
    return message


def cifar(changes=None, without=(), name="cifar10"):
    members = loopback.cifar_members(name, loopback.arrays_of(name))
    members = {key: members[key] for key in members if not key.endswith(without)}
    return {"archive.tar.gz": loopback.tar_of(members | (changes or {}))}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_member_that_is_no_plain_file_is_not_followed(kind, tmp_path):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
        member.type, member.linkname = kind, "/etc/hostname"
        archive.addfile(member)
    message = refusal(tmp_path, "cifar10", {"archive.tar.gz": file.getvalue()})
    assert "data_batch_1.bin" in message
    assert "missing" in message


def test_members_count_by_their_exact_names_only(tmp_path):
    wanted = "data_batch_3.bin"
    content = loopback.cifar_members("cifar10", loopback.arrays_of("cifar10"))[
        f"cifar-10-batches-bin/{wanted}"
    ]
    for folder in ("..", "/cifar-10-batches-bin", "other", "x/cifar-10-batches-bin"):
        files = cifar({f"{folder}/{wanted}": content}, without=wanted)
        place = tmp_path / folder.replace("/", "_").replace("..", "above")
        place.mkdir()
        assert f"{wanted} missing" in refusal(place, "cifar10", files)


@pytest.mark.parametrize("kept", [0, 1, 10, 500, 0.5, 0.999])
def test_truncated_archive(kept, tmp_path):
    ((name, content),) = cifar().items()
    length = kept if isinstance(kept, int) else int(kept * len(content))
    refusal(tmp_path, "cifar10", {name: content[:length]})


def test_missing_member(tmp_path):
    message = refusal(tmp_path, "cifar10", cifar(without="data_batch_3.bin"))
    assert "data_batch_3.bin missing" in message


def test_missing_label_names(tmp_path):
    message = refusal(tmp_path, "cifar10", cifar(without="batches.meta.txt"))
    assert "batches.meta.txt missing" in message


@pytest.mark.parametrize(("length", "word"), [(9, "fewer"), (11, "more")])
def test_wrong_number_of_records(length, word, tmp_path):
    changes = {"cifar-10-batches-bin/data_batch_2.bin": bytes(3073 * length)}
    message = refusal(tmp_path, "cifar10", cifar(changes))
    assert f"data_batch_2.bin has {word} than 10 records" in message


def test_no_pickle_is_opened(tmp_path):
    class Harm:
        def __reduce__(self):
            return open, (str(tmp_path / "harm"), "w")

    members = {"cifar-10-batches-py/data_batch_1": pickle.dumps(Harm())}
    message = refusal(tmp_path, "cifar10", {"python.tar.gz": loopback.tar_of(members)})
    assert "missing" in message


@pytest.mark.parametrize(
    ("plain", "cut", "reason"),
    [
        (None, None, "[Nn]ot a gzipped file"),
        (b"\0\0\x08\x01\0\0\0\x33" + bytes(51), None, "does not start as idx"),
        (b"\0\0\x08\x01\0\0\0\x32" + bytes(49), None, "does not hold 50 bytes"),
        (b"\0\0\x08\x01\0\0\0\x32" + bytes(51), None, "does not hold 50 bytes"),
        (b"\0\0\x08\x01\0\0\0\x32" + bytes(50), -9, "ended before"),
    ],
    ids=["not gzip", "other count", "too short", "too long", "truncated"],
)
def test_broken_idx_file(plain, cut, reason, tmp_path):
    # Compressed here, not above: a gzip header holds the time, and a test's name must
    # be the same in every process that runs the tests.
    content = b"not gzip" if plain is None else gzip.compress(plain)[:cut]
    files = loopback.originals_of("mnist", loopback.arrays_of("mnist"))
    files |= {"train-labels-idx1-ubyte.gz": content}
    folder = tmp_path / "originals"
    folder.mkdir()
    for file, data in files.items():
        (folder / file).write_bytes(data)
    paths = {file: folder / file for file in files}
    with pytest.raises(DataError, match=reason):
        archives.decode(catalog.find("mnist"), paths)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"readme": b"", "../100.txt": b"words"}, "no item named '100.txt'"),
        ({"100.txt": bytes(21 << 20)}, "longer than 20,971,520 bytes"),
        ({"100.txt": b"\xff\xfe words"}, "can't decode"),
        ({"100.txt": b"no play here"}, "not the edition that LEAF splits"),
    ],
)
def test_broken_works(members, reason, tmp_path):
    files = {"works.zip": loopback.zip_of(members)}
    assert reason in refusal(tmp_path, "shakespeare", files)


@pytest.mark.parametrize("kept", [0, 10, 100])
def test_truncated_zip(kept, tmp_path):
    content = loopback.zip_of({"100.txt": b"words " * 1000})
    refusal(tmp_path, "shakespeare", {"works.zip": content[:kept]})


def test_cifar100_label_is_the_fine_one(tmp_path):
    arrays = loopback.arrays_of("cifar100")
    path = tmp_path / "archive.tar.gz"
    path.write_bytes(loopback.originals_of("cifar100", arrays)["cifar100.tar.gz"])
    decoded = archives.decode(catalog.find("cifar100"), {path.name: path})
    np.testing.assert_array_equal(decoded["train_targets"], arrays["train_targets"])
    assert len(decoded["label_names"]) == 100
