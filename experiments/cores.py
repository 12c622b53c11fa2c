"""One device per core, so that clients can be computed side by side on a CPU."""

import os

import jax


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
