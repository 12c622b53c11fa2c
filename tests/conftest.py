"""Settings of every test: quick compilation, strict broadcasting, float64 if asked."""

import os

import jax
import pytest

# Tests compile hundreds of tiny programs and run each for microseconds. The second
# group is known to the tested version; XLA stops at a flag that it does not know.
QUICK = ["--xla_backend_optimization_level=0"]
if jax.__version_info__[:2] == (0, 10):
    QUICK += [
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",  # other tests need the cores
    ]
os.environ.setdefault("XLA_FLAGS", " ".join(QUICK))

# A [N, ...] tree broadcast against a [...] tree by accident is an error, not a result.
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    """Run a test in double precision."""
    with jax.enable_x64(True):
        yield
