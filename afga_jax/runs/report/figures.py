"""Figures: one run's curves, several runs against what they cost, and their parts.

Without pyplot: nothing global changes, and nothing is left open.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from afga_jax.runs.record import Run
from afga_jax.runs.report import results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinct also for the colour-blind; then other dashes.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", ":", "-.")
_FEW, _MANY = 4, 150
_LETTERS_PER_INCH = 11
_WIDE_RANGE = 20


class _Axis(NamedTuple):
    """What a panel has on its x axis."""

    metric: str
    label: str
    unit: str | None = None


#: What curves are drawn against.
AXES = (
    _Axis("round", "round"),
    _Axis("gradients_total", "gradients computed", ""),
    _Axis("bytes_total", "bytes sent", "B"),
    _Axis("hours", "simulated time, hours"),
)


def comparison(runs: Sequence[Run], path: str | Path) -> None:
    """Test accuracy of several runs against rounds, gradients, bytes and hours.

    Lines are means over seeds, bands one standard deviation; dotted lines are the
    papers' final accuracies, for runs in the papers' settings.

    Args:
      runs: The runs, from `afga_jax.runs.record.read`.
      path: The picture's file, whose ending decides the format.
    """
    figure = blank(10, 7.5)
    panels = figure.subplots(2, 2, sharey=True).flat
    outcomes = results.results(runs)
    metric, scale, label = _quality(runs)
    for panel, axis in zip(panels, AXES, strict=True):
        spans = []
        for number, run in enumerate(runs):
            x = _along(run, axis.metric)
            if len(x) and np.isfinite(x).all() and x[-1] > 0:
                y = scale * results.values(run, metric)
                curve(panel, x, y, number, outcomes[number].label)
                _paper(panel, outcomes[number], number)
                spans.append(x[-1])
        _decorate(panel, axis, spans)
    for panel in (figure.axes[0], figure.axes[2]):
        panel.set_ylabel(label)
    legend(figure)
    _title(figure, runs)
    _save(figure, path)


def curves(run: Run, path: str | Path) -> None:
    """One run: accuracy, losses, what is uploaded, and accuracy against time.

    Args:
      run: The run, from `afga_jax.runs.record.read`.
      path: The picture's file, whose ending decides the format.
    """
    figure = blank(10, 7)
    first, second, third, fourth = figure.subplots(2, 2).flat
    rounds = results.evaluated_rounds(run).astype(float)
    metric, scale, label = _quality([run])
    quality = scale * results.values(run, metric)
    curve(first, rounds, quality, 0, label)
    target = run.config.get("target")
    if target is not None and metric == "test_accuracy":
        first.axhline(100 * target, color="0.4", linestyle="--", linewidth=1)
        near = {"xytext": (0, 3), "textcoords": "offset points"}
        look = {"xycoords": ("axes fraction", "data"), "color": "0.3", "fontsize": 8}
        where = (0.01, 100 * target)
        first.annotate(f"target {100 * target:g} %", where, **near, **look)
    for number, name in enumerate(("train_loss", "test_loss")):
        title = name.replace("_", " ")
        curve(second, rounds, results.values(run, name), number, title)
    moves = {"delta_norm": "‖Δ‖", "spread": "spread of the uploads, mean ‖Δᵢ − Δ‖²"}
    for number, (name, text) in enumerate(moves.items()):
        curve(third, rounds, results.values(run, name), number, text, geometric=True)
    shown = {first: label, second: "loss", third: "change of the model"}
    for panel, up in shown.items():
        _decorate(panel, AXES[0], [], up)
    for panel in (second, third):
        if panel.lines:
            panel.legend(frameon=False)
    if third.lines:
        third.set_yscale("log")
    curve(fourth, _along(run, "hours"), quality, 0, label)
    _decorate(fourth, AXES[3], [], label)
    _title(figure, [run])
    _save(figure, path)


def blank(width: float, height: float) -> "Figure":
    """An empty figure, in inches."""
    # Half a second that a run should not wait for at its start.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def color(number: int) -> str:
    """The colour of the curve of that number."""
    return _COLORS[number % len(_COLORS)]


def curve(
    panel: "Axes",
    x: np.ndarray,
    sample: np.ndarray,
    number: int,
    label: str,
    *,
    geometric: bool = False,
) -> bool:
    """The mean over seeds and a band of one standard deviation.

    Args:
      panel: The axes to draw on.
      x: The curve's x values.
      sample: `[seeds, x values]`; nothing is drawn where no mean is finite.
      number: The curve's number, which decides its colour and dashes.
      label: The curve's name in the legend.
      geometric: Whether mean and deviation are of the logarithms, for such an axis.

    Returns:
      Whether there was anything to draw.
    """
    if geometric:
        sample = np.log(np.where(sample > 0, sample, np.nan))
    mean, deviation = results.mean_and_deviation(sample)
    lines = (mean, mean - deviation, mean + deviation)
    mean, low, high = map(np.exp, lines) if geometric else lines
    known = np.isfinite(mean).sum()
    if not known:
        return False
    dashes = _DASHES[number // len(_COLORS) % len(_DASHES)]
    width, marker = 1.8 if known < _MANY else 1.0, "o" if known < _FEW else None
    panel.plot(x, mean, dashes, c=color(number), label=label, lw=width, marker=marker)
    if len(sample) > 1:
        panel.fill_between(x, low, high, color=color(number), alpha=0.18, linewidth=0)
    return True


def label_axes(panel: "Axes", across: str, up: str = "") -> None:
    """Names the axes of a panel and draws its grid."""
    from matplotlib.ticker import MaxNLocator

    panel.set_xlabel(across)
    panel.set_ylabel(up)
    panel.grid(color="0.9", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    if across == "round":
        locator = MaxNLocator(steps=[1, 2, 5, 10], integer=True)
        panel.xaxis.set_major_locator(locator)


def legend(figure: "Figure") -> None:
    """Below the panels, never over the curves; a label of several panels once."""
    shown: dict[str, Any] = {}
    for panel in figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    if not shown:
        return
    longest = max(map(len, shown))
    letters = _LETTERS_PER_INCH * figure.get_figwidth()
    figure.legend(
        shown.values(),
        shown.keys(),
        loc="outside lower center",
        ncols=max(1, min(len(shown), int(letters / (longest + 8)))),
        fontsize=8 if longest > letters / 2 else 9,
        frameon=False,
    )


def shared(runs: Sequence[Run]) -> str:
    """What all runs share, as a title."""
    first = runs[0].config if runs else {}
    same = {
        name: value
        for name, value in first.items()
        if all(run.config.get(name) == value for run in runs) and value is not None
    }
    seeds = same.get("num_seeds", 1)
    parts = [
        same.get("algo") if len(runs) == 1 else None,
        same.get("dataset"),
        same.get("model"),
        f"{same['num_clients']} clients" if "num_clients" in same else None,
        _at_a_time(same),
        f"mean ± std of {seeds} seeds" if seeds > 1 else None,
    ]
    return ", ".join(part for part in parts if part)


def _quality(runs: Sequence[Run]) -> tuple[str, float, str]:
    """What the y axis shows: accuracy, or the loss for tasks without one."""
    if any(np.isfinite(results.values(run, "test_accuracy")).any() for run in runs):
        return "test_accuracy", 100.0, "test accuracy, %"
    return "test_loss", 1.0, "test loss"


def _along(run: Run, metric: str) -> np.ndarray:
    """The x values: rounds, or the mean over seeds of what was spent."""
    if metric == "round":
        return results.evaluated_rounds(run).astype(float)
    return results.mean_and_deviation(results.values(run, metric))[0]


def _decorate(panel: "Axes", axis: _Axis, spans: list[float], up: str = "") -> None:
    from matplotlib.ticker import EngFormatter

    label_axes(panel, axis.label, up)
    if spans and max(spans) > _WIDE_RANGE * min(spans):
        # Otherwise the cheapest run is a vertical line.
        panel.set_xscale("log")
    elif panel.lines:
        panel.set_xlim(left=0)
    if axis.unit is not None:
        panel.xaxis.set_major_formatter(EngFormatter(unit=axis.unit))


def _paper(panel: "Axes", result: results.RunResult, number: int) -> None:
    if result.paper is not None and result.as_in_paper:
        height, label = result.paper.accuracy, f"{result.label}, paper's final"
        panel.axhline(height, c=color(number), label=label, ls=":", lw=1.2)


def _at_a_time(config: Mapping[str, Any]) -> str | None:
    """How many clients are asked to compute at every step."""
    clients, share = config.get("num_clients"), config.get("participation")
    active = config.get("active")
    if active is None and clients and share:
        active = max(1, round(share * clients))
    return f"{active} of them at a time" if active and active != clients else None


def _title(figure: "Figure", runs: Sequence[Run]) -> None:
    stand_in = any(results.stands_in(run) for run in runs)
    text = shared(runs) + (f"\n{results.STAND_IN}" if stand_in else "")
    figure.suptitle(text, color="#B00020" if stand_in else "black", fontsize=12)


def _save(figure: "Figure", path: str | Path) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
