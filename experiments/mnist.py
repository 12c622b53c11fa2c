"""Trains on MNIST as FedCluster does: a major class each, clusters in turns."""

from afga_jax.runs.main import start

if __name__ == "__main__":
    start("mnist")
