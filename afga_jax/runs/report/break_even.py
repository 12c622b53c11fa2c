"""Tables and a figure of what methods cost by the prices of links (`report.prices`)."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from afga_jax.runs.report import figures, prices
from afga_jax.runs.report.prices import BANDWIDTH, KINDS, LATENCY, Ledger, Load, Prices
from afga_jax.runs.report.tables import NOTHING, csv_lines, markdown

_NEVER, _ALWAYS = "never", "always"
# What the ratio of prices is, along an axis.
_ACROSS = {
    LATENCY: "seconds of a message between clients / to the server",
    BANDWIDTH: "speed of a server's link / of one between clients",
}


def tables(methods: Sequence[Ledger], target: float, asked: Prices) -> str:
    """Hours by ratio and break-even, for both kinds of prices, in Markdown.

    Args:
      methods: What each method sent.
      target: The accuracy to reach, from 0 to 1.
      asked: The prices, and the range of their ratio.
    """
    parts = []
    for kind in KINDS:
        head, *body = overtaking(methods, target, kind)
        parts += [
            f"### Hours to {100 * target:g} % by {kind}: {_server(kind, asked)}",
            _hours(methods, target, kind, asked),
            markdown(head, body),
        ]
    parts.append(
        "r is the price of a link between clients over that of one to the server; at "
        "r = 0 messages between clients are free. Rounds are the first evaluated ones "
        "at the target, hours their mean over seeds; – where a seed does not get "
        "there. Below the break-even a method with gossip is cheaper than the one "
        "without: never, even at r = 0; always, because the other does not get there. "
        "In brackets are the lowest and the highest over all pairs of seeds."
    )
    return "\n\n".join(parts) + "\n"


def csv_table(methods: Sequence[Ledger], target: float, asked: Prices) -> str:
    """The same for programs: a line for each kind of price, method and ratio."""
    rows = []
    for kind, method in itertools.product(KINDS, methods):
        spent = prices.reached(method, target)
        if spent is None:
            continue
        load = prices.mean(spent.loads[kind])
        for ratio in _columns(kind, asked):
            rows.append(
                {
                    "links": kind,
                    "method": method.label,
                    "target": target,
                    "seeds": len(spent.rounds),
                    "round": float(np.mean(spent.rounds)),
                    "server_load": load.server,
                    "client_load": load.client,
                    "ratio": ratio,
                    "hours": load.hours(ratio, asked.server(kind)),
                }
            )
    return csv_lines(rows)


def figure(
    methods: Sequence[Ledger], target: float, asked: Prices, path: str | Path
) -> None:
    """Hours to the target against the ratio, and which method is cheapest where.

    Args:
      methods: What each method sent.
      target: The accuracy to reach, from 0 to 1.
      asked: The prices, and the range of their ratio.
      path: The picture's file, whose ending decides the format.
    """
    picture = figures.blank(10, 7.4)
    panels = picture.subplots(2, 2, sharex=True)
    for column, kind in enumerate(KINDS):
        _lines(panels[0, column], methods, target, kind, asked)
        _map(panels[1, column], methods, kind, asked)
        for panel in panels[:, column]:
            panel.axvline(asked.ratio(kind), color="0.2", linestyle=":", linewidth=1.2)
    panels[0, 0].set_ylabel(f"hours to {100 * target:g} %")
    panels[1, 0].set_ylabel("accuracy to reach, %")
    figures.legend(picture)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=110)


def overtaking(methods: Sequence[Ledger], target: float, kind: str) -> list[list[str]]:
    """Rows of the ratios below which methods with gossip are cheaper, head first.

    Args:
      methods: What each method sent.
      target: The accuracy to reach, from 0 to 1.
      kind: The kind of prices, one of `prices.KINDS`.
    """
    without = [method for method in methods if not method.gossips]
    body = [
        [method.label, *(_overtakes(method, other, target, kind) for other in without)]
        for method in methods
        if method.gossips
    ]
    return [["break-even r against", *(method.label for method in without)], *body]


def loads(methods: Sequence[Ledger], target: float, kind: str) -> dict[int, Load]:
    """Mean loads of the methods that reach the target, by their number.

    Args:
      methods: What each method sent.
      target: The accuracy to reach, from 0 to 1.
      kind: The kind of prices, one of `prices.KINDS`.
    """
    reached = {n: prices.reached(method, target) for n, method in enumerate(methods)}
    return {n: prices.mean(at.loads[kind]) for n, at in reached.items() if at}


def _server(kind: str, asked: Prices) -> str:
    if kind == LATENCY:
        return f"{asked.server_seconds:g} s a message to the server"
    return f"{asked.server_speed:g} Mbit/s to the server"


def _columns(kind: str, asked: Prices) -> list[float]:
    """Free links, round ratios in the range, and the one that is asked for."""
    low, high, own = asked.lowest_ratio, asked.highest_ratio, asked.ratio(kind)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = [float(f"{digit}e{power}") for power in powers for digit in (1, 3)]
    # 1.2/12 is not quite 0.1, and need not have a column beside it.
    inside = [r for r in steps if low <= r <= high and not math.isclose(r, own)]
    return sorted({0.0, low, high, own, *inside})


def _hours(methods: Sequence[Ledger], target: float, kind: str, asked: Prices) -> str:
    ratios = _columns(kind, asked)
    unit = "messages" if kind == LATENCY else "MB"
    head = ["", "round", f"server {unit}", f"client {unit}", *map(_short, ratios)]
    table = np.full((len(methods), len(ratios)), np.inf)
    names = []
    for row, method in enumerate(methods):
        spent = prices.reached(method, target)
        if spent is None:
            last = f"> {method.rounds[-1]}"
            names.append([method.label, last, NOTHING, NOTHING])
            continue
        load = prices.mean(spent.loads[kind])
        scale = 1.0 if kind == LATENCY else 1e-6
        each = [f"{scale * amount:,.0f}" for amount in load]
        names.append([method.label, f"{np.mean(spent.rounds):.0f}", *each])
        table[row] = [load.hours(ratio, asked.server(kind)) for ratio in ratios]
    least = table.min(0)
    body = [
        [*name, *map(_cell, row, row == least)]
        for name, row in zip(names, table, strict=True)
    ]
    return markdown(head, body)


def _cell(hours: float, cheapest: bool) -> str:
    if not np.isfinite(hours):
        return NOTHING
    return f"**{hours:.3g}**" if cheapest else f"{hours:.3g}"


def _overtakes(gossip: Ledger, baseline: Ledger, target: float, kind: str) -> str:
    ours = prices.reached(gossip, target)
    theirs = prices.reached(baseline, target)
    if ours is None:
        return NOTHING if theirs is None else _NEVER
    if theirs is None:
        return _ALWAYS
    pairs = itertools.product(ours.loads[kind], theirs.loads[kind])
    ratios = [prices.break_even(*pair) for pair in pairs]
    means = (prices.mean(ours.loads[kind]), prices.mean(theirs.loads[kind]))
    middle = _ratio(prices.break_even(*means))
    if len({middle, *map(_ratio, ratios)}) == 1:
        return middle
    return f"{middle} ({_ratio(min(ratios))} to {_ratio(max(ratios))})"


def _ratio(value: float) -> str:
    return f"{value:.2g}" if value > 0 else _NEVER


def _short(ratio: float) -> str:
    return f"r = {ratio:.3g}"


def _lines(
    panel: "figures.Axes",
    methods: Sequence[Ledger],
    target: float,
    kind: str,
    asked: Prices,
) -> None:
    """Hours against the ratio; a dot where gossip overtakes a method without."""
    ratios = np.geomspace(asked.lowest_ratio, asked.highest_ratio, 200)
    mean, each = loads(methods, target, kind), asked.server(kind)
    for number, load in mean.items():
        gossips = methods[number].gossips
        panel.plot(
            ratios,
            [load.hours(ratio, each) for ratio in ratios],
            "-" if gossips else "--",
            color=figures.color(number),
            label=methods[number].label,
            linewidth=2.2 if gossips else 1.5,
        )
    top = max(load.hours(0.0, each) for load in mean.values())
    for gossiping, other in itertools.product(mean, mean):
        if methods[gossiping].gossips and not methods[other].gossips:
            ratio = prices.break_even(mean[gossiping], mean[other])
            if asked.lowest_ratio < ratio < asked.highest_ratio:
                height = mean[other].hours(ratio, each)
                panel.plot(
                    ratio, height, "o", color=figures.color(gossiping), markersize=5
                )
    figures.label_axes(panel, "")
    panel.set_xscale("log")
    panel.set_ylim(0, 2 * top)
    panel.annotate(
        _short(asked.ratio(kind)),
        (asked.ratio(kind), 1),
        xycoords=("data", "axes fraction"),
        xytext=(-4, -4),
        textcoords="offset points",
        ha="right",
        va="top",
        color="0.2",
        fontsize=9,
    )
    panel.set_title(f"by {kind}: {_server(kind, asked)}", fontsize=10)


def _map(
    panel: "figures.Axes", methods: Sequence[Ledger], kind: str, asked: Prices
) -> None:
    """The cheapest method for each whole percent and ratio."""
    first = max(np.nan_to_num(m.accuracy[:, 0]).max() for m in methods)
    last = max(prices.highest(method) for method in methods)
    levels = range(math.floor(100 * min(first, last)), math.floor(100 * last) + 1)
    for level in levels:
        mean = loads(methods, level / 100, kind)
        ends = (asked.lowest_ratio, asked.highest_ratio)
        for share in prices.cheapest(list(mean.values()), *ends):
            panel.barh(
                level,
                share.high - share.low,
                left=share.low,
                height=1.0,
                color=figures.color(list(mean)[share.method]),
                edgecolor="white",
                linewidth=0.6,
            )
    figures.label_axes(panel, _ACROSS[kind])
    panel.set_title("the cheapest method", fontsize=10)
    panel.grid(visible=False)
    panel.set_xscale("log")
    panel.set_xlim(asked.lowest_ratio, asked.highest_ratio)
    panel.set_ylim(levels[0] - 0.5, levels[-1] + 0.5)
