"""Data sets that people bring: Parquet files and folders of Hugging Face's library."""

import io
import json
import sys

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from afga_jax import data
from afga_jax.data.tables.build import held_back

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (20, 5, 4, 3), dtype=np.uint8)
KINDS = ["cat", "dog", "cat", "emu"] * 5
OWNERS = ["w2", "w1", "w1", "w3", "w2"] * 4
LABELS = np.array([sorted(set(KINDS)).index(kind) for kind in KINDS])
CLIENTS = np.array([int(owner[1]) - 1 for owner in OWNERS])


def encoded(pixels, form="PNG"):
    file = io.BytesIO()
    Image.fromarray(np.squeeze(pixels)).save(file, form)
    return file.getvalue()


def as_huggingface(pixels):
    """Images as the Image feature stores them."""
    return [{"bytes": encoded(p), "path": f"{i}.png"} for i, p in enumerate(pixels)]


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def pets(tmp_path):
    return write(
        tmp_path / "pets.parquet",
        image=as_huggingface(PIXELS),
        kind=KINDS,
        owner=OWNERS,
    )


def pets_of(path, **changes):
    options = {"input": "image", "label": "kind", "client": "owner"}
    return data.from_parquet(path, **{**options, **changes})


def assert_holds(dataset, pixels=PIXELS, fraction=0.2):
    """It has the samples of the columns above, cut for testing."""
    held = held_back(CLIENTS, fraction)
    np.testing.assert_array_equal(dataset.train_inputs, pixels[~held])
    np.testing.assert_array_equal(dataset.test_inputs, pixels[held])
    np.testing.assert_array_equal(dataset.train_targets, LABELS[~held])
    np.testing.assert_array_equal(dataset.test_targets, LABELS[held])
    np.testing.assert_array_equal(dataset.train_clients, CLIENTS[~held])
    assert dataset.client_names == ("w1", "w2", "w3")
    assert dataset.label_names == ("cat", "dog", "emu")


def test_images_with_clients(pets):
    dataset = pets_of(pets)
    assert_holds(dataset)
    assert dataset.name == "pets"
    held = data.partition.by_client(dataset.train_clients)
    clients = data.from_dataset(dataset, held, batch_size=4)
    assert clients.sizes.tolist() == np.bincount(dataset.train_clients).tolist()
    batch = clients.batch(jax.random.key(0), 2)
    own = LABELS[CLIENTS == 2]
    assert set(np.asarray(batch.targets)) <= set(own)


def test_the_part_for_testing_is_even_and_spares_every_client():
    random = np.random.default_rng(1)
    groups = random.permutation(np.repeat(np.arange(40), random.integers(1, 30, 40)))
    sizes = np.bincount(groups)
    for fraction in (0.1, 0.2, 0.25, 0.5, 0.9):
        held = held_back(groups, fraction)
        tests = np.bincount(groups[held], minlength=40)
        assert (sizes > tests).all()
        assert (np.abs(tests - fraction * sizes) <= 1).all()
        small = (sizes <= 1 + fraction / (1 - fraction)).sum()
        assert abs(held.sum() - fraction * len(groups)) <= 1 + small
    assert not held_back(groups, 0.0).any()


@pytest.mark.parametrize(
    "column",
    [
        [encoded(p) for p in PIXELS],
        as_huggingface(PIXELS),
        PIXELS.tolist(),
        pa.array(PIXELS.tolist(), pa.list_(pa.list_(pa.list_(pa.uint8(), 3)))),
    ],
    ids=["binary", "bytes and path", "nested lists", "fixed lists"],
)
def test_ways_to_store_an_image(tmp_path, column):
    path = write(tmp_path / "a.parquet", image=column, kind=KINDS, owner=OWNERS)
    assert_holds(pets_of(path))


