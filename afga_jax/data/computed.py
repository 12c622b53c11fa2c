"""Who holds which samples, computed from the client's number and never stored."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from afga_jax.data.assignment import Stored, stored

# How many strides a pool offers. Times the pool's size: its number of distinct draws.
NUM_STRIDES = 1024


@struct.dataclass
class Computed:
    """Equal, overlapping lists that are computed from the client's number.

    The samples lie in pools, one per class, each in random order. A client's first
    `major_count` samples come from its major pool, the others in turn from the
    remaining pools. Within a pool of n samples it takes those at
    `(shift + k · stride) mod n`, k = 0, 1, …, where shift and stride are hashed from
    the client's number and the stride has no divisor in common with n: all differ.

    Attributes:
      order: Sample indices, pool after pool, int32 `[samples]`.
      offsets: Where each pool starts in `order`, uint32 `[pools + 1]`.
      strides: Steps through each pool, uint32 `[pools, NUM_STRIDES]`.
      turns: Steps through the pools themselves, uint32 `[NUM_STRIDES]`.
      salt: Makes the hash depend on the seed, uint32.
      num_clients: Number of clients.
      capacity: Samples of every client.
      major_count: How many of them are from the client's major pool.
    """

    order: Any
    offsets: Any
    strides: Any
    turns: Any
    salt: Any
    num_clients: int = struct.field(pytree_node=False)
    capacity: int = struct.field(pytree_node=False)
    major_count: int = struct.field(pytree_node=False)

    @property
    def sizes(self) -> "EqualSizes":
        return EqualSizes(self.num_clients, self.capacity)

    @property
    def major_class(self) -> np.ndarray:
        """The major pool of every client, int32 `[num_clients]`, on the host."""
        return self.major(np.arange(self.num_clients)).astype(np.int32)

    @property
    def end(self) -> int:
        return int(np.max(self.order)) + 1

    def major(self, client):
        """The major pool of a client; every block of `pools` clients has each once."""
        pools = np.uint32(len(self.offsets) - 1)
        client = client.astype(np.uint32)
        hashed = _mixed(client // pools + self.salt)
        stride = self.turns[hashed % np.uint32(NUM_STRIDES)]
        return (_mixed(hashed) % pools + client % pools * stride) % pools

    def sample(self, client, position):
        """Index of the sample at `position` of the client's list."""
        position = position.astype(np.uint32)
        numpy = position.__array_namespace__()
        pools = np.uint32(len(self.offsets) - 1)
        others = np.uint32(max(len(self.offsets) - 2, 1))
        count = np.uint32(self.major_count)
        in_major = position < count
        rest = position - numpy.minimum(position, count)
        pool = self.major(client) + numpy.where(in_major, 0, 1 + rest % others)
        pool = pool.astype(np.uint32) % pools
        rank = numpy.where(in_major, position, rest // others)
        hashed = _mixed(_mixed(client.astype(np.uint32) ^ self.salt) + pool)
        start = self.offsets[pool]
        size = self.offsets[pool + np.uint32(1)] - start
        stride = self.strides[pool, hashed % np.uint32(NUM_STRIDES)]
        return self.order[start + (_mixed(hashed) % size + rank * stride) % size]

    def pooled(self) -> Stored:
        """One client with, once, each sample that some client holds; on the host."""
        host = jax.tree.map(np.asarray, self)
        found = np.zeros(len(host.order), bool)
        positions = np.arange(host.capacity)
        for client in range(host.num_clients):
            found[host.sample(np.full(len(positions), client), positions)] = True
            # With many clients this is so after a few thousand of them.
            if found.all():
                break
        held = np.flatnonzero(found)
        return stored(held, np.array([len(held)]))


@struct.dataclass
class EqualSizes:
    """Sizes of clients that all hold the same number: indexable, never stored."""

    num_clients: int = struct.field(pytree_node=False)
    size: int = struct.field(pytree_node=False)

    def __len__(self) -> int:
        return self.num_clients

    def __getitem__(self, clients) -> jax.Array:
        return jnp.full(jnp.shape(clients), self.size, jnp.int32)


def _mixed(number):
    """A 32-bit hash: xor-shifts and odd multipliers, each of them invertible."""
    # Wrapping around is the point; NumPy warns of it for scalars.
    with np.errstate(over="ignore"):
        number = (number ^ (number >> np.uint32(16))) * np.uint32(0x7FEB352D)
        number = (number ^ (number >> np.uint32(15))) * np.uint32(0x846CA68B)
        return number ^ (number >> np.uint32(16))
