"""Trains on CIFAR-10, or `--dataset=cifar100`; the data arrives by itself."""

from afga_jax.runs.main import start

if __name__ == "__main__":
    start("cifar")
