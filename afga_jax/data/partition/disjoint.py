"""Partitions that deal each sample to one client at most.

Every scheme reads the labels and its own `seed`, nothing else, and leaves no client
empty.
"""

import heapq

import numpy as np

from afga_jax import checks
from afga_jax.data.dataset import check_labels
from afga_jax.data.partition.assignment import Stored, stored


def by_client(client_of_sample: np.ndarray, num_clients: int | None = None) -> Stored:
    """Gives every sample to the client that it names.

    Args:
      client_of_sample: Id of the client of each sample, `[samples]`.
      num_clients: Number of clients; None: as many as the largest id needs.

    Returns:
      The assignment.

    Example:
      >>> by_client(np.array([1, 0, 1])).sizes
      array([1, 2], dtype=int32)
    """
    owners = np.asarray(client_of_sample)
    if num_clients is None:
        num_clients = max(1, int(owners.max(initial=-1)) + 1)
    outside = (owners < 0) | (owners >= num_clients)
    if owners.ndim != 1 or owners.dtype.kind not in "iu" or outside.any():
        wrong = f"{owners.dtype}{owners.shape}"
        if outside.any():
            wrong = f"client {owners[outside][0]} among them"
        raise ValueError(
            f"client_of_sample: {wrong}; give one integer in [0, {num_clients}) per "
            "sample, or raise num_clients."
        )
    sizes = np.bincount(owners, minlength=num_clients)
    return stored(np.argsort(owners, kind="stable"), sizes)


def drawn(client_of_sample: np.ndarray, num_clients: int, *, seed: int = 0) -> Stored:
    """Takes some of the clients that samples name, at random; the others stay out.

    They keep their order. With the same seed fewer are among more.

    Args:
      client_of_sample: Id of the client of each sample, `[samples]`.
      num_clients: Number of clients that are taken.
      seed: Seed of the partition.

    Returns:
      The assignment.

    Example:
      >>> drawn(np.array([1, 0, 1, 2, 3]), 3).sizes
      array([1, 2, 1], dtype=int32)
    """
    checks.integer("num_clients", num_clients)
    owners = np.asarray(client_of_sample)
    there = by_client(owners).num_clients
    if num_clients > there:
        raise ValueError(
            f"num_clients = {num_clients}, but the samples are of {there} clients: "
            f"take at most {there}, or another partition."
        )
    taken = np.zeros(there, bool)
    taken[np.random.default_rng(seed).permutation(there)[:num_clients]] = True
    kept = np.flatnonzero(taken[owners])
    order = kept[np.argsort(owners[kept], kind="stable")]
    return stored(order, np.bincount(owners)[taken])


def grouped(client_of_sample: np.ndarray, num_clients: int, *, seed: int = 0) -> Stored:
    """Joins the clients that samples name to fewer ones, at random.

    Numbers of joined clients differ by one at most; nobody's samples are divided.

    Args:
      client_of_sample: Id of the client of each sample, `[samples]`.
      num_clients: Number of clients after that.
      seed: Seed of the partition.

    Returns:
      The assignment.

    Example:
      >>> grouped(np.array([1, 0, 1, 2, 3]), 2).sizes
      array([2, 3], dtype=int32)
    """
    checks.integer("num_clients", num_clients)
    natural = by_client(client_of_sample)
    if num_clients > natural.num_clients:
        raise ValueError(
            f"{num_clients} clients cannot be made of {natural.num_clients} by joining "
            "them; use fewer, or another partition."
        )
    order = np.random.default_rng(seed).permutation(natural.num_clients)
    group = np.empty(natural.num_clients, np.int32)
    for number, members in enumerate(np.array_split(order, num_clients)):
        group[members] = number
    return by_client(group[np.asarray(client_of_sample)], num_clients)


