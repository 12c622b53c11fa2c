"""Partitions: who gets which samples, how many, of which classes, by which seed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from afga_jax import data
from afga_jax.data import class_picture, partition, show
from afga_jax.data.partition.assignment import members, ranges, stored
from afga_jax.data.partition.overlap import shuffled

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))
SMALL_SHARDS = {"num_shards": 30, "shard_size": 20, "shards_per_client": 2}
OPTIONS = {
    "iid": {},
    "dirichlet": {"alpha": 0.3},
    "dirichlet_client": {"alpha": 0.3},
    "shards": SMALL_SHARDS,
    "major_class": {"client_size": 40, "rho_device": 0.6},
    "overlap": {"client_size": 40},
}
NUM_CLIENTS = 12


def lists(assignment):
    return [members(assignment, i).tolist() for i in range(assignment.num_clients)]


def build(name, seed=0, num_clients=NUM_CLIENTS, labels=LABELS):
    return partition.build(name, labels, num_clients, seed=seed, **OPTIONS[name])


@pytest.mark.parametrize("name", partition.SCHEMES)
class TestEveryScheme:
    def test_sizes_are_those_of_the_lists_and_none_is_zero(self, name):
        held = build(name)
        assert [int(held.sizes[i]) for i in range(NUM_CLIENTS)] == [
            len(one) for one in lists(held)
        ]
        assert min(len(one) for one in lists(held)) >= 1
        assert max(len(one) for one in lists(held)) == held.capacity

    def test_no_client_holds_a_sample_twice(self, name):
        for one in lists(build(name)):
            assert len(set(one)) == len(one)
            assert 0 <= min(one) <= max(one) < len(LABELS)

    def test_the_seed_and_nothing_else_decides(self, name):
        np.random.default_rng().random()
        assert lists(build(name, seed=3)) == lists(build(name, seed=3))
        assert lists(build(name, seed=3)) != lists(build(name, seed=4))

    def test_device_arrays_give_the_same_lists(self, name):
        held = build(name)
        device = jax.tree.map(jnp.asarray, held)
        for client in (0, NUM_CLIENTS - 1):
            positions = jnp.arange(int(held.sizes[client]))
            drawn = jax.jit(type(held).sample)(device, jnp.asarray(client), positions)
            np.testing.assert_array_equal(drawn, members(held, client))


@pytest.mark.parametrize("name", ["iid", "dirichlet", "dirichlet_client"])
def test_disjoint_schemes_deal_every_sample_once(name):
    dealt = np.concatenate(lists(build(name)))
    np.testing.assert_array_equal(np.sort(dealt), np.arange(len(LABELS)))


@pytest.mark.parametrize("name", ["iid", "dirichlet_client"])
def test_sizes_differ_by_one_at_most(name):
    sizes = build(name, num_clients=7).sizes
    assert sorted(set(sizes.tolist())) == [85, 86]


def test_iid_clients_have_the_classes_of_the_whole():
    labels = np.repeat(np.arange(10), 1000)
    counts = partition.summary(partition.iid(labels, 10), labels).class_counts
    assert stats.chi2_contingency(counts).pvalue > 1e-3


@pytest.mark.parametrize("alpha", [0.3, 0.6, 5.0])
def test_dirichlet_shares_have_the_moments_of_the_distribution(alpha):
    labels, clients = np.repeat(np.arange(10), 2000), 5
    shares = np.concatenate(
        [
            partition.summary(
                partition.dirichlet(labels, clients, alpha=alpha, seed=seed), labels
            ).class_counts.T
            / 2000
            for seed in range(60)
        ]
    )
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    squares = (shares**2).sum(axis=1)
    expected = (alpha + 1) / (clients * alpha + 1)
    # Four standard errors of the mean over the 600 draws.
    error = 4 * squares.std() / np.sqrt(len(squares))
    assert abs(squares.mean() - expected) < error
    for share in shares.T:
        assert abs(share.mean() - 1 / clients) < 4 * share.std() / np.sqrt(len(shares))


@pytest.mark.parametrize("min_size", [1, 2, 5])
def test_dirichlet_fills_clients_that_come_out_too_small(min_size):
    # α so small that each class lands whole on one client: 110 of 120 would be empty.
    held = partition.dirichlet(LABELS, 120, alpha=1e-3, min_size=min_size)
    assert held.sizes.min() == min_size
    np.testing.assert_array_equal(np.sort(held.order), np.arange(len(LABELS)))


def test_dirichlet_client_goes_from_one_class_to_all():
    def commonest(alpha):
        held = partition.dirichlet_client(LABELS, 10, alpha=alpha, seed=1)
        counts = partition.summary(held, LABELS).class_counts
        return (counts.max(axis=1) / counts.sum(axis=1)).mean()

    # Ten clients, ten classes: those who choose late find their class gone, so that the
    # mean is about a half even where each wants a single class.
    few, some, all_classes = (commonest(alpha) for alpha in (1e-3, 0.6, 1e4))
    assert few > 0.5 > some > 0.25 > all_classes
    held = partition.dirichlet_client(LABELS, 10, alpha=1e-3, seed=1)
    first = np.random.default_rng(1).permutation(10)[0]
    assert len(set(LABELS[members(held, first)])) == 1


def test_dirichlet_client_draws_in_its_proportions_while_classes_last():
    # The first client to choose takes 50 of 5000: nothing can run out.
    labels = np.repeat(np.arange(2), 2500)
    alpha, shares = 1.0, []
    for seed in range(200):
        held = partition.dirichlet_client(labels, 100, alpha=alpha, seed=seed)
        first = np.random.default_rng(seed).permutation(100)[0]
        shares.append(labels[members(held, first)].mean())
    # Dir(1, 1) is uniform: heads among 50 tosses of such a coin are uniform on 0 … 50.
    assert stats.kstest(np.array(shares) * 50, stats.randint(0, 51).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("name", "samples", "classes"),
    [("cifar10", 50_000, 10), ("cifar100", 50_000, 100), ("fashion_mnist", 60_000, 10)],
)
def test_shards_of_the_paper(name, samples, classes):
    labels = np.random.default_rng(1).permutation(np.arange(samples) % classes)
    options = partition.PAPER_SHARDS[name]
    held = partition.shards(labels, 32, **options)
    per_client = options["shards_per_client"]
    assert (held.sizes == per_client * options["shard_size"]).all()
    assert len(np.unique(held.order)) == 32 * per_client * options["shard_size"]
    assert len(held.order) < samples
    counts = partition.summary(held, labels).class_counts
    assert (counts % options["shard_size"] == 0).all()
    assert (counts > 0).sum(axis=1).max() <= per_client


@pytest.mark.parametrize("rho", [0.1, 0.4, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("size", [500, 503])
def test_major_class_counts(rho, size):
    labels = np.random.default_rng(2).permutation(np.arange(50_000) % 10)
    held = partition.major_class(labels, 1000, client_size=size, rho_device=rho)
    assert (np.bincount(held.major_class) == 100).all()
    for client in (0, 17, 999):
        counts = np.bincount(labels[members(held, client)], minlength=10)
        major = held.major_class[client]
        others = np.delete(counts, major)
        assert counts.sum() == size
        assert counts[major] == round(rho * size)
        assert others.max() - others.min() <= 1


def test_major_classes_of_every_block_of_clients_are_all_classes():
    held = build("major_class", num_clients=70)
    blocks = np.sort(held.major_class.reshape(7, 10), axis=1)
    np.testing.assert_array_equal(blocks, np.tile(np.arange(10), (7, 1)))
    # Not the same order in every block, nor the order of the classes.
    assert len({tuple(block) for block in held.major_class.reshape(7, 10)}) > 1


def test_labels_need_not_be_balanced_nor_all_occur():
    labels = np.array([0] * 50 + [3] * 70 + [7] * 90)
    held = partition.major_class(labels, 6, client_size=30, rho_device=0.5)
    for client in range(6):
        counts = np.bincount(labels[members(held, client)], minlength=8)
        assert sorted(counts.tolist()) == [0, 0, 0, 0, 0, 7, 8, 15]
        assert counts.argmax() == held.major_class[client]


def test_overlap_of_ten_million_clients_stores_nothing_per_client():
    held = partition.overlap(LABELS, 10_000_000, client_size=30)
    few = partition.overlap(LABELS, 100, client_size=30)
    assert [np.size(leaf) for leaf in jax.tree.leaves(held)] == [
        np.size(leaf) for leaf in jax.tree.leaves(few)
    ]
    np.testing.assert_array_equal(members(held, 99), members(few, 99))
    assert held.sizes[jnp.array([0, 9_999_999])].tolist() == [30, 30]
    assert len(set(members(held, 9_999_999))) == 30


def test_overlap_covers_samples_evenly_and_clients_differ():
    held = partition.overlap(LABELS, 10_000_000, client_size=30, seed=5)
    chosen = np.random.default_rng(6).integers(0, 10_000_000, 4000)
    drawn = [members(held, client) for client in chosen]
    counts = np.bincount(np.concatenate(drawn), minlength=len(LABELS))
    # Without replacement within a client, so a little more even than chi-square.
    assert stats.chisquare(counts).pvalue > 1e-3
    assert len({frozenset(one.tolist()) for one in drawn}) == len(drawn)
    # Two random clients share 30·30/600 = 1.5 samples on average.
    shared = [
        len(set(a) & set(b)) for a, b in zip(drawn[::2], drawn[1::2], strict=True)
    ]
    exact = stats.hypergeom(600, 30, 30)
    assert abs(np.mean(shared) - exact.mean()) < 4 * exact.std() / np.sqrt(len(shared))
    assert abs(np.var(shared) - exact.var()) < 0.15 * exact.var()


@pytest.mark.parametrize("size", [1, 2, 3, 10, 64, 1001])
def test_keyed_shuffle_is_a_permutation_for_every_key(size):
    places = np.arange(size, dtype=np.uint32)
    for key in np.random.default_rng(0).integers(2**32, size=20, dtype=np.uint32):
        moved = shuffled(places, np.uint32(size), key)
        np.testing.assert_array_equal(np.sort(moved), places)


def test_keyed_shuffle_moves_every_pair_of_places_evenly():
    keys = np.random.default_rng(1).integers(2**32, size=30_000, dtype=np.uint32)
    zero, size = np.zeros(len(keys), np.uint32), np.uint32(7)
    first, second = shuffled(zero, size, keys), shuffled(zero + 1, size, keys)
    counts = np.bincount(first * 7 + second, minlength=49).reshape(7, 7)
    assert (np.diag(counts) == 0).all()
    assert stats.chisquare(counts[~np.eye(7, dtype=bool)]).pvalue > 1e-3


def test_overlap_has_no_major_class():
    with pytest.raises(
        ValueError, match=r"'overlap' has no major classes.*major_class"
    ):
        _ = build("overlap").major_class


def test_by_client_keeps_the_given_owners():
    owners = np.array([2, 0, 1, 2, 2, 0])
    assert lists(partition.by_client(owners)) == [[1, 5], [2], [0, 3, 4]]


@pytest.mark.parametrize("name", partition.SCHEMES)
def test_pooled_holds_each_sample_that_somebody_holds_once(name):
    held = build(name, num_clients=3)
    pooled = held.pooled()
    assert pooled.num_clients == 1
    everybody = sorted({sample for one in lists(held) for sample in one})
    assert members(pooled, 0).tolist() == everybody


def test_pooled_ranges_count_shared_samples_once():
    held = ranges(
        np.array([5, 0, 3, 20, 6]), np.array([4, 2, 5, 1, 1]), np.array([2, 1, 2])
    )
    everybody = sorted({sample for one in lists(held) for sample in one})
    assert members(held.pooled(), 0).tolist() == everybody


def test_summary_of_sizes_and_classes():
    held = stored(np.array([0, 1, 2, 3, 4]), np.array([1, 4]))
    result = partition.summary(held, np.array([1, 0, 0, 2, 1]))
    assert (result.smallest, result.mean, result.largest) == (1, 2.5, 4)
    assert result.class_counts.tolist() == [[0, 1, 0], [2, 1, 1]]
    assert "2 clients of 1 to 4 samples, 2.5 on average" in str(result)
    assert "2.0 of 3 classes per client" in str(result)
    # All labels are 0.4, 0.4, 0.2; client 0 has class 1 only.
    np.testing.assert_allclose(result.distances, [0.6, 0.15])
    assert result.spread(1).tolist() == [1]


def test_summary_of_a_huge_population_looks_at_some():
    held = partition.overlap(LABELS, 10_000_000, client_size=30)
    result = partition.summary(held, LABELS, max_clients=7)
    assert result.class_counts.shape == (7, 10)
    assert (result.num_clients, result.smallest, result.largest) == (10**7, 30, 30)


@pytest.mark.parametrize("name", ["dirichlet", "overlap"])
def test_picture_shows_the_counts(name):
    held = build(name)
    figure = class_picture(held, LABELS, title=name, max_clients=8)
    sizes, distances, classes = figure.axes[:3]
    about = partition.summary(held, LABELS, 8)
    counts = about.class_counts
    np.testing.assert_array_equal(
        distances.patches[0].get_data().values, about.distances
    )
    np.testing.assert_array_equal(classes.images[0].get_array(), counts.T)
    np.testing.assert_array_equal(
        sizes.patches[0].get_data().values, counts.sum(axis=1)
    )
    assert classes.get_xlabel() == "client (first 8 of 12)"


@pytest.mark.parametrize("classes", [2, 62, 200])
def test_a_terminal_shows_it_in_80_columns(classes, tmp_path, capsys):
    labels = np.arange(4000) % classes
    held = partition.dirichlet(labels, 300, alpha=0.5)
    names = ["\n", *map(str, range(1, classes))]
    figure = show(held, labels, label_names=names, path=tmp_path / "new" / "a.png")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len({len(line) for line in lines[3:16]}) == 1
    about = partition.summary(held, labels)
    spread = [int(line.split()[0]) for line in lines[4:16]]
    assert spread == about.spread(12).tolist()
    assert spread[0] == about.distances.argmin()
    assert lines[-1].split()[4] == f"{np.median(about.distances):.2f}"
    assert (tmp_path / "new" / "a.png").stat().st_size > 1000
    assert (
        figure.axes[2].get_xlabel() == "200 of 300 clients, evenly spaced by distance"
    )


REFUSED = [
    ("dirichlet", {"alpha": 0.0}, r"alpha = 0.0.* > 0.*0.3 and 0.6"),
    ("dirichlet", {"alpha": -1.0}, r"alpha = -1.0.* > 0"),
    ("dirichlet", {"alpha": float("nan")}, r"alpha = nan"),
    ("dirichlet_client", {"alpha": 0.0}, r"alpha = 0.0.* > 0"),
    ("dirichlet", {"min_size": 0}, r"min_size = 0.* >= 1"),
    ("dirichlet", {"min_size": 51}, r"12 clients of at least 51.*612.*600.*overlap"),
    ("shards", {"num_shards": 31}, r"31 shards of 20 need 620.*600.*fewer"),
    ("shards", {"shards_per_client": 3}, r"12 clients.*36 shards.*30.*fewer"),
    ("shards", {"shard_size": 0}, r"shard_size = 0.* >= 1"),
    ("major_class", {"rho_device": 0.05}, r"rho_device = 0.05.* >= 0.1 and <= 1"),
    ("major_class", {"rho_device": 1.5}, r"rho_device = 1.5.* <= 1"),
    ("major_class", {"client_size": 200}, r"120 of one class.* 60; lower client_size"),
    ("overlap", {"client_size": 601}, r"601 samples.* 600; lower client_size"),
    ("overlap", {"client_size": 0}, r"client_size = 0.* >= 1"),
]


@pytest.mark.parametrize(("name", "options", "message"), REFUSED)
def test_refused_options(name, options, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        partition.build(name, LABELS, NUM_CLIENTS, **(OPTIONS[name] | options))


@pytest.mark.parametrize("name", ["iid", "dirichlet", "dirichlet_client"])
def test_more_clients_than_samples_are_refused(name):
    with pytest.raises(ValueError, match=r"601 clients.*600; use fewer.*'overlap'"):
        partition.build(name, LABELS, 601)


@pytest.mark.parametrize("name", partition.SCHEMES)
def test_no_clients_are_refused(name):
    with pytest.raises(ValueError, match=r"num_clients = 0.* >= 1"):
        partition.build(name, LABELS, 0, **OPTIONS[name])


@pytest.mark.parametrize("name", partition.SCHEMES)
@pytest.mark.parametrize("labels", [np.array([0, -1, 2]), np.zeros(0, int)])
def test_labels_that_are_none_are_refused(name, labels):
    with pytest.raises(ValueError, match=r"label"):
        partition.build(name, labels, 1)


def test_an_unknown_scheme_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'dirichlt'.*did you mean 'dirichlet'"):
        partition.build("dirichlt", LABELS, 3)


def test_an_empty_client_is_refused():
    with pytest.raises(ValueError, match=r"client 1 of 3 holds 0 samples.*at least 1"):
        partition.by_client(np.array([0, 2, 2]))


def test_owners_outside_the_clients_are_refused():
    with pytest.raises(ValueError, match=r"client 3 among.*in \[0, 3\).*num_clients"):
        partition.by_client(np.array([0, 1, 2, 3]), num_clients=3)
    with pytest.raises(ValueError, match=r"client -1 among.*in \[0, 2\)"):
        partition.by_client(np.array([0, 1, -1]))
    with pytest.raises(ValueError, match=r"float64\(3,\); give one integer"):
        partition.by_client(np.zeros(3))
    with pytest.raises(ValueError, match=r"client 0 of 1 holds 0 samples"):
        partition.by_client(np.zeros(0, int))


def test_a_client_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"client 12 is outside \[0, 12\)"):
        members(build("iid"), 12)


class TestFromIndices:
    LISTS = ([0, 3], np.array([1, 2, 4]), (4,))

    def test_each_client_holds_its_list(self):
        held = partition.from_indices(self.LISTS)
        for client, indices in enumerate(self.LISTS):
            assert partition.members(held, client).tolist() == list(indices)

    def test_a_list_goes_wherever_an_assignment_does(self):
        inputs, targets = np.arange(5.0), np.arange(5)
        given = [
            data.from_arrays(inputs, targets, one, batch_size=2)
            for one in (list(self.LISTS), partition.from_indices(self.LISTS))
        ]
        for one, other in zip(*map(jax.tree.leaves, given), strict=True):
            np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize(
        ("lists", "message"),
        [
            ([0, 1, 1], r"client 0.*shape \(\).*partition.by_client"),
            ([[0], [0.5]], r"client 1.*float64.*whole numbers"),
            ([[0, 1], []], r"client 1 of 2 holds 0 samples"),
            ([[2, -1]], r"client 0 holds sample -1.*is 0"),
            ([[0, 5]], r"sample 5, there are only 5"),
            ([], r"no clients"),
            ({0: [1, 2]}, r"a dict.*list of each client's indices"),
        ],
    )
    def test_what_is_no_partition_is_refused(self, lists, message):
        with pytest.raises(ValueError, match=message):
            data.from_arrays(np.arange(5.0), np.arange(5), lists, batch_size=2)
