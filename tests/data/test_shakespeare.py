"""Shakespeare: from the plain text to roles, samples and clients, counted as LEAF."""

import gzip
import itertools
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from afga_jax import data
from afga_jax.data.partition.assignment import members
from afga_jax.data.text import corpus as corpora
from afga_jax.data.text import shakespeare
from afga_jax.data.text.shakespeare import ALPHABET, Role

LONG = (
    "so foul and fair a day I have not seen, nor heard of in this kingdom before it. "
)
PLAYS = f"""\
1603

THE TRAGEDY OF TEA, COLD

by William Shakespeare

DRAMATIS PERSONAE

  FIRST WITCH. {LONG}
    {LONG}
  Sir Toby. {LONG}
                                              Enter a GHOST
  not indented enough
    and on.

    after the blank line.
  SIR TOBY. The last.
  FIRST WITCH. Three lines of a role are enough.
  SHORT. One.
    Two.
    Three.
  TWO LINES. {LONG}
    {LONG}


THE SONNETS



by William Shakespeare

  From. Fairest creatures {LONG}
    {LONG}
    {LONG}


THE COMEDY OF ERRORS

by William Shakespeare

AEGEON. {LONG}
  {LONG}
flush left as well
ACT I. Scene 1
not spoken by anybody
DUKE. {LONG}
<<A NOTICE. in the text
not spoken either
AEGEON. The end.
DUKE. One more.
DUKE. And one more.
"""


def lines(role):
    return role.text.split("\n")[:-1]


ROLES = {role.user: role for role in shakespeare.parse(PLAYS)}


class TestParse:
    def test_roles_are_named_by_play_and_speaker_in_order(self):
        assert list(ROLES) == [
            "THE_TRAGEDY_OF_TEA__COLD_FIRST_WITCH",
            "THE_TRAGEDY_OF_TEA__COLD_SIR_TOBY",
            "THE_COMEDY_OF_ERRORS_AEGEON",
            "THE_COMEDY_OF_ERRORS_DUKE",
        ]
        witch = ROLES["THE_TRAGEDY_OF_TEA__COLD_FIRST_WITCH"]
        assert witch.play == "THE TRAGEDY OF TEA, COLD"
        assert witch.speaker == "FIRST WITCH"

    def test_speeches_of_one_name_are_joined_whatever_its_case(self):
        assert lines(ROLES["THE_TRAGEDY_OF_TEA__COLD_SIR_TOBY"]) == [
            LONG,
            " " * 42 + "Enter a GHOST",
            "and on.",
            "after the blank line.",
            "The last.",
        ]

    def test_continued_lines_lose_their_indentation(self):
        assert lines(ROLES["THE_TRAGEDY_OF_TEA__COLD_FIRST_WITCH"]) == [
            LONG,
            LONG,
            "Three lines of a role are enough.",
        ]

    def test_the_play_without_indentation_ends_speeches_at_acts_and_notices(self):
        assert lines(ROLES["THE_COMEDY_OF_ERRORS_AEGEON"]) == [
            LONG,
            f"  {LONG}",
            "flush left as well",
            "The end.",
        ]
        duke = lines(ROLES["THE_COMEDY_OF_ERRORS_DUKE"])
        assert duke == [LONG, "One more.", "And one more."]

    @pytest.mark.parametrize("text", ["", "To be, or not to be", PLAYS[:90]])
    def test_a_text_without_speakers_is_refused(self, text):
        with pytest.raises(ValueError, match=r"no speaking role.*'  NAME. words'"):
            shakespeare.parse(text)

    def test_a_play_without_a_title_is_refused(self):
        with pytest.raises(ValueError, match=r"line 9 .*7 lines above.*title"):
            shakespeare.parse("\n" * 8 + "by William Shakespeare\n")


@pytest.mark.parametrize("name", ["works.txt", "works.txt.gz"])
def test_text_is_read_plain_or_zipped(tmp_path, name):
    content = ("\ufeff" + PLAYS).encode("utf-8")
    packed = gzip.compress(content) if name.endswith(".gz") else content
    (tmp_path / name).write_bytes(packed)
    assert shakespeare.read_text(tmp_path / name) == PLAYS


class TestEncode:
    def test_alphabet_has_eighty_characters_each_once(self):
        assert len(ALPHABET) == len(set(ALPHABET)) == 80

    def test_white_space_is_one_space(self):
        codes = shakespeare.encode("a\n\n   b \t c\n")
        assert "".join(ALPHABET[code] for code in codes) == "a b c "
        assert codes.dtype == np.uint8

    def test_unknown_characters_are_refused(self):
        with pytest.raises(ValueError, match=r"'é'.*80 characters.*give an alphabet"):
            shakespeare.encode("café")
        assert shakespeare.encode("café", alphabet="acéf").tolist() == [1, 0, 3, 2]

    def test_samples_are_windows_with_a_next_character(self):
        assert shakespeare.num_samples("x" * 80) == 0
        assert shakespeare.num_samples("x" * 40 + "  \n  " + "x" * 42) == 3


