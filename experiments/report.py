"""One or several runs on a page that can be sent."""

from afga_jax.runs.main import start

if __name__ == "__main__":
    start("report")
