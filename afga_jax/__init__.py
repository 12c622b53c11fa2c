"""afga-jax."""
