"""What a partition looks like: in words, in a terminal, and as a picture."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from afga_jax import checks
from afga_jax.data.partition.assignment import Assignment, members
from afga_jax.data.partition.overlap import EqualSizes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# More names than this on an axis overlap.
_MOST_NAMES = 20
# More clients than this are no wider than a pixel.
_MOST_CLIENTS = 200
# In block characters.
_SHADES = " ░▒▓█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
# Columns of the cells of all classes, of one of them, and of a bar; all fit into 80.
_CELLS, _WIDEST_CELL, _BAR = 44, 6, 8
_ROWS = 12
_QUANTILES = {
    "least": 0,
    "10 %": 10,
    "25 %": 25,
    "median": 50,
    "75 %": 75,
    "90 %": 90,
    "most": 100,
}


class Summary(NamedTuple):
    """Sizes and classes of the clients; printed, a few lines for people.

    Attributes:
      num_clients: Number of clients.
      smallest: Number of samples of the smallest client.
      mean: Mean number of samples.
      largest: Number of samples of the largest client.
      class_counts: Number of samples by client and class, `[clients shown, classes]`.
      label_counts: Number of samples of each class in the whole data set, `[classes]`.
    """

    num_clients: int
    smallest: int
    mean: float
    largest: int
    class_counts: np.ndarray
    label_counts: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """Share of each class in a client's samples, `[clients shown, classes]`."""
        return self.class_counts / self.class_counts.sum(axis=1, keepdims=True)

    @property
    def distances(self) -> np.ndarray:
        """Total variation between a client's labels and all, ½ Σ |p_c − p|, in [0, 1).

        0: they are as in the whole data set; `[clients shown]`.
        """
        whole = self.label_counts / self.label_counts.sum()
        return np.abs(self.shares - whole).sum(axis=1) / 2

    @property
    def classes_per_client(self) -> float:
        """Mean number of classes that a client has samples of."""
        return float((self.class_counts > 0).sum(axis=1).mean())

    @property
    def commonest_share(self) -> float:
        """Mean share of a client's samples that are of its commonest class."""
        counts = self.class_counts
        return float((counts.max(axis=1) / counts.sum(axis=1)).mean())

    def spread(self, number: int) -> np.ndarray:
        """Up to so many clients, evenly spaced from the least distance to the most."""
        order = np.argsort(self.distances, kind="stable")
        number = min(number, len(order))
        return order[np.linspace(0, len(order) - 1, number).astype(int)]

    def __str__(self) -> str:
        shown, classes = self.class_counts.shape
        looked_at = f"\n(classes of the first {shown:,})"
        return (
            f"{self.num_clients:,} clients of {self.smallest:,} to {self.largest:,} "
            f"samples, {self.mean:,.1f} on average\n"
            f"{self.classes_per_client:.1f} of {classes} classes per client, the "
            f"commonest with {self.commonest_share:.0%} of the samples"
            f"{looked_at if shown < self.num_clients else ''}"
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
      2.0 of 10 classes per client, the commonest with 50% of the samples
    """
    sizes = assignment.sizes
    # Equal sizes are one number, however many clients there are.
    sizes = [sizes.size] if isinstance(sizes, EqualSizes) else np.asarray(sizes)
    clients = range(min(assignment.num_clients, max_clients))
    return Summary(
        num_clients=assignment.num_clients,
        smallest=int(np.min(sizes)),
        mean=float(np.mean(sizes)),
        largest=int(np.max(sizes)),
        class_counts=class_counts(assignment, labels, clients),
        label_counts=np.bincount(np.asarray(labels)),
    )


def class_counts(
    assignment: Assignment, labels: np.ndarray, clients: Iterable[int]
) -> np.ndarray:
    """Number of samples by client and class, `[clients, classes]`.

    Args:
      assignment: Who holds which samples.
      labels: Labels of the samples, `[samples]`.
      clients: Numbers of the clients.
    """
    assignment = jax.tree.map(np.asarray, assignment)
    labels = np.asarray(labels)
    classes = int(labels.max()) + 1
    held = (labels[members(assignment, int(client))] for client in clients)
    return np.stack([np.bincount(own, minlength=classes) for own in held])


def show(
    assignment: Assignment,
    labels: np.ndarray,
    *,
    label_names: Sequence[str] = (),
    path: str | Path | None = None,
    title: str = "",
    max_clients: int = 10_000,
) -> "Figure":
    """Prints who holds which labels, in at most 80 columns, and draws it.

    Args:
      assignment: Who holds which samples.
      labels: Labels of the samples, `[samples]`.
      label_names: One name per class; empty: the classes are named by their number.
      path: Path of the picture to write; None: it is not written.
      title: Title of the figure.
      max_clients: Number of clients that are looked at, from the first on.

    Returns:
      The figure, as of `class_picture`; of many clients, 200 evenly spaced by distance.

    Example:
      >>> from afga_jax import data
      >>> labels = np.repeat(np.arange(5), 60)
      >>> held = data.partition.build("dirichlet", labels, 4, alpha=0.3)
      >>> figure = show(held, labels)
      4 clients of 14 to 139 samples, 75.0 on average
      4.2 of 5 classes per client, the commonest with 54% of the samples
      <BLANKLINE>
       client  samples          0     1     2     3     4      distance
            0      139 ████████ ░░░░░ ▓▓▓▓▓ ░░░░░ ▓▓▓▓▓ ▒▒▒▒▒      0.29
            3       80 ████▋    ░░░░░ ▒▒▒▒▒ █████ ░░░░░ ░░░░░      0.42
            1       14 ▊                    █████ ░░░░░ ▒▒▒▒▒      0.46
            2       67 ███▉     █████ ░░░░░       ░░░░░ ▓▓▓▓▓      0.50
      <BLANKLINE>
      Share of a client's samples: ░ to 16.1 %  ▒ to 32.1 %  ▓ to 48.2 %  █ to 64.3 %
      Distance: total variation between a client's labels and all, 0 to 1.
      <BLANKLINE>
                   least      10 %      25 %    median      75 %      90 %      most
      samples         14        30        54        74        95       121       139
      classes          3         3         4         4         5         5         5
      distance      0.29      0.33      0.39      0.44      0.47      0.48      0.50
    """
    checks.integer("max_clients", max_clients)
    about = summary(assignment, labels, max_clients)
    print(_drawing(about, label_names))
    figure = _figure(about, label_names, title, _MOST_CLIENTS)
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    return figure


def class_picture(
    assignment: Assignment,
    labels: np.ndarray,
    *,
    label_names: Sequence[str] = (),
    max_clients: int = 100,
    title: str = "",
) -> "Figure":
    """Draws clients side by side: sizes, distances from the whole, classes.

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
    about = summary(assignment, labels, max_clients)
    return _figure(about, label_names, title, max_clients)


def _figure(
    about: Summary, label_names: Sequence[str], title: str, most: int
) -> "Figure":
    # Slow to import.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    counts, distances = about.class_counts, about.distances
    clients, classes = counts.shape
    described = "client"
    if clients < about.num_clients:
        described = f"client (first {clients} of {about.num_clients:,})"
    if clients > most:
        rows = about.spread(most)
        counts, distances = counts[rows], distances[rows]
        described = f"{most} of {clients:,} clients, evenly spaced by distance"
    figure = Figure(figsize=(8, 6), layout="constrained")
    above, between, below = figure.subplots(
        3, 1, sharex=True, gridspec_kw={"height_ratios": [1, 1, 3]}
    )
    edges = np.arange(len(counts) + 1) - 0.5
    bars = {"fill": True, "color": "tab:gray"}
    above.stairs(counts.sum(axis=1), edges, **bars)
    above.set(ylabel="samples", title=title)
    between.stairs(distances, edges, **bars)
    between.set(ylabel="distance\nfrom all", ylim=(0, 1))
    for panel in (above, between):
        panel.spines[["top", "right"]].set_visible(False)
    grid = below.imshow(counts.T, aspect="auto", cmap="Blues", vmin=0, origin="lower")
    below.set(xlabel=described, ylabel="class")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    if classes <= _MOST_NAMES:
        below.set_yticks(np.arange(classes), label_names or np.arange(classes))
    figure.colorbar(grid, ax=below, label="samples of the class")
    return figure


def _drawing(about: Summary, label_names: Sequence[str] = ()) -> str:
    """Some clients from the nearest to all labels to the farthest, and quantiles.

    Args:
      about: Sizes and classes of the clients.
      label_names: One name per class; empty: the classes are named by their number.
    """
    shares, distances = about.shares, about.distances
    sizes, classes = about.class_counts.sum(axis=1), shares.shape[1]
    rows = about.spread(_ROWS)
    joined = -(-classes // _CELLS)
    starts = np.arange(0, classes, joined)
    cells = np.add.reduceat(shares[rows], starts, axis=1)
    width = min(_WIDEST_CELL, _CELLS // len(starts))
    names = [str(name) for name in label_names or range(classes)]
    # A line break among characters that are classes would be one here.
    heads = [" ".join(names[at].split()) or repr(names[at]) for at in starts]
    lines = [
        str(about),
        "",
        f" client  samples {'':{_BAR}} {_head(heads, width)} distance",
    ]
    for client, row in zip(rows, cells, strict=True):
        bar = _bar(sizes[client] / sizes[rows].max())
        shades = _shades(row, cells.max(), width)
        lines.append(
            f"{client:7} {sizes[client]:8,} {bar} {shades} {distances[client]:8.2f}"
        )
    return "\n".join([*lines, "", *_legend(about, len(rows), cells.max(), joined)])


def _head(names: Sequence[str], width: int) -> str:
    """Names of the classes where a cell has room for them, else the first and last."""
    if width > 2:
        return "".join(f"{name[: width - 1]:{width}}" for name in names)
    columns = width * len(names)
    return f"{names[0]} … {names[-1]}"[:columns].ljust(columns)


def _shades(shares: np.ndarray, largest: float, width: int) -> str:
    levels = np.ceil(shares / largest * (len(_SHADES) - 1)).astype(int)
    gap = " " if width > 2 else ""
    return "".join(_SHADES[level] * (width - len(gap)) + gap for level in levels)


def _bar(share: float) -> str:
    eighths = max(1, round(share * _BAR * 8))
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + _EIGHTHS[rest]).strip().ljust(_BAR)


def _legend(about: Summary, rows: int, largest: float, joined: int) -> list[str]:
    steps = np.arange(1, len(_SHADES)) / (len(_SHADES) - 1) * largest
    marks = [f"{s} to {100 * x:.3g} %" for s, x in zip(_SHADES[1:], steps, strict=True)]
    held = (about.class_counts > 0).sum(axis=1)
    figures = {
        "samples": about.class_counts.sum(axis=1),
        "classes": held,
        "distance": about.distances,
    }
    lines = [f"Share of a client's samples: {'  '.join(marks)}"]
    if joined > 1:
        lines.append(f"A column is {joined} classes, named by the first.")
    if rows < len(held):
        lines.append(f"{rows} of {len(held):,} clients, evenly spaced by distance.")
    lines += [
        "Distance: total variation between a client's labels and all, 0 to 1.",
        "",
        f"{'':8}" + "".join(f"{name:>10}" for name in _QUANTILES),
    ]
    for name, values in figures.items():
        digits = 2 if name == "distance" else 0
        found = np.percentile(values, list(_QUANTILES.values()))
        lines.append(f"{name:8}" + "".join(f"{x:10,.{digits}f}" for x in found))
    return lines
