"""Partitions in which clients share samples, computed from the client's number.

Who holds which samples is never stored.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from afga_jax import checks
from afga_jax.data.partition.assignment import Stored, stored
from afga_jax.data.partition.disjoint import check_samples, class_pools

# Rounds of the keyed shuffle: one hash each; a list of 30 among 600 is random after 12.
ROUNDS = 12


def major_class(
    labels: np.ndarray,
    num_clients: int = 1000,
    *,
    client_size: int = 500,
    rho_device: float = 0.5,
    seed: int = 0,
) -> "Computed":
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
) -> "Computed":
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


@struct.dataclass
class Computed:
    """Equal, overlapping lists that are computed from the client's number.

    The samples lie in pools, one per class, each in random order. A client's first
    `major_count` samples come from its major pool, the others in turn from the
    remaining pools. Within a pool a client takes the first cards of its own shuffle,
    which is a keyed permutation and not an array, so no sample comes twice.

    Attributes:
      order: Indices of the samples, pool after pool, int32 `[samples]`.
      offsets: Index into `order` of each pool's first sample, and its length, uint32
        `[pools + 1]`.
      salt: Number that makes the shuffles depend on the seed, uint32.
      pool_labels: Label of each pool; empty where pools are not classes.
      num_clients: Number of clients.
      capacity: Number of samples of every client.
      major_count: Number of samples that a client has from its major pool.
    """

    order: Any
    offsets: Any
    salt: Any
    pool_labels: tuple[int, ...] = struct.field(pytree_node=False)
    num_clients: int = struct.field(pytree_node=False)
    capacity: int = struct.field(pytree_node=False)
    major_count: int = struct.field(pytree_node=False)

    @property
    def sizes(self) -> "EqualSizes":
        return EqualSizes(self.num_clients, self.capacity)

    @property
    def end(self) -> int:
        return int(np.max(self.order)) + 1

    @property
    def major_class(self) -> np.ndarray:
        """The label of which each client has most, int32 `[num_clients]`; on the host.

        Raises:
          ValueError: Clients draw from all samples alike.
        """
        if not self.pool_labels:
            raise ValueError(
                "the partition 'overlap' has no major classes; deal by 'major_class'."
            )
        host = jax.tree.map(np.asarray, self)
        pools = host._major_pool(np.arange(self.num_clients))
        return np.array(self.pool_labels, np.int32)[pools]

    def size(self, client):
        """Number of samples of one client: the same for all."""
        return self.sizes[client]

    def sample(self, client, position):
        """Index of the sample at `position` of the client's list."""
        position = position.astype(np.uint32)
        numpy = position.__array_namespace__()
        pools = np.uint32(len(self.offsets) - 1)
        others = np.uint32(max(len(self.offsets) - 2, 1))
        in_major = position < np.uint32(self.major_count)
        rest = position - numpy.minimum(position, np.uint32(self.major_count))
        further = numpy.where(in_major, np.uint32(0), np.uint32(1) + rest % others)
        pool = (self._major_pool(client) + further) % pools
        rank = numpy.where(in_major, position, rest // others)
        start = self.offsets[pool]
        size = self.offsets[pool + np.uint32(1)] - start
        key = _mixed(_mixed(client.astype(np.uint32) ^ self.salt) + pool)
        return self.order[start + shuffled(rank, size, key)]

    def pooled(self) -> Stored:
        """One client with, once, each sample that some client holds; on the host."""
        host = jax.tree.map(np.asarray, self)
        covered = np.zeros(self.end, bool)
        positions = np.arange(host.capacity)
        for client in range(host.num_clients):
            covered[host.sample(np.full(len(positions), client), positions)] = True
            # With many clients this is so after a few thousand of them.
            if covered.sum() == len(host.order):
                break
        samples = np.flatnonzero(covered)
        return stored(samples, np.array([len(samples)]))

    def _major_pool(self, client):
        """Every block of as many clients as pools has each pool once, shuffled."""
        pools = np.uint32(len(self.offsets) - 1)
        client = client.astype(np.uint32)
        # One card needs no shuffle: it would only double the time to compile a draw.
        if pools == 1:
            return client * np.uint32(0)
        return shuffled(client % pools, pools, _mixed(client // pools + self.salt))


@struct.dataclass
class EqualSizes:
    """Sizes of clients that all hold the same number: indexable, never stored."""

    num_clients: int = struct.field(pytree_node=False)
    size: int = struct.field(pytree_node=False)

    def __len__(self) -> int:
        return self.num_clients

    def __getitem__(self, clients) -> jax.Array | np.ndarray:
        numpy = jnp if isinstance(clients, jax.Array) else np
        return numpy.full(np.shape(clients), self.size, np.int32)


def shuffled(position, size, key):
    """Position to which a keyed shuffle of `size` cards moves the card at `position`.

    In every round a card may change with its partner at (k − position) mod size; both
    agree on whether, because the coin is a hash of the higher of the two. That makes
    each round, and so the whole, a permutation for any size, without a table.

    Args:
      position: Position of the card before the shuffle, in [0, size), uint32.
      size: Number of cards, uint32, below 2**31.
      key: Number that chooses the shuffle, uint32.

    Returns:
      Its position after the shuffle, in [0, size), uint32.

    Example:
      >>> cards = shuffled(np.arange(10, dtype=np.uint32), np.uint32(10), np.uint32(1))
      >>> sorted(cards.tolist()) == list(range(10)), cards.tolist() != list(range(10))
      (True, True)

    Reference:
      Hoang, Morris and Rogaway, 2012, "An Enciphering Scheme Based on a Card Shuffle".
    """
    numpy = position.__array_namespace__()
    for number in range(1, ROUNDS + 1):
        round_key = _mixed(key ^ np.uint32(number))
        partner = (round_key % size + size - position) % size
        coin = _mixed(round_key ^ numpy.maximum(position, partner)) >> np.uint32(31)
        position = numpy.where(coin.astype(bool), partner, position)
    return position


def _computed(
    pools: list[np.ndarray],
    pool_labels: tuple[int, ...],
    num_clients: int,
    client_size: int,
    major_count: int,
    seed: int,
) -> "Computed":
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


def _mixed(number):
    """A 32-bit hash: xor-shifts and odd multipliers, each of them invertible."""
    # Wrapping around is the point; NumPy warns of it for scalars.
    with np.errstate(over="ignore"):
        number = (number ^ (number >> np.uint32(16))) * np.uint32(0x7FEB352D)
        number = (number ^ (number >> np.uint32(15))) * np.uint32(0x846CA68B)
        return number ^ (number >> np.uint32(16))