def iid(labels: np.ndarray, num_clients: int, *, seed: int = 0) -> Stored:
    """Deals a shuffle in equal parts; sizes differ by one at most.

    Args:
      labels: Labels of the samples, `[samples]`; only their number matters.
      num_clients: Number of clients.
      seed: Seed of the partition.

    Returns:
      The assignment.
    """
    _check_disjoint(labels, num_clients)
    order = np.random.default_rng(seed).permutation(len(labels))
    return stored(order, _even(len(labels), num_clients))


def dirichlet(
    labels: np.ndarray,
    num_clients: int,
    *,
    alpha: float = 0.6,
    min_size: int = 1,
    seed: int = 0,
) -> Stored:
    """Splits each class over the clients by its own draw p_c ~ Dir(α·1_N).

    A client left with fewer than `min_size` samples takes random ones, one by one, from
    whoever is largest at the time: the draw is not repeated, so it always ends.

    Args:
      labels: Labels of the samples, `[samples]`.
      num_clients: Number of clients, N.
      alpha: Concentration α; small: each class sits with few clients.
      min_size: Fewest samples that a client may have.
      seed: Seed of the partition.

    Returns:
      The assignment.

    Reference:
      Hsu et al., 2019, "Measuring the effects of non-identical data distribution";
      per class as in Wang et al., 2020 (FedMA, FedNova).
    """
    checks.number("alpha", alpha, above=0, fix="the papers use 0.3 and 0.6")
    checks.integer("min_size", min_size, fix="no client may be empty")
    _check_disjoint(labels, num_clients, min_size)
    random = np.random.default_rng(seed)
    owners = np.empty(len(labels), int)
    for pool in class_pools(labels):
        proportions = random.dirichlet(np.full(num_clients, alpha))
        cuts = np.rint(np.cumsum(proportions)[:-1] * len(pool)).astype(int)
        counts = np.diff(cuts, prepend=0, append=len(pool))
        owners[random.permutation(pool)] = np.repeat(np.arange(num_clients), counts)
    return by_client(_levelled(random, owners, num_clients, min_size), num_clients)


def dirichlet_client(
    labels: np.ndarray, num_clients: int, *, alpha: float = 0.6, seed: int = 0
) -> Stored:
    """Gives each client, in random order, classes in proportions p_i ~ Dir(α·1_C).

    All samples are dealt and sizes differ by one at most, so a class can run out; what
    a client still wants is then drawn from its other classes.

    Args:
      labels: Labels of the samples, `[samples]`.
      num_clients: Number of clients.
      alpha: Concentration α; small: each client has few classes.
      seed: Seed of the partition.

    Returns:
      The assignment.
    """
    checks.number("alpha", alpha, above=0, fix="the papers use 0.3 and 0.6")
    _check_disjoint(labels, num_clients)
    random = np.random.default_rng(seed)
    pools = class_pools(labels)
    remaining = np.array([len(pool) for pool in pools])
    sizes = _even(len(labels), num_clients)
    counts = np.zeros((num_clients, len(pools)), int)
    for client in random.permutation(num_clients):
        proportions = random.dirichlet(np.full(len(pools), alpha))
        counts[client] = _drawn_counts(random, proportions, remaining, sizes[client])
        remaining = remaining - counts[client]
    owners = np.empty(len(labels), int)
    for pool, repeats in zip(pools, counts.T, strict=True):
        owners[random.permutation(pool)] = np.repeat(np.arange(num_clients), repeats)
    return by_client(owners, num_clients)


