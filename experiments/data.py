"""The papers' data sets on this machine: list, fetch, check."""

from afga_jax.runs.main import start

if __name__ == "__main__":
    start("data")
