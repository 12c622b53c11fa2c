"""Where a run's arrays live: on one device, or spread over a mesh of them.

Axis `clients` of a mesh shares the clients of a run, axis `seeds` its seeds. With the
dense engine each device holds a block of the client rows; with the span engine the
devices share the lanes of each slot, and all have a copy of the state.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from afga_jax import dealing
from afga_jax.recipe import FederatedState
from afga_jax.typing import Array, PyTree

SEEDS, CLIENTS = "seeds", "clients"
AXES = (SEEDS, CLIENTS)


class Placement(NamedTuple):
    """How the arguments of a program lie on a mesh.

    Attributes:
      mesh: Of devices.
      axis: The axis that shares a round's clients; None: none does.
      seeds: The axis that shares the seeds; None: none does.
      several: Whether arrays have an axis of seeds at all.
      blocks: Whether the clients' rows of the state lie in blocks along `axis`.
    """

    mesh: Mesh
    axis: str | None
    seeds: str | None = None
    several: bool = False
    blocks: bool = False

    def specs(self, data: PyTree = None) -> dict[str, PyTree]:
        """Of the key, the state, the data, the plans and the diagnostics, by name.

        Args:
          data: The clients'; those that `dealing.deal` gives lie in blocks.
        """
        lead = (self.seeds,) if self.several else ()
        each = own = PartitionSpec(*lead)
        if self.blocks:
            own = PartitionSpec(*lead, self.axis)
        names = FederatedState.__dataclass_fields__
        state: dict[str, Any] = dict.fromkeys(names, each) | {
            "controls": own,
            "clients": own,
        }
        return {
            "key": each,
            "state": FederatedState(**state),
            "data": dealing.specs(data),
            "plans": PartitionSpec(None, *lead),
            "infos": PartitionSpec(None, *lead),
        }

    def put(self, name: str, tree: PyTree) -> PyTree:
        """Puts an argument where it belongs; what is there already stays.

        Several processes must each have the same.
        """
        shardings = self.shardings(name, tree if name == "data" else None)
        if not self.mesh.is_multi_process:
            return jax.device_put(tree, shardings)
        put = lambda one, part: jax.tree.map(lambda x: _own_part(x, one), part)  # noqa: E731
        return jax.tree.map(put, shardings, tree)

    def shardings(self, name: str, data: PyTree = None) -> PyTree:
        """The same as `specs`, with the mesh."""
        spec = self.specs(data)[name]
        return jax.tree.map(lambda one: NamedSharding(self.mesh, one), spec)


def one_copy(x: Array) -> Array:
    """What every device holds alike, from one of them; blocks stay where they are."""
    return x.addressable_data(0) if x.is_fully_replicated else x


def parse(text: str) -> dict[str, int]:
    """The axes of a mesh and their sizes from what a user writes.

    >>> parse("seeds:2,clients:4")
    {'seeds': 2, 'clients': 4}
    """
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, _, count = part.strip().partition(":")
        if name not in AXES or name in axes:
            raise ValueError(
                f"mesh = {text!r} names the axis {name!r}, but it must name each of "
                f"{' and '.join(AXES)} at most once: for example seeds:2,clients:4."
            )
        if not count.isdigit() or int(count) < 1:
            raise ValueError(
                f"mesh = {text!r} gives {name} {count!r} devices, but it must be a "
                f"whole number >= 1: for example {name}:4."
            )
        axes[name] = int(count)
    return axes


def make_mesh(
    axes: Mapping[str, int], devices: list[Any] | None = None, **counts: int
) -> Mesh:
    """A mesh of some devices, or what is wrong with it.

    Args:
      axes: Their sizes by name, as `parse` gives them.
      devices: To take from; None: all that JAX has.
      **counts: How many clients and seeds there are; each axis must divide its own.
    """
    devices = jax.devices() if devices is None else devices
    wanted = math.prod(axes.values())
    shown = ",".join(f"{name}:{size}" for name, size in axes.items())
    if wanted > len(devices):
        raise ValueError(
            f"mesh = {shown!r} takes {wanted} devices, but there are {len(devices)}: "
            "take a smaller mesh, or on a CPU give it more with --cpu_devices."
        )
    if jax.process_count() > 1 and (wanted < len(devices) or "seeds" in axes):
        raise ValueError(
            f"mesh = {shown!r}, but {jax.process_count()} processes must share the "
            f"clients on all their {len(devices)} devices: leave mesh out, or take "
            f"clients:{len(devices)} (seeds are runs of their own)."
        )
    for name, size in axes.items():
        if (count := counts.get(name)) is not None and count % size:
            fits = max(n for n in range(1, size + 1) if count % n == 0)
            raise ValueError(
                f"mesh = {shown!r} does not divide the {count} {name} evenly, but it "
                f"must: take {name}:{fits}, or {count - count % size or size} {name} "
                "(padding would change what is saved)."
            )
    # Axes of one size are there, too: the same program serves them.
    return jax.make_mesh(
        tuple(axes.values()),
        tuple(axes),
        axis_types=(AxisType.Auto,) * len(axes),
        devices=devices[:wanted],
    )


def placement(mesh: Mesh, key: Array, *, blocks: bool) -> Placement:
    """Of a run on a mesh.

    Args:
      mesh: From `make_mesh`.
      key: The run's, or several seeds'.
      blocks: Whether the engine keeps client rows in blocks: the dense one does.
    """
    axis = CLIENTS if CLIENTS in mesh.axis_names else None
    seeds = SEEDS if SEEDS in mesh.axis_names else None
    if seeds and not key.ndim:
        raise ValueError(
            "mesh has an axis 'seeds', but there is one key and not several: leave the "
            "axis out, or pass the keys of several seeds."
        )
    several = bool(key.ndim)
    return Placement(mesh, axis, seeds, several, blocks and axis is not None)


def _own_part(x: Array, sharding: NamedSharding) -> Array:
    """A process's part of what each has whole, without asking the others."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return x
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        data = _own_part(jax.random.key_data(x), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
    whole = np.asarray(x)
    return jax.make_array_from_callback(whole.shape, sharding, lambda at: whole[at])
