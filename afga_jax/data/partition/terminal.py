"""A partition in block characters: who holds which labels, in 80 columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from afga_jax.data.partition.picture import Summary

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


def drawing(about: "Summary", label_names: Sequence[str] = ()) -> str:
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


def _legend(about: "Summary", rows: int, largest: float, joined: int) -> list[str]:
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
