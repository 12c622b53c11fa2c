"""The papers' tables and figures, each by its name."""

from afga_jax.runs.main import start

if __name__ == "__main__":
    start("paper")
