"""Devices: the platform that is compiled for, meshes, and where client rows lie.

Axis `clients` shares the clients of a run, axis `seeds` its seeds. Arrays with a
leading axis of clients lie in blocks: equal numbers of rows, in order, one block for
each device of the axis. Rounds are written for one device; the compiler partitions
them.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, PartitionSpec

from afga_jax.typing import PyTree

SEEDS, CLIENTS = "seeds", "clients"
AXES = (SEEDS, CLIENTS)
#: Rows in blocks, and a copy on every device.
ROWS, COPIED = PartitionSpec(CLIENTS), PartitionSpec()


def on_cpu() -> bool:
    """Whether programs are compiled for CPUs, which compute one client at a time.

    Code that is chosen while a program is traced asks here; nothing else asks JAX. A
    layer that has a form for each platform uses `jax.lax.platform_dependent` instead,
    which chooses when the program is lowered: then a machine without an accelerator can
    lower for one.
    """
    return jax.default_backend() == "cpu"


def quick_to_compile() -> dict[str, int | bool] | None:
    """Options for programs that run once in a while, like drawing and starting.

    Random bits take XLA on CPU seconds to optimise and microseconds to draw.
    """
    if not on_cpu():
        return None
    return {
        "xla_backend_optimization_level": 1,
        "xla_llvm_disable_expensive_passes": True,
    }


def blocks_of(mesh: Mesh | None) -> int:
    """Devices that share the clients.

    >>> blocks_of(None)
    1
    """
    return 1 if mesh is None else mesh.shape.get(CLIENTS, 1)


def over_blocks(
    function: Callable[..., PyTree], mesh: Mesh, in_specs: PyTree, out_specs: PyTree
) -> Callable[..., PyTree]:
    """A function of one device's block of rows as a function of all rows."""
    outer = jax.sharding.get_abstract_mesh()
    return jax.shard_map(
        function,
        # Inside another axis's `shard_map` the mesh is the one that is left.
        mesh=mesh if outer.empty else outer,
        in_specs=in_specs,
        out_specs=out_specs,
        axis_names={CLIENTS},
        # What all devices compute alike is not provably the same.
        check_vma=False,
    )


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
