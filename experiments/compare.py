"""Several runs side by side: one table, one figure."""

from afga_jax.runs.main import start

if __name__ == "__main__":
    start("compare")
