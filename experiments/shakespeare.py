"""Predicts the next character of Shakespeare's roles, dealt to clients."""

from afga_jax.runs.main import start

if __name__ == "__main__":
    start("shakespeare")
