"""What a partition looks like, in words and as a picture."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from afga_jax import checks
from afga_jax.data.partition.assignment import Assignment, members
from afga_jax.data.partition.computed import EqualSizes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# More names than this on an axis overlap.
_MOST_NAMES = 20


class Summary(NamedTuple):
    """Sizes and classes of the clients; printed, a few lines for people.

    Attributes:
      num_clients: Number of clients.
      smallest: Number of samples of the smallest client.
      mean: Mean number of samples.
      largest: Number of samples of the largest client.
      class_counts: Number of samples by client and class, `[clients shown, classes]`.
    """

    num_clients: int
    smallest: int
    mean: float
    largest: int
    class_counts: np.ndarray

    @property
    def classes_per_client(self) -> float:
        """Mean number of classes that a client has samples of."""
        return float((self.class_counts > 0).sum(axis=1).mean())

    @property
    def commonest_share(self) -> float:
        """Mean share of a client's samples that are of its commonest class."""
        counts = self.class_counts
        return float((counts.max(axis=1) / counts.sum(axis=1)).mean())

    def __str__(self) -> str:
        shown, classes = self.class_counts.shape
        return (
            f"{self.num_clients:,} clients of {self.smallest:,} to {self.largest:,} "
            f"samples, {self.mean:,.1f} on average\n"
            f"{self.classes_per_client:.1f} of {classes} classes per client, the "
            f"commonest with {self.commonest_share:.0%} of the samples ({shown:,} "
            "clients)"
        )


def summary(
    assignment: Assignment, labels: np.ndarray, max_clients: int = 10_000
) -> Summary:
    """Sizes of all clients and class histograms of the first `max_clients`.

    Args:
      assignment: Who holds which samples.
      labels: Labels of the samples, `[samples]`.
      max_clients: Number of clients whose samples are counted by class.

    Returns:
      The summary.

    Example:
      >>> from afga_jax.data import partition
      >>> labels = np.repeat(np.arange(10), 60)
      >>> sizes = dict(num_shards=10, shard_size=60, shards_per_client=2)
      >>> print(summary(partition.build("shards", labels, 5, **sizes), labels))
      5 clients of 120 to 120 samples, 120.0 on average
      2.0 of 10 classes per client, the commonest with 50% of the samples (5 clients)
    """
    sizes = assignment.sizes
    # Equal sizes are one number, however many clients there are.
    sizes = [sizes.size] if isinstance(sizes, EqualSizes) else np.asarray(sizes)
    labels = np.asarray(labels)
    num_classes = int(labels.max()) + 1
    counts = [
        np.bincount(labels[members(assignment, client)], minlength=num_classes)
        for client in range(min(assignment.num_clients, max_clients))
    ]
    return Summary(
        num_clients=assignment.num_clients,
        smallest=int(np.min(sizes)),
        mean=float(np.mean(sizes)),
        largest=int(np.max(sizes)),
        class_counts=np.stack(counts),
    )


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
      labels: Labels of the samples, `[samples]`.
      label_names: One name per class; empty: the classes are named by their number.
      max_clients: Number of clients that are drawn, from the first on.
      title: Title of the figure.

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