def test_grey_images_and_flat_ones(tmp_path):
    grey = PIXELS[..., :1]
    columns = {"kind": KINDS, "owner": OWNERS}
    path = write(tmp_path / "a.parquet", image=as_huggingface(grey), **columns)
    assert_holds(pets_of(path), grey)
    flat = grey.reshape(20, -1).tolist()
    path = write(tmp_path / "b.parquet", image=flat, **columns)
    assert_holds(pets_of(path, shape=(5, 4, 1)), grey)
    with pytest.raises(ValueError, match=r"shape = \(5, 5\), but .* has 20 numbers"):
        pets_of(path, shape=(5, 5))


def test_one_image_in_colour_makes_all_so(tmp_path):
    """Tiny-ImageNet has grey files among its images."""
    mixed = [encoded(PIXELS[0, :, :, 0]), *map(encoded, PIXELS[1:])]
    path = write(tmp_path / "a.parquet", image=mixed, kind=KINDS, owner=OWNERS)
    first = pets_of(path, test_fraction=0.1).train_inputs[0]
    np.testing.assert_array_equal(first, np.repeat(PIXELS[0, :, :, :1], 3, axis=2))


def test_several_files_in_order_and_other_test_fractions(tmp_path):
    for number, rows in enumerate((slice(0, 7), slice(7, 8), slice(8, 20))):
        write(
            tmp_path / f"data-{number}.parquet",
            image=as_huggingface(PIXELS[rows]),
            kind=pa.array(KINDS[rows]).dictionary_encode(),
            owner=OWNERS[rows],
        )
    assert_holds(pets_of(tmp_path))
    paths = sorted(tmp_path.iterdir())
    assert_holds(pets_of(paths, test_fraction=0.4), fraction=0.4)


@pytest.mark.parametrize(
    "names",
    [
        ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet"),
        ("default/train/0000.parquet", "default/validation/0000.parquet"),
        ("all.parquet", "valid.parquet"),
    ],
)
def test_names_of_files_tell_what_is_for_testing(names, tmp_path):
    for name, rows in zip(names, (slice(0, 15), slice(15, 20)), strict=True):
        columns = {"image": as_huggingface(PIXELS[rows]), "owner": OWNERS[rows]}
        write(tmp_path / name, kind=KINDS[rows], **columns)
    given = pets_of(tmp_path / names[0], test=tmp_path / names[1])
    for dataset in (pets_of(tmp_path), given):
        np.testing.assert_array_equal(dataset.train_inputs, PIXELS[:15])
        np.testing.assert_array_equal(dataset.test_inputs, PIXELS[15:])
        np.testing.assert_array_equal(dataset.test_targets, LABELS[15:])
        np.testing.assert_array_equal(dataset.train_clients, CLIENTS[:15])


def test_columns_of_numbers(tmp_path):
    numbers = RANDOM.normal(size=(12, 3)).astype(np.float32)
    columns = dict(zip("abc", numbers.T, strict=True))
    path = write(tmp_path / "t.parquet", **columns, y=[0, 1, 1] * 4)
    dataset = data.from_parquet(path, input=["a", "b", "c"], label="y", num_classes=3)
    held = held_back(np.array([0, 1, 1] * 4), 0.2)
    np.testing.assert_array_equal(dataset.train_inputs, numbers[~held])
    assert (dataset.num_classes, dataset.train_clients) == (3, None)
    one = data.from_parquet(path, input="b", label="y")
    np.testing.assert_array_equal(one.test_inputs, numbers[held, 1:2])


def test_tokens_and_characters_with_a_label(tmp_path):
    sentences = ["to be", "or", "not to be", "that", "is", "be"]
    tokens = [[1, 2], [3], [4, 1, 2], [5], [6], [2]]
    path = write(tmp_path / "t.parquet", s=sentences, t=tokens, y=[0, 1] * 3)
    asked = {"label": "y", "length": 3, "test_fraction": 0.4}
    codes = data.from_parquet(path, input="t", **asked)
    assert codes.train_inputs.tolist() == [[1, 2, 0], [3, 0, 0], [4, 1, 2], [2, 0, 0]]
    assert codes.train_inputs.dtype == np.int32
    letters = data.from_parquet(path, input="s", **asked)
    alphabet = "".join(sorted(set("".join(sentences))))
    spelt = ["".join(alphabet[c - 1] for c in row if c) for row in letters.train_inputs]
    assert spelt == ["to ", "or", "not", "be"]
    for column, said in (("t", "lists of 1 to 3 numbers"), ("s", "up to 9 characters")):
        with pytest.raises(ValueError, match=f"{said}.*length"):
            data.from_parquet(path, input=column, label="y")


