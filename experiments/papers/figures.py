"""Figures in the papers' layout: a panel for each part, curves against rounds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from afga_jax.report.results import evaluated_rounds, mean_and_deviation, values
from experiments.papers.declaration import Declaration
from experiments.papers.tables import Pair

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, then other dashes: eight methods must stay apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", ":")
_LABELS = {
    "train_loss": "training loss",
    "test_accuracy": "test accuracy, %",
    "f_local": "local training loss",
    "f_global": "global training loss",
}
_WIDTH, _HEIGHT = 3.6, 3.0
_LETTERS_PER_INCH = 11


def draw(declaration: Declaration, pairs: Sequence[Pair], path: Path) -> None:
    """Draws the runs of a table or a figure.

    Lines are means over seeds, bands one standard deviation. Triangles at the end are
    the paper's final accuracies, where the runs have the paper's size.

    Args:
      declaration: Which.
      pairs: Lines with their runs.
      path: Of the picture.
    """
    titles = list(dict.fromkeys(entry.panel for entry, _ in pairs))
    places = [(title, metric) for title in titles for metric in declaration.metrics]
    columns = min(declaration.columns, len(places))
    rows = -(-len(places) // columns)
    width = max(_WIDTH * columns, 6.0)
    figure = blank(width, _HEIGHT * rows + 1.1)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    styles = _styles(pairs)
    for panel, (title, metric) in zip(axes, places, strict=False):
        here = [pair for pair in pairs if pair[0].panel == title]
        for entry, run in here:
            _curve(panel, entry, run, metric, styles[entry.line.label])
        label_axes(panel, "round", _LABELS[metric])
        panel.set_title(title, fontsize=10)
    for panel in axes[len(places) :]:
        panel.set_visible(False)
    legend(figure, width)
    figure.suptitle(_heading(declaration.title, pairs), fontsize=11)
    figure.savefig(path, dpi=150)


def blank(width: float, height: float) -> "Figure":
    """An empty figure; pyplot's global state is left alone."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def label_axes(panel: "Axes", across: str, up: str) -> None:
    """Names the axes of a panel and draws its grid."""
    from matplotlib.ticker import MaxNLocator

    panel.set_xlabel(across)
    panel.set_ylabel(up)
    panel.grid(color="0.9", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    if across == "round":
        panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def legend(figure: "Figure", width: float) -> None:
    """Below the panels, never over the curves."""
    shown: dict[str, object] = {}
    for panel in figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    longest = max(map(len, shown), default=1) + 6
    figure.legend(
        shown.values(),
        shown.keys(),
        loc="outside lower center",
        ncols=max(1, min(len(shown), int(width * _LETTERS_PER_INCH / longest))),
        fontsize=9,
        frameon=False,
    )


def _heading(title: str, pairs: Sequence[Pair]) -> str:
    """The title, and a second line where the runs are not of the paper's size."""
    scales = sorted({run.config["scale"] for _, run in pairs} - {"paper"})
    if not scales:
        return title
    names = ", ".join(sorted({_subject(run.config) for _, run in pairs}))
    seeds = max(run.config["num_seeds"] for _, run in pairs)
    many = "one seed" if seeds == 1 else f"{seeds} seeds"
    second = f"--scale={scales[0]}: {names}, {many}; not the paper's size"
    return f"{title}\n{second}"


def _subject(config: Mapping[str, Any]) -> str:
    """The data set and, where its title in the paper says another size, the model."""
    if config["model"] != "convmixer":
        return config["dataset"]
    return f"{config['dataset']}, ConvMixer-{config['width']}-{config['depth']}"


def _styles(pairs: Sequence[Pair]) -> dict[str, tuple[str, str]]:
    """A colour and dashes for each label, the same in all panels."""
    labels = list(dict.fromkeys(entry.line.label for entry, _ in pairs))
    return {
        label: (COLORS[n % len(COLORS)], _DASHES[n // len(COLORS) % len(_DASHES)])
        for n, label in enumerate(labels)
    }


def _curve(panel: "Axes", entry, run, metric: str, style: tuple[str, str]) -> None:
    color, dashes = style
    scale = 100 if metric == "test_accuracy" else 1
    x, sample = evaluated_rounds(run), scale * values(run, metric)
    mean, deviation = mean_and_deviation(sample)
    if not np.isfinite(mean).any():
        return
    mark = "o" if len(x) < 4 else None
    label = entry.line.label.replace("𝓘", r"$\mathcal{I}$")  # fonts lack the letter
    panel.plot(x, mean, dashes, color=color, label=label, marker=mark, ms=3)
    if len(sample) > 1:
        low, high = mean - deviation, mean + deviation
        panel.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
    number = entry.line.published
    if number and metric == "test_accuracy" and run.config["scale"] == "paper":
        at, label = (x[-1:], [number.accuracy]), "the paper's final accuracy"
        panel.plot(*at, "<", color=color, label=label, ms=6, clip_on=False)
