"""What can be looked at in a browser: a round's explorer and runs' reports."""

from afga_jax.runs.pages.explorer import explore
from afga_jax.runs.pages.page import Page
from afga_jax.runs.pages.run_report import report

__all__ = ["Page", "explore", "report"]
