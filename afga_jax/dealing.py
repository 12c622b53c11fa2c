"""Client data in blocks over devices: each holds the samples of its own clients.

Who holds a client's row as a rule holds its samples, too, and computes its gradient
without asking anybody. Where another device computes it, the client's own draws the
batch and sends it: batches are a function of keys and client ids, so they are the same
wherever they are drawn.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import PartitionSpec

from afga_jax.mixing import WithinClusters
from afga_jax.participation import make_plan
from afga_jax.recipe import Recipe
from afga_jax.shares import Share
from afga_jax.typing import Array, Batch, ClientData, PyTree


@struct.dataclass
class Dealt:
    """The data of all clients, of which this device holds a block's; a `ClientData`.

    Its samples can be asked for only inside `shard_map`, and there each device can
    answer for its own clients.

    Attributes:
      own: Of this device's clients, numbered by their rows on it.
      sizes: Of all clients, `[N]`.
      place: The row of each client among those of all devices, `[N + 1]`; padding's is
        past the last.
      rows: Of all devices.
      axis: Name of the axis of devices.
      aligned: Whether the dense engine holds a client's model in the same row.
    """

    own: Any
    sizes: Any
    place: Any
    rows: int = struct.field(pytree_node=False)
    axis: str = struct.field(pytree_node=False)
    aligned: bool = struct.field(pytree_node=False)

    @property
    def share(self) -> Share:
        return Share(self.rows, self.axis)

    def local(self, client: Array) -> Array:
        """Rows of this device from clients' ids; others' are past the last."""
        return self.share.local(self.place[client])

    def indices(self, client: Array) -> Array:
        """The client's samples, counted on this device."""
        return self.own.indices(self.local(client))

    def batch(self, key: Array, client: Array) -> Batch:
        """A batch of a client whose samples are here."""
        return self.own.batch(key, self.local(client))

    def full(self, client: Array) -> Batch:
        """All samples of a client whose samples are here."""
        return self.own.full(self.local(client))

    def pooled(self) -> ClientData:
        raise ValueError("data in blocks cannot be pooled: pool them before.")


def can_be_dealt(data: ClientData, recipe: Recipe) -> bool:
    """Whether each device can have the samples of its own clients only."""
    return getattr(data, "separable", False) and not recipe.pooled


def deal(data: Any, recipe: Recipe, devices: int, axis: str) -> Dealt:
    """The data in blocks over devices, on the host.

    Data that can be dealt are `separable` and have a method `in_blocks(ids)`, which
    takes the clients of each device, `[devices, rows]` with ids past the last for
    nobody's rows, and gives the same kind of data with the devices' parts one after
    another in every array.

    Args:
      data: Of all clients; see `can_be_dealt`.
      recipe: Says in which rows clients lie.
      devices: That share the clients.
      axis: Its name.
    """
    num_clients = recipe.clustering.num_clients
    fixed = rows_of(recipe)
    order = np.arange(num_clients) if fixed is None else fixed
    size = -(-len(order) // devices)
    padded = np.full(devices * size, num_clients)
    padded[: len(order)] = order
    own = data.in_blocks(padded.reshape(devices, size))
    place = np.full(num_clients + 1, len(order), np.int32)
    place[order] = np.arange(len(order))
    place[num_clients] = len(order)
    sizes = np.asarray(data.sizes)
    return Dealt(own, sizes, place, len(order), axis, fixed is not None)


def rows_of(recipe: Recipe) -> np.ndarray | None:
    """Ids in the dense engine's row order, where it is the same in every cycle."""
    plan = jax.eval_shape(
        lambda key: make_plan(recipe.participation, recipe.order, key, 0),
        jax.random.key(0),
    )
    if jax.eval_shape(recipe.mixing.rows, plan) is None:
        return np.arange(recipe.clustering.num_clients)
    mixing: Any = recipe.mixing
    while hasattr(mixing, "mixing"):
        mixing = mixing.mixing
    if isinstance(mixing, WithinClusters) and len(plan.clusters) == 1:
        return np.asarray(mixing.clustering.members).reshape(-1)
    return None


def specs(data: PyTree) -> PyTree:
    """How the arrays of client data lie on a mesh: blocks, or a copy on each device."""
    if not isinstance(data, Dealt):
        return PartitionSpec()
    nowhere = PartitionSpec()
    own = PartitionSpec(data.axis)
    return dataclasses.replace(data, own=own, sizes=nowhere, place=nowhere)


def on_this_device(data: Dealt, clients: Array, count: Array | None) -> Array:
    """Which of some clients have their samples here, `[clients]`.

    Args:
      data: In blocks.
      clients: Their ids.
      count: Only the first so many are real; None: all.
    """
    here = data.local(clients) < data.share.size
    return here if count is None else here & (jnp.arange(len(clients)) < count)
