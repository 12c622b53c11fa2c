"""How the samples of one data set are dealt to clients, by name.

"Dirichlet" has two readings in public code, so the scheme is part of the name:

| name | a client holds |
|---|---|
| `iid` | an equal part of a shuffle |
| `dirichlet` | of each class a Dirichlet share: sizes differ |
| `dirichlet_client` | classes in Dirichlet proportions: sizes equal |
| `shards` | some runs of the samples sorted by label |
| `major_class` | mostly one class, shared with others |
| `overlap` | any samples, shared with others, for any number of clients |

Each returns an assignment (`afga_jax.data.assignment`), decided by the partition's own
`seed`, without an empty client.
"""

from typing import NamedTuple

import numpy as np

from afga_jax import checks
from afga_jax.data.assignment import Assignment, members
from afga_jax.data.computed import EqualSizes
from afga_jax.data.disjoint import (
    by_client,
    dirichlet,
    dirichlet_client,
    iid,
    shards,
)
from afga_jax.data.overlap import major_class, overlap

__all__ = [
    "PAPER_SHARDS",
    "SCHEMES",
    "Summary",
    "build",
    "by_client",
    "dirichlet",
    "dirichlet_client",
    "iid",
    "major_class",
    "members",
    "overlap",
    "shards",
    "summary",
]

SCHEMES = {
    scheme.__name__: scheme
    for scheme in (iid, dirichlet, dirichlet_client, shards, major_class, overlap)
}

# Shards of HA-Fed's experiments, by data set.
PAPER_SHARDS = {
    "cifar10": {"num_shards": 200, "shard_size": 250, "shards_per_client": 6},
    "cifar100": {"num_shards": 2000, "shard_size": 25, "shards_per_client": 60},
    "fashion_mnist": {"num_shards": 200, "shard_size": 300, "shards_per_client": 6},
}


class Summary(NamedTuple):
    """What a partition looks like; printed, a few lines for people.

    Attributes:
      num_clients: Number of clients.
      smallest: Samples of the smallest client.
      mean: Mean number of samples.
      largest: Samples of the largest client.
      class_counts: Samples by client and class, `[clients shown, num_classes]`.
    """

    num_clients: int
    smallest: int
    mean: float
    largest: int
    class_counts: np.ndarray

    def __str__(self) -> str:
        shown, num_classes = self.class_counts.shape
        held = (self.class_counts > 0).sum(axis=1).mean()
        share = (self.class_counts.max(axis=1) / self.class_counts.sum(axis=1)).mean()
        return (
            f"{self.num_clients:,} clients of {self.smallest:,} to {self.largest:,} "
            f"samples, {self.mean:,.1f} on average\n"
            f"{held:.1f} of {num_classes} classes per client, the commonest with "
            f"{share:.0%} of the samples ({shown:,} clients)"
        )


def build(name: str, labels: np.ndarray, num_clients: int, **options) -> Assignment:
    """Deals samples by the scheme of that name.

    Args:
      name: A key of `SCHEMES`.
      labels: Labels of the samples, `[samples]`.
      num_clients: Number of clients.
      **options: The scheme's own, and `seed`.

    Returns:
      The assignment.

    Example:
      >>> held = build("dirichlet", np.arange(100) % 10, 5, alpha=0.6, seed=1)
      >>> int(held.sizes.sum())
      100
    """
    checks.choice("partition", name, SCHEMES)
    return SCHEMES[name](labels, num_clients, **options)


def summary(
    assignment: Assignment, labels: np.ndarray, max_clients: int = 10_000
) -> Summary:
    """Sizes of all clients and class histograms of the first `max_clients`.

    Args:
      assignment: Who holds which samples.
      labels: `[samples]`.
      max_clients: How many clients to look into for the histograms.

    Returns:
      The summary.

    Example:
      >>> labels = np.repeat(np.arange(10), 60)
      >>> sizes = dict(num_shards=10, shard_size=60, shards_per_client=2)
      >>> print(summary(build("shards", labels, 5, **sizes), labels))
      5 clients of 120 to 120 samples, 120.0 on average
      2.0 of 10 classes per client, the commonest with 50% of the samples (5 clients)
    """
    sizes = assignment.sizes
    if isinstance(sizes, EqualSizes):
        smallest = mean = largest = sizes.size
    else:
        smallest, mean, largest = np.min(sizes), np.mean(sizes), np.max(sizes)
    labels = np.asarray(labels)
    num_classes = int(labels.max()) + 1
    counts = [
        np.bincount(labels[members(assignment, client)], minlength=num_classes)
        for client in range(min(assignment.num_clients, max_clients))
    ]
    return Summary(
        assignment.num_clients,
        int(smallest),
        float(mean),
        int(largest),
        np.stack(counts),
    )