def test_a_text_without_a_label_is_a_corpus(tmp_path):
    texts = ["Häm let, speaks. " * 3, "An other  one\nspeaks. " * 3, "Again. " * 4]
    path = write(tmp_path / "t.parquet", line=texts, who=["h", "o", "h"])
    corpus = data.from_parquet(path, input="line", client="who", window=8)
    assert corpus.users == ("h", "o")
    assert corpus.num_codes == len(set(" ".join("".join(texts).split())))
    assert corpus.text.max() == corpus.num_codes - 1
    clients = data.text_clients(corpus, data.natural(corpus), batch_size=4)
    batch = clients.batch(jax.random.key(0), 1)
    assert batch.inputs.shape == (4, 8)
    rows = data.from_parquet(path, input="line", window=8)
    assert rows.users == ("row 0", "row 1", "row 2")


def test_more_characters_than_a_byte_counts(tmp_path):
    rare = "".join(chr(0x4E00 + number) for number in range(300))
    path = write(tmp_path / "t.parquet", line=["common letters " * 20 + rare])
    corpus = data.from_parquet(path, input="line", window=8)
    assert corpus.num_codes == 256
    assert (corpus.text == 255).sum() == len(set("common letters") | set(rare)) - 255


def test_tokens_without_a_label_are_a_corpus(tmp_path):
    path = write(tmp_path / "t.parquet", ids=[[7, 300, 2] * 9, [1, 0, 4] * 9])
    corpus = data.from_parquet(path, input="ids", window=4)
    assert (corpus.num_codes, corpus.text.dtype) == (301, np.int32)
    assert corpus.text[:27].tolist() == [7, 300, 2] * 9


def broken(tmp_path, **changes):
    columns = {"image": as_huggingface(PIXELS), "kind": KINDS, "owner": OWNERS}
    columns |= {name: value for name, value in changes.items() if value is not None}
    return write(tmp_path / "broken.parquet", **columns)


