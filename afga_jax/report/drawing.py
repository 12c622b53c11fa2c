"""What all figures are drawn with.

Without pyplot: nothing global changes, and nothing is left open.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from afga_jax.report.results import mean_and_deviation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinct also for the colour-blind; then other dashes.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", ":", "-.")
_FEW, _MANY = 4, 150
_LETTERS_PER_INCH = 11


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
      panel: Where it goes.
      x: Its x values.
      sample: `[seeds, x values]`; nothing is drawn where no mean is finite.
      number: Decides the colour and the dashes.
      label: For the legend.
      geometric: Of the logarithms, for a logarithmic axis.

    Returns:
      Whether there was anything to draw.
    """
    if geometric:
        sample = np.log(np.where(sample > 0, sample, np.nan))
    mean, deviation = mean_and_deviation(sample)
    low, high = mean - deviation, mean + deviation
    if geometric:
        mean, low, high = np.exp(mean), np.exp(low), np.exp(high)
    known = np.isfinite(mean).sum()
    if not known:
        return False
    panel.plot(
        x,
        mean,
        _DASHES[number // len(_COLORS) % len(_DASHES)],
        color=color(number),
        label=label,
        linewidth=1.8 if known < _MANY else 1.0,
        marker="o" if known < _FEW else None,
    )
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
