"""Client data in blocks over devices: each device holds the samples of its clients.

Who holds a client's row as a rule holds its samples, too, and computes its gradient
without asking anybody. Where another device computes it, the client's own draws the
batch and sends it: batches are a function of keys and client ids, so they are the same
wherever they are drawn.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from flax import struct

from afga_jax.mesh import COPIED, ROWS
from afga_jax.population.sampling import make_plan
from afga_jax.recipe import Recipe
from afga_jax.typing import ClientData, PyTree


@struct.dataclass
class ClientBlocks:
    """The data of all clients, of which each device holds its block's.

    Attributes:
      own: The clients' data, numbered by their rows on their device.
      sizes: Samples of every client, `[N]`.
      row_of: Row number of each client among those of all devices, `[N + 1]`; that of
        padding is past the last.
      block: Rows that each device holds.
      aligned: Whether the dense engine holds a client's model in the same row.
    """

    own: Any
    sizes: Any
    row_of: Any
    block: int = struct.field(pytree_node=False)
    aligned: bool = struct.field(pytree_node=False)


def can_be_split(data: ClientData, recipe: Recipe) -> bool:
    """Whether each device can have the samples of its own clients only."""
    return getattr(data, "separable", False) and not recipe.pooled


def split(data: Any, recipe: Recipe, devices: int) -> ClientBlocks:
    """The data in blocks over devices, on the host.

    Data that can be split are `separable` and have a method `in_blocks(ids)`, which
    takes the clients of each device, `[devices, rows]` with ids past the last for
    nobody's rows, and gives the same kind of data with the devices' parts one after
    another in every array.

    Args:
      data: The data of all clients; see `can_be_split`.
      recipe: Says in which rows clients lie.
      devices: Number of devices that share the clients.
    """
    num_clients = recipe.clustering.num_clients
    fixed = row_order(recipe)
    order = np.arange(num_clients) if fixed is None else fixed
    size = -(-len(order) // devices)
    padded = np.full(devices * size, num_clients)
    padded[: len(order)] = order
    row_of = np.full(num_clients + 1, devices * size, np.int32)
    row_of[order] = np.arange(len(order))
    row_of[num_clients] = devices * size
    own = data.in_blocks(padded.reshape(devices, size))
    return ClientBlocks(own, np.asarray(data.sizes), row_of, size, fixed is not None)


def row_order(recipe: Recipe) -> np.ndarray | None:
    """Ids in the dense engine's row order, where it is the same in every cycle."""
    plan = jax.eval_shape(
        lambda key: make_plan(recipe.participation, recipe.order, key, 0),
        jax.random.key(0),
    )
    if jax.eval_shape(recipe.mixing.rows, plan) is None:
        return np.arange(recipe.clustering.num_clients)
    return recipe.mixing.fixed_rows() if len(plan.clusters) == 1 else None


def specs(data: PyTree) -> PyTree:
    """How the arrays of client data lie on a mesh: blocks, or a copy on each device."""
    if not isinstance(data, ClientBlocks):
        return COPIED
    return dataclasses.replace(data, own=ROWS, sizes=COPIED, row_of=COPIED)
