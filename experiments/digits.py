"""Trains on scikit-learn's handwritten digits: no download, seconds on a CPU."""

from afga_jax.runs.main import start

if __name__ == "__main__":
    start("digits")
