"""A grid of runs: every flag may have several values."""

from afga_jax.runs.main import start

if __name__ == "__main__":
    start("sweep")
