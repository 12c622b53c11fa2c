"""Looks into a round: a page of who computes, mixes and uploads."""

from afga_jax.runs.main import start

if __name__ == "__main__":
    start("explore")
