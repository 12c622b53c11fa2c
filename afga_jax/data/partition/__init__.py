"""Who holds which samples: partitions of one data set among clients, by name.

"Dirichlet" has two readings in public code, so the scheme is part of the name:

| name | a client holds |
|---|---|
| `iid` | an equal part of a shuffle |
| `dirichlet` | a Dirichlet proportion of each class: sizes differ |
| `dirichlet_client` | classes in Dirichlet proportions: sizes equal |
| `shards` | some runs of the samples sorted by label |
| `major_class` | mostly one class, shared with others |
| `overlap` | any samples, shared with others, for any number of clients |

Who a sample is from, where the data says so, decides by `by_client`, by `drawn`, which
takes some of these clients, or by `grouped`, which joins several to one.

Each returns an assignment (`afga_jax.data.partition.assignment`), decided by the
partition's own `seed`, without an empty client.
"""

import numpy as np

from afga_jax import checks
from afga_jax.data.partition.assignment import (
    Assignment,
    from_indices,
    members,
    ranges,
    stored,
)
from afga_jax.data.partition.disjoint import (
    by_client,
    dirichlet,
    dirichlet_client,
    drawn,
    grouped,
    iid,
    shards,
)
from afga_jax.data.partition.overlap import major_class, overlap
from afga_jax.data.partition.picture import Summary, class_picture, show, summary

__all__ = [
    "PAPER_SHARDS",
    "SCHEMES",
    "Assignment",
    "Summary",
    "build",
    "by_client",
    "class_picture",
    "dirichlet",
    "dirichlet_client",
    "drawn",
    "from_indices",
    "grouped",
    "iid",
    "major_class",
    "members",
    "overlap",
    "ranges",
    "shards",
    "show",
    "stored",
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


def build(name: str, labels: np.ndarray, num_clients: int, **options) -> Assignment:
    """Deals samples by the scheme of that name.

    Args:
      name: Name of the scheme, a key of `SCHEMES`.
      labels: Labels of the samples, `[samples]`.
      num_clients: Number of clients.
      **options: Arguments of the scheme's own, and `seed`.

    Returns:
      The assignment.

    Example:
      >>> assignment = build("dirichlet", np.arange(100) % 10, 5, alpha=0.6, seed=1)
      >>> int(assignment.sizes.sum())
      100
    """
    checks.choice("partition", name, SCHEMES)
    return SCHEMES[name](labels, num_clients, **options)
