"""Which graph, clusters and frequency of gossip: best first, no training."""

from afga_jax.runs.main import start

if __name__ == "__main__":
    start("advise")
