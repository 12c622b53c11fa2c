"""What a module of the tests prints where JAX has several devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def printed(module, count, function="main"):
    """The JSON that a module's function prints on so many devices.

    In a process of its own: the number of devices is fixed when JAX starts.
    """
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}; {module}.{function}()"],
        cwd=TESTS,
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
