"""Settings of every test: strict broadcasting, and float64 where a test asks for it."""

import os

# Tests compile hundreds of tiny programs and run each for microseconds.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
import pytest

# A [N, ...] tree broadcast against a [...] tree by accident is an error, not a result.
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    """Run a test in double precision."""
    with jax.enable_x64(True):
        yield
