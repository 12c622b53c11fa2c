"""Trains on Fashion-MNIST as HA-Fed does: shards, a small CNN."""

from afga_jax.runs.main import start

if __name__ == "__main__":
    start("fashion_mnist")
