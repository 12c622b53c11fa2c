"""The devices of a run: one per core on a CPU, or those of a mesh."""

import math
import os
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from afga_jax import mesh as meshes
from afga_jax.config import Config
from experiments import processes


def wanted(given: Mapping[str, Any]) -> int | None:
    """CPU devices that a user's choices ask for; None: nothing does."""
    if given.get("cpu_devices") or not given.get("mesh"):
        return given.get("cpu_devices")
    devices = math.prod(meshes.parse(given["mesh"]).values())
    return -(-devices // processes.count_of(given))


def mesh_of(config: Config, *, fill: bool = False) -> Mesh | None:
    """The mesh of a run; None: none was asked for. Several processes always have one.

    Args:
      config: The run's.
      fill: The number of seeds may be any, since copies will fill it up.

    Raises:
      ValueError: It has more devices than there are, or does not divide the work.
    """
    if config.mesh is None and not processes.are_several():
        return None
    axes = {"clients": jax.device_count()}
    if config.mesh is not None:
        axes = meshes.parse(config.mesh)
    counts = {"clients": config.num_clients}
    if not fill:
        counts["seeds"] = config.num_seeds
    return meshes.make_mesh(axes, **counts)


def use(count: int | None = None) -> None:
    """Lets JAX see that many CPU devices; call it before JAX does anything.

    XLA on CPU spreads single operations over the cores, which leaves them waiting for
    each other in small ones. With a device per core each computes another client's
    gradient. Where JAX has started already, or the number of devices is set by its own
    means (`XLA_FLAGS`, `JAX_NUM_CPU_DEVICES`), nothing is changed.

    Args:
      count: Devices; None: the cores that this process may use.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "host_platform_device_count" in flags or "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    try:
        jax.config.update("jax_num_cpu_devices", count or _cores())
    except RuntimeError:
        return


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
