"""A picture of who holds which classes."""

from typing import TYPE_CHECKING

import numpy as np

from afga_jax import checks
from afga_jax.data.assignment import Assignment
from afga_jax.data.partition import summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# More names than this on an axis overlap.
_MOST_NAMES = 20


def class_picture(
    assignment: Assignment,
    labels: np.ndarray,
    *,
    label_names: tuple[str, ...] = (),
    max_clients: int = 100,
    title: str = "",
) -> "Figure":
    """Draws clients side by side: their sizes above, their classes below.

    Args:
      assignment: Who holds which samples.
      labels: `[samples]`.
      label_names: One name per class; empty: numbers.
      max_clients: Only the first so many are drawn.
      title: Written above.

    Returns:
      A figure, not attached to any window; `figure.savefig(path)` writes it.
    """
    checks.integer("max_clients", max_clients)
    # An optional dependency, and slow to import.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    counts = summary(assignment, labels, max_clients).class_counts
    clients, classes = counts.shape
    figure = Figure(figsize=(8, 5), layout="constrained")
    above, below = figure.subplots(
        2, 1, sharex=True, gridspec_kw={"height_ratios": [1, 3]}
    )
    edges = np.arange(clients + 1) - 0.5
    above.stairs(counts.sum(axis=1), edges, fill=True, color="tab:gray")
    above.set(ylabel="samples", title=title)
    above.spines[["top", "right"]].set_visible(False)
    grid = below.imshow(counts.T, aspect="auto", cmap="Blues", vmin=0, origin="lower")
    shown = f"first {clients} of {assignment.num_clients:,}"
    below.set(
        xlabel="client" if clients == assignment.num_clients else f"client ({shown})",
        ylabel="class",
    )
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    if classes <= _MOST_NAMES:
        below.set_yticks(np.arange(classes), label_names or np.arange(classes))
    figure.colorbar(grid, ax=below, label="samples of the class")
    return figure
