"""Figures in the papers' layout: a panel for each part, curves against rounds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afga_jax.record import Run
from afga_jax.report import drawing
from afga_jax.report.results import evaluated_rounds, values
from experiments.papers.cells import Entry
from experiments.papers.declaration import Declaration
from experiments.papers.tables import Pair

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABELS = {
    "train_loss": "training loss",
    "test_accuracy": "test accuracy, %",
    "f_local": "local training loss",
    "f_global": "global training loss",
}
_WIDTH, _HEIGHT = 3.6, 3.0


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
    figure = drawing.blank(max(_WIDTH * columns, 6.0), _HEIGHT * rows + 1.1)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    labels = list(dict.fromkeys(entry.line.label for entry, _ in pairs))
    for panel, (title, metric) in zip(axes, places, strict=False):
        here = [pair for pair in pairs if pair[0].panel == title]
        for entry, run in here:
            _curve(panel, entry, run, metric, labels.index(entry.line.label))
        drawing.label_axes(panel, "round", _LABELS[metric])
        panel.set_title(title, fontsize=10)
    for panel in axes[len(places) :]:
        panel.set_visible(False)
    drawing.legend(figure)
    figure.suptitle(_heading(declaration.title, pairs), fontsize=11)
    figure.savefig(path, dpi=150)


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


def _curve(panel: "Axes", entry: Entry, run: Run, metric: str, number: int) -> None:
    scale = 100 if metric == "test_accuracy" else 1
    x, sample = evaluated_rounds(run), scale * values(run, metric)
    label = entry.line.label.replace("𝓘", r"$\mathcal{I}$")  # fonts lack the letter
    if not drawing.curve(panel, x, sample, number, label):
        return
    paper = entry.line.published
    if paper and metric == "test_accuracy" and run.config["scale"] == "paper":
        at, label = (x[-1:], [paper.accuracy]), "the paper's final accuracy"
        color = drawing.color(number)
        panel.plot(*at, "<", color=color, label=label, ms=6, clip_on=False)
