"""The span engine: only gradients that an upload sees, each in one slot."""

from afga_jax.rounds.span.engine import reached, reason_against, run_cycle

__all__ = ["reached", "reason_against", "run_cycle"]
