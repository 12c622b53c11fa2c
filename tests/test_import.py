"""`import afga_jax` waits for nothing that only some of its parts need."""

import subprocess
import sys

# Imported where they are used first. `scipy` alone loads its parts in this way, too.
HEAVY = {
    *("IPython", "PIL", "array_record", "matplotlib", "networkx", "orbax", "pandas"),
    *(
        "pooch",
        "pyarrow",
        "requests",
        "scipy.linalg",
        "scipy.optimize",
        "scipy.sparse",
        "sklearn",
    ),
    *("tensorboardX", "tensorflow", "tensorflow_datasets"),
}


def test_heavy_packages_are_not_imported():
    program = "import sys, afga_jax, afga_jax.runs.main; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "afga_jax.algorithms" in loaded
    assert not HEAVY & loaded
