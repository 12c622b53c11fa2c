"""Settings of every test: quick compilation, strict broadcasting, float64 if asked."""

import atexit
import gc
import os
import tempfile

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

# The same small programs are compiled again and again. Tests' processes share a folder
# of them: that of `make`, or a new one. Programs that tests start do not: some are
# killed while they write, and what JAX says of half a file is not what a user sees.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    folder = tempfile.TemporaryDirectory(prefix="programs-")
    atexit.register(folder.cleanup)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder.name
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_enable_compilation_cache", True)

# A [N, ...] tree broadcast against a [...] tree by accident is an error, not a result.
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_finish():
    """Tracing makes many small objects; what is imported is not searched again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


# A minute or two each.
LONG = ("test_same_numbers_on_four_and_eight_devices", "test_every_name_runs")


def pytest_collection_modifyitems(items):
    """What takes long begins first: at the end one process would wait for the other."""
    items.sort(key=lambda item: item.name not in LONG)


@pytest.fixture
def registry():
    """What a test registers is gone after it."""
    from afga_jax import ALGORITHMS

    before = dict(ALGORITHMS)
    yield ALGORITHMS
    ALGORITHMS.clear()
    ALGORITHMS.update(before)


@pytest.fixture
def x64():
    """Run a test in double precision."""
    with jax.enable_x64(True):
        yield