def shards(
    labels: np.ndarray,
    num_clients: int,
    *,
    num_shards: int = 200,
    shard_size: int = 250,
    shards_per_client: int = 6,
    seed: int = 0,
) -> Stored:
    """Sorts by label, cuts into shards, gives each client some at random.

    Shards that nobody draws are not used: HA-Fed's 32 clients take 192 of 200.

    Args:
      labels: Labels of the samples, `[samples]`.
      num_clients: Number of clients.
      num_shards: Number of shards; `partition.PAPER_SHARDS` has HA-Fed's.
      shard_size: Number of samples per shard.
      shards_per_client: Number of shards per client.
      seed: Seed of the partition.

    Returns:
      The assignment.
    """
    checks.integer("num_shards", num_shards)
    checks.integer("shard_size", shard_size)
    checks.integer("shards_per_client", shards_per_client)
    check_samples(labels, num_clients)
    if num_shards * shard_size > len(labels):
        raise ValueError(
            f"{num_shards} shards of {shard_size} need {num_shards * shard_size} "
            f"samples, there are {len(labels)}; use fewer or smaller shards."
        )
    if num_clients * shards_per_client > num_shards:
        raise ValueError(
            f"{num_clients} clients with {shards_per_client} shards each need "
            f"{num_clients * shards_per_client} shards, there are {num_shards}; ask "
            "for fewer per client or cut more shards."
        )
    random = np.random.default_rng(seed)
    by_label = np.concatenate(
        [random.permutation(pool) for pool in class_pools(labels)]
    )
    table = by_label[: num_shards * shard_size].reshape(num_shards, shard_size)
    drawn = random.permutation(num_shards)[: num_clients * shards_per_client]
    sizes = np.full(num_clients, shards_per_client * shard_size)
    return stored(table[drawn].reshape(-1), sizes)


def check_samples(labels: np.ndarray, num_clients: int) -> None:
    """Refuses what is not a list of labels for at least one client."""
    checks.integer("num_clients", num_clients)
    num_classes = int(np.max(labels, initial=-1)) + 1
    if num_classes < 1:
        raise ValueError(f"labels {labels}: give one label in [0, classes) per sample.")
    check_labels(labels, num_classes, "labels")


def class_pools(labels: np.ndarray) -> list[np.ndarray]:
    """The samples of each class that occurs, classes in order."""
    by_label = np.argsort(labels, kind="stable")
    _, firsts = np.unique(np.asarray(labels)[by_label], return_index=True)
    return np.split(by_label, firsts[1:])


def _check_disjoint(labels: np.ndarray, num_clients: int, min_size: int = 1) -> None:
    check_samples(labels, num_clients)
    if num_clients * min_size > len(labels):
        raise ValueError(
            f"{num_clients} clients of at least {min_size} samples need "
            f"{num_clients * min_size}, there are {len(labels)}; use fewer clients, or "
            "the partition 'overlap', which shares samples."
        )


def _even(total: int, parts: int) -> np.ndarray:
    return total // parts + (np.arange(parts) < total % parts)


def _levelled(
    random: np.random.Generator, owners: np.ndarray, num_clients: int, min_size: int
) -> np.ndarray:
    """Moves random samples of the largest clients to those below `min_size`."""
    sizes = np.bincount(owners, minlength=num_clients)
    lacking = np.maximum(min_size - sizes, 0)
    largest = [(-size, client) for client, size in enumerate(sizes)]
    heapq.heapify(largest)
    givers = np.zeros(num_clients, int)
    for _ in range(lacking.sum()):
        size, client = largest[0]
        heapq.heapreplace(largest, (size + 1, client))
        givers[client] += 1
    moved = [
        random.choice(np.flatnonzero(owners == client), givers[client], replace=False)
        for client in np.flatnonzero(givers)
    ]
    owners = owners.copy()
    if moved:
        owners[np.concatenate(moved)] = np.repeat(np.arange(num_clients), lacking)
    return owners


def _drawn_counts(
    random: np.random.Generator,
    proportions: np.ndarray,
    remaining: np.ndarray,
    size: int,
) -> np.ndarray:
    """Draws `size` samples by class; classes that run out leave the draw."""
    counts = np.zeros_like(remaining)
    while missing := size - counts.sum():
        weights = proportions * (counts < remaining)
        # Tiny α puts all weight on classes that may be gone: then any class will do.
        if weights.sum() < 1e-12:
            weights = (remaining - counts).astype(float)
        drawn = random.multinomial(missing, weights / weights.sum())
        counts += np.minimum(drawn, remaining - counts)
    return counts
