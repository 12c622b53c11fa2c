"""Who belongs to which cluster.

Clusters are disjoint, cover everybody and may differ in size. Members are sorted by
client id, so a single cluster with a ring is the plain ring.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from afga_jax import checks


@dataclass(frozen=True, eq=False)
class Clustering:
    """A division of `num_clients` clients.

    Attributes:
      num_clients: N.
      sizes: Number of clients in each cluster, `[K]`.
      members: Client ids of each cluster, `[K, max(sizes)]`, sorted, padded with
        `num_clients`; None for the one cluster of everybody, which needs no table.
    """

    num_clients: int
    sizes: np.ndarray
    members: np.ndarray | None = None

    @property
    def num_clusters(self) -> int:
        return len(self.sizes)

    @property
    def width(self) -> int:
        """The size of the largest cluster."""
        return int(self.sizes.max())

    @property
    def is_equal(self) -> bool:
        return bool((self.sizes == self.sizes[0]).all())

    def table(self) -> np.ndarray:
        """`members`, also where it is not stored."""
        if self.members is None:
            return np.arange(self.num_clients, dtype=np.int32)[None]
        return self.members

    def labels(self) -> np.ndarray:
        """The cluster of each client, `[N]`."""
        labels = np.zeros(self.num_clients + 1, np.int32)
        labels[self.table()] = np.arange(self.num_clusters)[:, None]
        return labels[:-1]


def single(num_clients: int) -> Clustering:
    """One cluster of everybody."""
    checks.integer("num_clients", num_clients)
    return Clustering(num_clients, np.array([num_clients]))


def equal(num_clients: int, num_clusters: int, *, seed: int = 0) -> Clustering:
    """Clusters of equal size, drawn uniformly at random.

    >>> equal(6, 2, seed=1).members.tolist()
    [[0, 2, 4], [1, 3, 5]]
    """
    _check_equal(num_clients, num_clusters)
    if num_clusters == 1:
        return single(num_clients)
    order = np.random.default_rng(seed).permutation(num_clients)
    members = np.sort(order.reshape(num_clusters, -1), axis=1)
    return Clustering(num_clients, np.full(num_clusters, members.shape[1]), members)


def from_labels(labels: ArrayLike) -> Clustering:
    """Clusters that are given: a location, a time zone, an availability slot, …

    Args:
      labels: One label of any sortable kind for each client.

    >>> from_labels(["oslo", "rome", "oslo"]).members.tolist()
    [[0, 2], [1, 3]]
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or not len(labels):
        raise ValueError(
            f"cluster labels have shape {labels.shape}, but they must be [num_clients] "
            "with num_clients >= 1: give one label for each client."
        )
    _, cluster, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if len(sizes) == 1:
        return single(len(labels))
    members = np.full((len(sizes), sizes.max()), len(labels), np.int32)
    for k, size in enumerate(sizes):
        members[k, :size] = np.flatnonzero(cluster == k)
    return Clustering(len(labels), sizes, members)


def similar(histograms: np.ndarray, num_clusters: int, *, seed: int = 0) -> Clustering:
    """Clients with similar label distributions together (k-means, sizes may differ).

    Args:
      histograms: Label counts or fractions of each client, `[N, classes]`.
      num_clusters: K.
      seed: Seed of k-means' start.
    """
    histograms = np.asarray(histograms, np.float64)
    if histograms.ndim != 2:
        raise ValueError(
            f"histograms have shape {histograms.shape}, but they must be "
            "[num_clients, classes]: count each client's labels."
        )
    _check_clusters(len(histograms), num_clusters)
    checks.integer("seed", seed, at_least=0, at_most=2**32 - 1)
    totals = histograms.sum(1, keepdims=True)
    if (totals <= 0).any():
        raise ValueError(
            f"client {int(np.argmin(totals))} has an empty histogram, but each needs "
            ">= 1 sample: leave out empty clients."
        )
    # Half of the package's import time, for one function.
    from sklearn.cluster import KMeans

    means = KMeans(num_clusters, n_init=4, random_state=seed)
    return from_labels(means.fit_predict(histograms / totals))


def by_major_class(
    major_class: Sequence[int], num_clusters: int, rho_cluster: float, *, seed: int = 0
) -> Clustering:
    """FedCluster's clusters of equal size with a dial for their heterogeneity.

    Cluster k takes ρ_cluster·n of its n clients from those whose major class is its
    own, class k modulo the number of classes; the rest come evenly from the other
    classes. ρ_cluster = 1/classes gives clusters that all look alike. The paper does
    not say how to round, nor what to do when a class has too few clients: ρ_cluster·n
    is rounded to the nearest, and a cluster is filled up with who is left.

    Args:
      major_class: The major class of each client, `[N]`.
      num_clusters: K; must divide N.
      rho_cluster: ρ_cluster, in [0, 1].
      seed: Seed of the order in which clients are assigned.

    Reference: Chen et al., FedCluster, 2020, §IV.
    """
    major = np.asarray(major_class)
    num_clients = len(major)
    _check_equal(num_clients, num_clusters)
    checks.number("rho_cluster", rho_cluster, at_least=0, at_most=1)
    if num_clusters == 1:
        return single(num_clients)
    classes = np.unique(major)
    own_class = classes[np.arange(num_clusters) % len(classes)]
    size = num_clients // num_clusters
    labels = np.full(num_clients, -1)
    free = np.full(num_clusters, size)
    order = np.random.default_rng(seed).permutation(num_clients)
    for cluster in range(num_clusters):
        waiting = order[labels[order] < 0]
        own = waiting[major[waiting] == own_class[cluster]]
        own = own[: round(rho_cluster * size)]
        labels[own] = cluster
        free[cluster] -= len(own)
    # Clients of a class go one by one to the cluster that has fewest of it, starting
    # behind its own cluster: so the classes' remainders fall on different clusters.
    for number, label in enumerate(classes):
        received = np.zeros(num_clusters)
        behind = (np.arange(num_clusters) - number - 1) % num_clusters
        waiting = order[(labels[order] < 0) & (major[order] == label)]
        for client in waiting:
            open_to = (free > 0) & (own_class != label)
            open_to = open_to if open_to.any() else free > 0
            rank = np.where(open_to, received * num_clusters + behind, np.inf)
            cluster = int(np.argmin(rank))
            labels[client] = cluster
            received[cluster] += 1
            free[cluster] -= 1
    return from_labels(labels)


def _check_clusters(num_clients: int, num_clusters: int) -> None:
    checks.integer("num_clients", num_clients)
    checks.integer("num_clusters", num_clusters)
    if num_clusters > num_clients:
        raise ValueError(
            f"num_clusters = {num_clusters}, but it must be <= num_clients = "
            f"{num_clients}: lower num_clusters."
        )


def _check_equal(num_clients: int, num_clusters: int) -> None:
    _check_clusters(num_clients, num_clusters)
    if num_clients % num_clusters:
        divisors = [k for k in range(1, num_clients + 1) if num_clients % k == 0]
        near = min(divisors, key=lambda k: abs(k - num_clusters))
        raise ValueError(
            f"num_clients = {num_clients} is not divisible by num_clusters = "
            f"{num_clusters}, but equal clusters need that: take num_clusters = "
            f"{near}, or give the clusters with clustering.from_labels."
        )
