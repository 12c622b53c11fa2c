"""A figure of a history: accuracy, losses, delta, costs and, if measured, clients."""

from typing import TYPE_CHECKING

import numpy as np

from afga_jax.training.client_metrics import ClientMetrics
from afga_jax.training.history import History
from afga_jax.training.progress import in_notebook

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's blue and orange, distinct also for the colour-blind.
_TEST, _TRAIN = "#0072B2", "#D55E00"
# Quantiles of the clients at the ends of a band, from the widest, with its shade: bands
# that are seen through each other would not look as their legend does.
_BANDS = {(0, 100): "#DCEAF4", (10, 90): "#B5D4E9", (25, 75): "#86B9DC"}


def curves(history: History, clients: ClientMetrics | None, *, title: str) -> "Figure":
    """Draws a history; means over seeds, with bands from the lowest to the highest.

    Args:
      history: What was measured.
      clients: Every client's metrics after the last round; None: two panels less.
      title: The text above the panels.
    """
    # Not imported with the package: a program that draws nothing need not wait for it.
    # Importing pyplot also tells a notebook how a figure is shown.
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    columns = 2 if clients is None else 3
    # A notebook shows a figure of pyplot by itself, and once more as a cell's value.
    make = Figure if in_notebook() else pyplot.figure
    figure = make(figsize=(5 * columns, 7), layout="constrained")
    panels = figure.subplots(2, columns)
    quality, scale, name = _quality(history)
    _line(panels[0, 0], history.round, scale * quality, _TEST, name)
    _label(panels[0, 0], "round", name)
    _line(panels[0, 1], history.round, history.train_loss, _TRAIN, "training")
    _line(panels[0, 1], history.round, history.test_loss, _TEST, "test")
    panels[0, 1].legend(frameon=False)
    _label(panels[0, 1], "round", "loss")
    _line(panels[1, 0], history.round, history.delta_norm, _TRAIN, "‖Δ‖")
    if np.nanmin(history.delta_norm) > 0:
        panels[1, 0].set_yscale("log")
    _label(panels[1, 0], "round", "norm of the aggregated delta, ‖Δ‖")
    _against_bytes(panels[1, 1], history, scale * quality, name)
    if clients is not None:
        metric = "accuracy" if "accuracy" in clients.values else "loss"
        _quantiles(panels[0, 2], history, metric)
        _histogram(panels[1, 2], clients, metric)
    figure.suptitle(title, fontsize=12)
    return figure


def _quality(history: History) -> tuple[np.ndarray, float, str]:
    """What a model is judged by: the first of these that was measured."""
    if "accuracy" in history.test_metrics:
        return history.test_accuracy, 100.0, "test accuracy, %"
    if history.evaluated.any():
        return history.test_loss, 1.0, "test loss"
    if "accuracy" in history.train_metrics:
        return history.train_metrics["accuracy"], 100.0, "training accuracy, %"
    return history.train_loss, 1.0, "training loss"


def _line(panel: "Axes", x: np.ndarray, y: np.ndarray, color: str, label: str) -> None:
    """The mean over seeds, and a band from the lowest to the highest of them."""
    y = y.reshape(len(y), -1)
    known = np.isfinite(y).all(1)
    if not known.any():
        return
    x, y = x[known], y[known]
    marker = "o" if len(x) <= 30 else None
    panel.plot(x, y.mean(1), color=color, label=label, marker=marker, markersize=3.5)
    if y.shape[1] > 1:
        panel.fill_between(x, y.min(1), y.max(1), color=color, alpha=0.18, linewidth=0)


def _against_bytes(
    panel: "Axes", history: History, quality: np.ndarray, name: str
) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    sent = np.cumsum(history.bytes.reshape(len(history.round), -1).mean(1))
    _line(panel, sent, quality, _TEST, name)
    _label(panel, "bytes sent", name)
    # With their units the numbers are long.
    panel.xaxis.set_major_locator(MaxNLocator(5))
    panel.xaxis.set_major_formatter(EngFormatter(unit="B"))


def _quantiles(panel: "Axes", history: History, metric: str) -> None:
    """How the clients' metrics spread, from round to round."""
    scale = 100.0 if metric == "accuracy" else 1.0

    def level(percent: int) -> np.ndarray:
        values = history.clients[f"client_{metric}_q{percent}"]
        return scale * values.reshape(len(values), -1).mean(1)[known]

    worst = history.clients[f"worst_tenth_{metric}"]
    known = np.isfinite(worst.reshape(len(worst), -1)).all(1)
    rounds = history.round[known]
    for (low, high), shade in _BANDS.items():
        label = "all clients" if high == 100 else f"{low} to {high} %"
        band = (level(low), level(high))
        panel.fill_between(rounds, *band, color=shade, linewidth=0, label=label)
    panel.plot(rounds, level(50), color=_TEST, label="median")
    _line(panel, history.round, scale * worst, _TRAIN, "worst tenth")
    panel.legend(frameon=False, fontsize=8)
    _label(panel, "round", _unit(metric))


def _histogram(panel: "Axes", clients: ClientMetrics, metric: str) -> None:
    scale = 100.0 if metric == "accuracy" else 1.0
    counts, edges = clients.histogram(metric, bins=15)
    counts = counts.reshape(-1, counts.shape[-1]).mean(0)
    panel.stairs(counts, scale * edges, fill=True, color=_BANDS[25, 75])
    _label(panel, f"{_unit(metric)}, after the last round", "clients")


def _unit(metric: str) -> str:
    return "accuracy of a client, %" if metric == "accuracy" else "loss of a client"


def _label(panel: "Axes", across: str, up: str) -> None:
    panel.set_xlabel(across)
    panel.set_ylabel(up)
    panel.grid(color="0.9", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    if across in ("round", "bytes sent"):
        panel.set_xlim(left=0)
