"""Minimises a quadratic, or `--dataset=logistic`, `gaussians`: optimum known."""

from afga_jax.runs.main import start

if __name__ == "__main__":
    start("synthetic")