def roles_of(*lengths):
    random = np.random.default_rng(len(lengths))
    letters = np.array(list(ALPHABET[-26:]))
    texts = ["".join(random.choice(letters, length)) for length in lengths]
    return [Role(f"role{i}", "play", f"R{i}", text) for i, text in enumerate(texts)]


class TestCorpus:
    ROLES = roles_of(100, 11, 54, 55, 10, 200)
    TEXT = data.from_roles(ROLES, window=10)

    def test_each_role_is_cut_once_and_no_window_crosses(self):
        kept = [role for role in self.ROLES if len(role.text) > 10]
        assert self.TEXT.users == tuple(role.user for role in kept)
        begin = 0
        for number, role in enumerate(kept):
            end = begin + len(role.text)
            cut = begin + -(-len(role.text) * 4 // 5)
            if end - cut <= 10:
                cut = end
            train = self.TEXT.train_starts[number], self.TEXT.train_counts[number]
            assert train == (begin, cut - begin - 10)
            assert self.TEXT.test_counts[number] == max(0, end - cut - 10)
            if cut < end:
                assert self.TEXT.test_starts[number] == cut
            begin = end
        assert begin == len(self.TEXT.text)
        # 54 characters leave 10 for testing, one too few; 55 leave 11.
        assert self.TEXT.test_counts.tolist() == [10, 0, 0, 1, 30]

    def test_the_text_is_the_roles_one_after_another(self):
        spoken = "".join(role.text for role in self.ROLES if len(role.text) > 10)
        np.testing.assert_array_equal(self.TEXT.text, shakespeare.encode(spoken))

    def test_test_windows_are_those_after_the_cut(self):
        batch = data.held_out_text(self.TEXT)
        starts = [
            start + step
            for start, count in zip(
                self.TEXT.test_starts, self.TEXT.test_counts, strict=True
            )
            for step in range(count)
        ]
        windows = np.stack([self.TEXT.text[start : start + 11] for start in starts])
        np.testing.assert_array_equal(batch.inputs, windows[:, :-1])
        np.testing.assert_array_equal(batch.targets, windows[:, -1])
        fewer = data.held_out_text(self.TEXT, limit=4)
        every = np.arange(4) * len(windows) // 4
        np.testing.assert_array_equal(fewer.inputs, windows[every, :-1])

    def test_without_a_test_fraction_all_is_for_training(self):
        text = data.from_roles(self.ROLES, window=10, test_fraction=0)
        assert text.train_counts.tolist() == [90, 1, 44, 45, 190]
        with pytest.raises(ValueError, match=r"more than 10 characters; raise"):
            data.held_out_text(text)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"window": 0}, r"window = 0.* >= 1"),
            ({"window": 300}, r"none of the 6 roles has more than 300 characters"),
            ({"test_fraction": 1.0}, r"test_fraction = 1.0.* < 1"),
            ({"test_fraction": -0.1}, r"test_fraction = -0.1.* >= 0"),
        ],
    )
    def test_refused(self, options, message):
        with pytest.raises(ValueError, match=message):
            data.from_roles(self.ROLES, **options)


def windows_of(text):
    """All training windows by their role."""
    pairs = zip(text.train_starts, text.train_counts, strict=True)
    return [list(range(start, start + count)) for start, count in pairs]


DEALINGS = {
    "natural": lambda text, seed: data.natural(text),
    "grouped": lambda text, seed: data.grouped(text, 3, seed=seed),
    "spread": lambda text, seed: data.spread(text, 7, alpha=0.6, seed=seed),
}


