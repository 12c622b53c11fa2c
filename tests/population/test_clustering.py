"""Clusters: disjoint, complete, of the asked sizes."""

import numpy as np
import pytest

from afga_jax.population import clustering


def assert_partition(clusters, num_clients):
    members = clusters.table()
    real = members[members < num_clients]
    np.testing.assert_array_equal(np.sort(real), np.arange(num_clients))
    np.testing.assert_array_equal((members < num_clients).sum(1), clusters.sizes)
    for row, size in zip(members, clusters.sizes, strict=True):
        assert (np.diff(row[:size]) > 0).all()
        assert (row[size:] == num_clients).all()
    for cluster, row in enumerate(members):
        assert (clusters.labels()[row[row < num_clients]] == cluster).all()


@pytest.mark.parametrize(("n", "k"), [(12, 1), (12, 3), (12, 12), (100, 5)])
def test_equal_clusters(n, k):
    clusters = clustering.equal(n, k, seed=3)
    assert_partition(clusters, n)
    assert set(clusters.sizes) == {n // k}
    again = clustering.equal(n, k, seed=3)
    np.testing.assert_array_equal(clusters.labels(), again.labels())


def test_equal_clusters_depend_on_the_seed():
    first, second = (clustering.equal(100, 5, seed=s).labels() for s in (0, 1))
    assert (first != second).any()


def test_given_labels_of_unequal_sizes():
    zones = ["cet", "jst", "cet", "pst", "cet", "jst"]
    clusters = clustering.from_labels(zones)
    assert_partition(clusters, 6)
    assert clusters.members.tolist() == [[0, 2, 4], [1, 5, 6], [3, 6, 6]]


def test_one_label_needs_no_table():
    assert clustering.from_labels([7, 7, 7]).members is None


def test_similar_histograms_end_up_together():
    kinds = np.eye(4)[np.arange(40) % 4] * 50
    noise = np.random.default_rng(0).uniform(0, 5, (40, 4))
    clusters = clustering.similar(kinds + noise, 4)
    assert_partition(clusters, 40)
    for members in clusters.members:
        assert len(set(members % 4)) == 1


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9, 1.0])
def test_share_of_the_major_class(rho):
    major = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 100))
    clusters = clustering.by_major_class(major, 10, rho)
    assert_partition(clusters, 1000)
    assert set(clusters.sizes) == {100}
    counts = np.stack(
        [np.bincount(major[row], minlength=10) for row in clusters.members]
    )
    np.testing.assert_array_equal(np.diag(counts), round(100 * rho))
    others = counts[~np.eye(10, dtype=bool)]
    # (1 − ρ)/9 of the cluster for each other class, to the next whole numbers.
    assert others.min() >= np.floor(100 * (1 - rho) / 9)
    assert others.max() <= np.ceil(100 * (1 - rho) / 9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clustering.equal(10, 3), "10 is not divisible by num_clusters = 3.*2"),
        (lambda: clustering.equal(3, 5), "num_clusters = 5.*<= num_clients = 3"),
        (lambda: clustering.equal(10, 0), "num_clusters = 0.*>= 1"),
        (lambda: clustering.from_labels([]), r"shape \(0,\)"),
        (lambda: clustering.similar(np.ones((3, 2)), 4), "num_clusters = 4.*<= .* 3"),
        (lambda: clustering.similar(np.ones(3), 2), r"shape \(3,\)"),
        (lambda: clustering.similar(np.zeros((3, 2)), 2), "empty histogram"),
        (lambda: clustering.by_major_class([0, 1], 2, 1.5), "rho_cluster = 1.5.*<= 1"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
