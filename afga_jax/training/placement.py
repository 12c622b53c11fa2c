"""Where a run's arrays lie on a mesh of devices.

With the dense engine each device holds a block of the client rows; with the span engine
the devices share the lanes of each slot, and all have a copy of the state.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from afga_jax.mesh import CLIENTS, SEEDS
from afga_jax.optimizers.aggregators import AggregatorState
from afga_jax.recipe import FederatedState
from afga_jax.rounds import client_blocks
from afga_jax.typing import Array, PyTree


class Placement(NamedTuple):
    """How the arguments of a program lie on a mesh.

    Attributes:
      mesh: The devices.
      several: Whether arrays have an axis of seeds.
      blocks: Whether the clients' rows of the state lie in blocks over the devices.
    """

    mesh: Mesh
    several: bool = False
    blocks: bool = False

    def specs(self, data: PyTree = None) -> dict[str, PyTree]:
        """How the key, the state, the data and the diagnostics lie, by name.

        Args:
          data: The clients' data; `ClientBlocks` lie in blocks.
        """
        seeds = SEEDS if SEEDS in self.mesh.axis_names else None
        lead = (seeds,) if self.several else ()
        each = own = PartitionSpec(*lead)
        if self.blocks and CLIENTS in self.mesh.axis_names:
            own = PartitionSpec(*lead, CLIENTS)
        names = FederatedState.__dataclass_fields__
        state: dict[str, Any] = dict.fromkeys(names, each) | {
            "controls": own,
            "optimizers": own,
            "aggregator": AggregatorState(server=each, clients=own),
            "clients": own,
        }
        return {
            "key": each,
            "state": FederatedState(**state),
            "data": client_blocks.specs(data),
            "infos": PartitionSpec(None, *lead),
        }

    def put(self, name: str, tree: PyTree) -> PyTree:
        """Puts an argument where it belongs; what is there already stays.

        Several processes must each have the same.
        """
        shardings = self.shardings(name, tree if name == "data" else None)
        if not self.mesh.is_multi_process:
            return jax.device_put(tree, shardings)
        put = lambda spec, part: jax.tree.map(lambda x: _own_part(x, spec), part)  # noqa: E731
        return jax.tree.map(put, shardings, tree)

    def shardings(self, name: str, data: PyTree = None) -> PyTree:
        """The same as `specs`, with the mesh."""
        spec = self.specs(data)[name]
        return jax.tree.map(lambda part: NamedSharding(self.mesh, part), spec)


def one_copy(x: Array) -> Array:
    """What every device holds alike, from one of them; blocks stay where they are."""
    return x.addressable_data(0) if x.is_fully_replicated else x


def placement(mesh: Mesh, key: Array, *, blocks: bool) -> Placement:
    """The placement of a run on a mesh.

    Args:
      mesh: From `make_mesh`.
      key: The run's key, or several seeds'.
      blocks: Whether the engine keeps client rows in blocks: the dense one does.
    """
    if SEEDS in mesh.axis_names and not key.ndim:
        raise ValueError(
            "mesh has an axis 'seeds', but there is one key and not several: leave the "
            "axis out, or pass the keys of several seeds."
        )
    return Placement(mesh, bool(key.ndim), blocks)


def _own_part(x: Array, sharding: NamedSharding) -> Array:
    """A process's part of what each has whole, without asking the others."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return x
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        data = _own_part(jax.random.key_data(x), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
    whole = np.asarray(x)
    return jax.make_array_from_callback(whole.shape, sharding, lambda at: whole[at])
