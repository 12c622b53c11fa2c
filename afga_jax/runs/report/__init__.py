"""What runs look like side by side: tables and figures.

Accuracies are in percent; the final one of a seed is the mean of its last five rounds.
"""

from afga_jax.runs.report.figures import comparison, curves, shared
from afga_jax.runs.report.results import STAND_IN, cautions, ranking, stands_in
from afga_jax.runs.report.tables import table

__all__ = [
    "STAND_IN",
    "cautions",
    "comparison",
    "curves",
    "ranking",
    "shared",
    "stands_in",
    "table",
]