class TestDealing:
    TEXT = data.from_roles(roles_of(300, 150, 90, 400, 120), window=10)

    @pytest.mark.parametrize("name", DEALINGS)
    def test_every_training_window_is_dealt_once(self, name):
        held = DEALINGS[name](self.TEXT, 0)
        dealt = [members(held, client) for client in range(held.num_clients)]
        assert held.sizes.tolist() == [len(one) for one in dealt]
        assert min(held.sizes) >= 1
        np.testing.assert_array_equal(
            np.sort(np.concatenate(dealt)), np.concatenate(windows_of(self.TEXT))
        )

    @pytest.mark.parametrize("name", ["grouped", "spread"])
    def test_the_seed_decides(self, name):
        first, again, other = (DEALINGS[name](self.TEXT, seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first.starts, again.starts)
        assert first.starts.tolist() != other.starts.tolist()

    def test_a_natural_client_is_a_role(self):
        held = data.natural(self.TEXT)
        for client, windows in enumerate(windows_of(self.TEXT)):
            assert members(held, client).tolist() == windows

    def test_groups_hold_whole_roles(self):
        held = data.grouped(self.TEXT, 3)
        dealt = [set(members(held, client)) for client in range(3)]
        for windows in windows_of(self.TEXT):
            assert sum(set(windows) <= one for one in dealt) == 1

    def test_spread_shares_have_the_moments_of_the_distribution(self):
        text = data.from_roles(roles_of(*[4000] * 20), window=10)
        alpha, clients, squares = 0.6, 5, []
        for seed in range(20):
            held = data.spread(text, clients, alpha=alpha, seed=seed)
            owners = np.concatenate(
                [np.full(len(members(held, c)), c) for c in range(clients)]
            )
            windows = np.concatenate([members(held, c) for c in range(clients)])
            role = np.searchsorted(text.train_starts, windows, side="right") - 1
            counts = np.zeros((20, clients))
            np.add.at(counts, (role, owners), 1)
            shares = counts / counts.sum(axis=1, keepdims=True)
            squares.extend((shares**2).sum(axis=1))
        expected = (alpha + 1) / (clients * alpha + 1)
        error = 4 * np.std(squares) / np.sqrt(len(squares))
        assert abs(np.mean(squares) - expected) < error

    @pytest.mark.parametrize("num_clients", [50, 95])
    def test_spread_leaves_nobody_empty(self, num_clients):
        # 95 clients for 100 windows, and α so small that one gets nearly all.
        text = data.from_roles(roles_of(60, 60), window=10, test_fraction=0)
        held = data.spread(text, num_clients, alpha=1e-2)
        dealt = [members(held, client) for client in range(num_clients)]
        assert min(held.sizes) >= 1
        assert sorted(np.concatenate(dealt)) == [*itertools.chain(*windows_of(text))]

    def test_refused(self):
        with pytest.raises(ValueError, match=r"6 clients cannot share 5 roles.*spread"):
            data.grouped(self.TEXT, 6)
        with pytest.raises(ValueError, match=r"alpha = 0.* > 0"):
            data.spread(self.TEXT, 5, alpha=0)
        total = self.TEXT.train_counts.sum()
        with pytest.raises(ValueError, match=rf"cannot share {total} windows"):
            data.spread(self.TEXT, total + 1)

    def test_clients_draw_windows_of_their_own_role(self):
        clients = data.text_clients(self.TEXT, data.natural(self.TEXT), batch_size=64)
        draw = jax.jit(jax.vmap(clients.batch))
        batches = draw(jax.random.split(jax.random.key(0), 5), jnp.arange(5))
        for client, windows in enumerate(windows_of(self.TEXT)):
            texts = {tuple(self.TEXT.text[start : start + 11]) for start in windows}
            drawn = np.concatenate(
                [batches.inputs[client], batches.targets[client][:, None]], axis=1
            )
            assert {tuple(row) for row in drawn.tolist()} <= texts


FOLDER = os.environ.get("TFDS_DATA_DIR")
needs_data = pytest.mark.skipif(not FOLDER, reason="TFDS_DATA_DIR is not set")


@pytest.fixture(scope="module")
def roles():
    works = Path(FOLDER) / "raw" / "shakespeare_complete_works.txt.gz"
    if not works.exists():
        pytest.skip("TFDS_DATA_DIR has no raw text of the complete works")
    return shakespeare.parse(shakespeare.read_text(works))


@needs_data
class TestRealText:
    def test_counts_are_those_of_leaf(self, roles):
        assert len(roles) == 1129
        assert sum(shakespeare.num_samples(role.text) for role in roles) == 4_226_158
        assert {letter for role in roles for letter in role.text} == set(ALPHABET)

    def test_roles_are_those_of_the_prepared_set(self, roles, tmp_path):
        if not (Path(FOLDER) / "leaf_shakespeare").exists():
            pytest.skip("TFDS_DATA_DIR has no leaf_shakespeare")
        access = data.Access(data_dir=FOLDER, cache_dir=tmp_path, offline=True)
        assert data.load_roles(access) == roles

    def test_clients_of_the_whole_text(self, roles):
        everything = corpora.from_roles(roles, test_fraction=0)
        assert everything.train_counts.sum() == 4_226_158
        text = corpora.from_roles(roles)
        assert len(text.users) == 1129
        assert 0.15 < text.test_counts.sum() / 4_226_158 < 0.2
        held = corpora.spread(text, 100)
        assert held.sizes.sum() == text.train_counts.sum()
        clients = corpora.text_clients(text, held, batch_size=50)
        batch = clients.batch(jax.random.key(0), 99)
        assert batch.inputs.shape == (50, 80)
        assert int(batch.inputs.max()) < 80
