"""The platform that programs are compiled for: the one place that asks JAX for it.

Code that is chosen while a program is traced asks here. A layer that has a form for
each platform uses `jax.lax.platform_dependent` instead, which chooses when the program
is lowered: then a machine without an accelerator can lower for one.
"""

import jax


def on_cpu() -> bool:
    """Whether programs are compiled for CPUs, which compute one client at a time.

    Returns:
      True where the devices that JAX uses by default are CPUs, False on accelerators.
    """
    return jax.default_backend() == "cpu"