MISTAKES = {
    "a column that is not there": (
        {},
        {"input": "imag"},
        r"no column 'imag'; did you mean 'image'\? Its columns are image, kind, owner",
    ),
    "a row without a value": (
        {"kind": ["cat", None, *KINDS[2:]]},
        {},
        r"'kind' has no value in row 1, and in 1 of 20 rows: fill them in",
    ),
    "a file that is cut short": (
        {"image": [*map(encoded, PIXELS[:19]), encoded(PIXELS[19])[:60]]},
        {},
        r"row 19 of column 'image' is no image that can be read",
    ),
    "what is no image": (
        {"image": [b"words", *map(encoded, PIXELS[1:])]},
        {},
        r"row 0 of column 'image' is no image",
    ),
    "a path without the image": (
        {"image": [{"bytes": None, "path": "0.png"}] * 20},
        {},
        r"row 0 of column 'image' has no bytes, but the path '0.png': save",
    ),
    "images of two sizes": (
        {"image": [*map(encoded, PIXELS[:19]), encoded(PIXELS[19, :4])]},
        {},
        r"row 19 .* has 4 × 4 pixels, row 0 of .* has 4 × 5: make",
    ),
    "what is no sample": (
        {"image": [{"x": 1}] * 20},
        {},
        r"holds struct<x: int64>, but a sample must be an image",
    ),
    "numbers that are none": (
        {"image": [[1.0, float("nan")]] * 20},
        {},
        r"row 0 of column 'image' is NaN or infinite, as 20 of 20 rows are",
    ),
    "a missing number": (
        {"image": [[1.0, None]] * 20},
        {},
        r"20 numbers in lists of column 'image' are missing",
    ),
    "a negative label": (
        {"kind": [*range(19), -1]},
        {},
        r"label -1 in row 19 of column 'kind' is no class, it must be in \[0, 19\)",
    ),
    "a label past the classes": (
        {"kind": [*range(19), 9]},
        {"num_classes": 10},
        r"label 10 in row 10 of column 'kind' is no class, it must be in \[0, 10\)",
    ),
    "numbers that are no labels": (
        {"kind": [*range(19), 10**6]},
        {},
        r"label 1000000, but only 20 rows: number the classes from 0",
    ),
    "a label of another kind": (
        {"kind": [0.5] * 20},
        {},
        r"'kind' holds double, but a label must be a whole number or a word",
    ),
    "a row without a client": (
        {"owner": ["", *OWNERS[1:]]},
        {},
        r"row 0 of column 'owner' names no client: fill it in",
    ),
    "a client of another kind": (
        {"owner": [0.5] * 20},
        {},
        r"'owner' holds double, but a client must be a whole number or a word",
    ),
    "a fraction past one": ({}, {"test_fraction": 1.0}, r"test_fraction = 1\.0"),
    "an option that is none": ({}, {"lenght": 3}, r"did you mean 'length'\?"),
    "images without a label": (
        {},
        {"label": None},
        r"without a label it must be a text, or lists of tokens: name the column",
    ),
    "too little for testing": (
        {},
        {"test_fraction": 0.01},
        r"of 20 samples none is left for testing at test_fraction = 0\.01: raise it",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_broken_is_one_line_with_file_row_and_fix(mistake, tmp_path):
    changes, options, said = MISTAKES[mistake]
    path = broken(tmp_path, **changes)
    with pytest.raises(ValueError, match=said) as caught:
        pets_of(path, **options)
    assert "\n" not in str(caught.value)


def test_a_label_that_only_testing_has(tmp_path, pets):
    path = write(
        tmp_path / "test.parquet", image=as_huggingface(PIXELS[:1]), kind=["cot"]
    )
    said = r"test\.parquet: label 'cot' in row 0 .* is no class; did you mean 'cat'"
    with pytest.raises(ValueError, match=said):
        pets_of(pets, test=path, client=None)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: folder / "none.parquet", "does not exist: give the path"),
        (lambda folder: folder, r"has no file \*\.parquet"),
        (lambda folder: [], "no file is given"),
    ],
)
def test_files_that_are_not_there(make, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        pets_of(make(tmp_path))


def test_files_that_are_no_parquet(tmp_path, pets):
    pets.write_bytes(pets.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"cannot be read as Parquet \(.*write it"):
        pets_of(pets)
    empty = write(tmp_path / "e" / "e.parquet", image=[], kind=[], owner=[])
    with pytest.raises(ValueError, match="holds no rows"):
        pets_of(empty)
    write(tmp_path / "s" / "test.parquet", kind=KINDS)
    write(tmp_path / "s" / "valid.parquet", kind=KINDS)
    with pytest.raises(ValueError, match="splits test, valid, and none for training"):
        pets_of(tmp_path / "s")


def test_columns_of_two_types(tmp_path):
    write(tmp_path / "a.parquet", x=[[1, 2]] * 5, y=[0] * 5)
    write(tmp_path / "b.parquet", x=[[1.0, 2.0]] * 5, y=[0] * 5)
    with pytest.raises(ValueError, match="several types, list<"):
        data.from_parquet(tmp_path, input="x", label="y")


def test_partition_by_joining_clients():
    owners = np.repeat(np.arange(7), 3)
    held = data.partition.grouped(owners, 3, seed=1)
    groups = [
        set(owners[data.partition.members(held, client)].tolist())
        for client in range(3)
    ]
    assert sorted(map(len, groups)) == [2, 2, 3]
    assert set.union(*groups) == set(range(7))
    assert held.sizes.sum() == 21
    with pytest.raises(ValueError, match="8 clients cannot be made of 7"):
        data.partition.grouped(owners, 8)


@pytest.fixture(scope="module")
def library():
    import datasets

    return datasets


@pytest.fixture(scope="module")
def owned(library):
    names = ["cat", "dog", "emu", "fox"]
    features = library.Features(
        {
            "image": library.Image(),
            "kind": library.ClassLabel(names=names),
            "owner": library.Value("string"),
            "raw": library.Array3D((5, 4, 3), "uint8"),
        }
    )
    columns = {"image": as_huggingface(PIXELS), "kind": KINDS, "owner": OWNERS}
    columns["raw"] = PIXELS.tolist()
    return library.Dataset.from_dict(columns, features)


class TestHuggingFace:
    """Folders that the library itself wrote, read without it."""

    def loaded(self, source, **changes):
        options = {"input": "image", "label": "kind", "client": "owner"}
        return data.from_huggingface(source, **{**options, **changes})

    def assert_holds(self, dataset):
        assert dataset.label_names == ("cat", "dog", "emu", "fox")
        held = held_back(CLIENTS, 0.2)
        np.testing.assert_array_equal(dataset.train_inputs, PIXELS[~held])
        np.testing.assert_array_equal(dataset.train_targets, LABELS[~held])
        np.testing.assert_array_equal(dataset.train_clients, CLIENTS[~held])
        np.testing.assert_array_equal(dataset.test_inputs, PIXELS[held])

    def test_memory_folder_and_parquet(self, owned, tmp_path, monkeypatch):
        self.assert_holds(self.loaded(owned))
        owned.save_to_disk(tmp_path / "saved", num_shards=3)
        (tmp_path / "files").mkdir()
        owned.to_parquet(tmp_path / "files" / "train-0.parquet")
        # None of these folders needs the library.
        monkeypatch.setitem(sys.modules, "datasets", None)
        for folder in ("saved", "files"):
            self.assert_holds(self.loaded(tmp_path / folder))
            self.assert_holds(self.loaded(str(tmp_path / folder), input="raw"))
        self.assert_holds(pets_of(tmp_path / "files"))

    def test_splits_selected_and_shuffled(self, library, owned, tmp_path):
        order = [3, 1, 4, 15, 9, 2, 6]
        parts = {"train": owned.select(order), "test": owned.select([0, 5])}
        both = library.DatasetDict(parts)
        both.save_to_disk(tmp_path / "saved")
        for source in (both, tmp_path / "saved"):
            dataset = self.loaded(source, client=None)
            np.testing.assert_array_equal(dataset.train_inputs, PIXELS[order])
            np.testing.assert_array_equal(dataset.test_targets, LABELS[[0, 5]])

    def test_a_client_without_samples(self, library, owned):
        """Named among the clients, but in no row."""
        owners = library.ClassLabel(names=["w1", "w2", "w3", "w4"])
        named = owned.cast_column("owner", owners)
        with pytest.raises(ValueError, match="client 'w4' has no samples among the 4"):
            self.loaded(named)

    def test_folders_that_are_damaged(self, owned, tmp_path):
        owned.save_to_disk(tmp_path / "a")
        (path,) = (tmp_path / "a").glob("*.arrow")
        path.write_bytes(path.read_bytes()[:300])
        with pytest.raises(ValueError, match="cannot be read as Arrow"):
            self.loaded(tmp_path / "a")
        path.unlink()
        with pytest.raises(ValueError, match="does not exist: save the data set anew"):
            self.loaded(tmp_path / "a")
        (tmp_path / "a" / "state.json").write_text(json.dumps({}))
        with pytest.raises(ValueError, match="not what save_to_disk wrote"):
            self.loaded(tmp_path / "a")

    def test_a_name_needs_the_library_and_a_network(self, library, monkeypatch):
        def refused(name):
            raise ConnectionError(f"no network for {name}")

        monkeypatch.setattr(library, "load_dataset", refused)
        with pytest.raises(ValueError, match=r"cannot load it .*no network for a/b"):
            self.loaded("a/b")
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(ValueError, match=r"pip install 'afga-jax\[datasets\]'"):
            self.loaded("a/b")

    def test_what_is_no_data_set(self):
        with pytest.raises(ValueError, match="dataset is a list, but it must be"):
            self.loaded([1, 2])
