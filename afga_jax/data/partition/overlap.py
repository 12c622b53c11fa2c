"""Partitions in which clients share samples, computed from the client's number."""

import numpy as np

from afga_jax import checks
from afga_jax.data.partition.computed import Computed
from afga_jax.data.partition.disjoint import check_samples, class_pools


def major_class(
    labels: np.ndarray,
    num_clients: int = 1000,
    *,
    client_size: int = 500,
    rho_device: float = 0.5,
    seed: int = 0,
) -> Computed:
    """Takes ρ_device of each client's samples from one class, the rest evenly.

    A client holds `round(ρ_device · client_size)` samples of its major class and, of
    the other classes, equal numbers (some one more, where it does not divide), in all
    exactly `client_size`, no sample twice. Among any `num_classes` consecutive clients
    that start at a multiple of it each class is the major one once. `.major_class` has
    it for all clients, which is what clustering by ρ_cluster needs.

    Args:
      labels: Labels of the samples, `[samples]`.
      num_clients: Number of clients.
      client_size: Number of samples per client.
      rho_device: Proportion ρ_device of a client's major class, from 1 / num_classes
        (all even) to 1 (one class only).
      seed: Seed of the partition.

    Returns:
      The assignment.

    Example:
      >>> labels = np.repeat(np.arange(4), 30)
      >>> clients = major_class(labels, 8, client_size=20, rho_device=0.7)
      >>> sorted(clients.major_class[:4].tolist()), clients.major_count
      ([0, 1, 2, 3], 14)

    Reference:
      Chen et al., 2020, "FedCluster: Boosting the Convergence of Federated Learning via
      Cluster-Cycling".
    """
    check_samples(labels, num_clients)
    pools = class_pools(labels)
    checks.number(
        "rho_device",
        rho_device,
        at_least=1 / len(pools),
        at_most=1,
        fix=f"1/{len(pools)} makes the {len(pools)} classes even, 1 leaves only one",
    )
    checks.integer("client_size", client_size)
    major_count = round(rho_device * client_size)
    pool_labels = tuple(np.unique(labels).tolist())
    return _computed(pools, pool_labels, num_clients, client_size, major_count, seed)


def overlap(
    labels: np.ndarray, num_clients: int, *, client_size: int = 500, seed: int = 0
) -> Computed:
    """Gives each of any number of clients `client_size` random samples.

    Nothing is stored per client: ten million cost what a hundred do. A client holds no
    sample twice.

    Args:
      labels: Labels of the samples, `[samples]`; only their number matters.
      num_clients: Number of clients.
      client_size: Number of samples per client.
      seed: Seed of the partition.

    Returns:
      The assignment.

    Example:
      >>> clients = overlap(np.zeros(1000, int), 10_000_000, client_size=20)
      >>> len(clients.sizes), int(clients.sizes[9_999_999])
      (10000000, 20)
    """
    check_samples(labels, num_clients)
    checks.integer("client_size", client_size)
    pools = [np.arange(len(labels))]
    return _computed(pools, (), num_clients, client_size, client_size, seed)


def _computed(
    pools: list[np.ndarray],
    pool_labels: tuple[int, ...],
    num_clients: int,
    client_size: int,
    major_count: int,
    seed: int,
) -> Computed:
    sizes = np.array([len(pool) for pool in pools])
    others = max(len(pools) - 1, 1)
    most = max(major_count, -(-(client_size - major_count) // others))
    if most > sizes.min():
        raise ValueError(
            f"a client of {client_size} samples takes up to {most} of one class, the "
            f"smallest class has {sizes.min()}; lower client_size or rho_device."
        )
    if num_clients >= 2**31:
        raise ValueError(
            f"num_clients = {num_clients} does not fit 32 bits; stay below 2**31."
        )
    random = np.random.default_rng(seed)
    return Computed(
        order=np.concatenate([random.permutation(p) for p in pools]).astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32),
        salt=random.integers(2**32, dtype=np.uint32),
        pool_labels=pool_labels,
        num_clients=num_clients,
        capacity=client_size,
        major_count=major_count,
    )
