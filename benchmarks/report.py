"""The figures as Markdown."""

from benchmarks.sections import SECTIONS, Bound, Ratio
from benchmarks.workers import ratio


def report(figures: dict) -> str:
    """All sections that were measured, the targets first.

    Args:
      figures: `machine`, and `sections` by name as `benchmarks.measure` gives them.
    """
    sections = figures["sections"]
    parts = [
        "# Benchmarks",
        "",
        "`python -m benchmarks.all`, written by it.",
        "",
        f"{figures['machine']}. Median (least–most) of interleaved laps; a ratio is "
        "the median of the ratios of laps that follow each other. A load average far "
        "above the number of cores means that others used them too.",
        "",
        "## Targets",
        "",
        "| section | target | measured | |",
        "|---|---|---|---|",
    ]
    for name, figures_of in sections.items():
        parts += [f"| {name} | {line} |" for line in targets(name, figures_of)]
    for name, figures_of in sections.items():
        parts += ["", *section(name, figures_of)]
    return "\n".join(parts) + "\n"


def targets(name: str, figures: dict) -> list[str]:
    """Target, measured and met, of each target of a section, as cells.

    A quick run does other work and so meets or misses nothing.
    """
    if figures.get("quick"):
        return []
    wanted = SECTIONS[name].targets if name in SECTIONS else ()
    lines = [_line(target, figures) for target in wanted]
    lines += [
        _cells(one["what"], one["value"], one["least"], one["most"], one["at_least"])
        for one in figures.get("targets", [])
    ]
    return lines


def section(name: str, figures: dict) -> list[str]:
    """A section's table and what there is to know about it."""
    rows = figures["rows"]
    columns = [
        column
        for column in (
            "engine",
            "gradients per round",
            "norm",
            "loss",
            "share",
            "memory",
        )
        if any(column in row for row in rows.values())
    ]
    if "memory" in columns:
        columns.append("memory beyond data")
    head = ["contestant", f"milliseconds per {figures['per']}", *columns]
    lines = [
        f"## {figures['title']}",
        "",
        f"`python -m benchmarks.all --only {name}`, {figures['date']}, took "
        f"{figures['took'] / 60:.1f} minutes, load average "
        f"{' – '.join(f'{load:.1f}' for load in figures['load'])}.",
    ]
    if name in SECTIONS and SECTIONS[name].note:
        lines.append(SECTIONS[name].note)
    if figures.get("quick"):
        lines.append("**A quick run: it shows that all works, not how fast.**")
    if figures.get("passive"):
        lines.append("PyTorch's threads slept while they waited.")
    lines += ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for contestant, row in rows.items():
        cells = [contestant, spread(row["seconds"])]
        cells += [_cell(column, row.get(column)) for column in columns]
        lines.append("| " + " | ".join(cells) + " |")
    for contestant, reason in figures["missing"].items():
        lines.append(f"| {contestant} | missing: {reason} |" + " |" * len(columns))
    return lines


def spread(seconds: dict) -> str:
    """Median and spread in milliseconds."""
    values = [1e3 * seconds[key] for key in ("median", "least", "most")]
    return "{:.4g} ({:.4g}–{:.4g})".format(*values)


def _line(target: Ratio | Bound, figures: dict) -> str:
    rows = figures["rows"]
    if isinstance(target, Bound):
        what = f"{target.name}: {target.figure} below {target.below:g} GB"
        if target.name not in rows:
            return f"{what} | not measured | "
        value = rows[target.name][target.figure]
        met = "met" if value < target.below else "not met"
        return f"{what} | {value:.2f} GB | {met}"
    bound = f"≥ {target.at_least:g}" if target.at_least else f"≤ {target.at_most:g}"
    what = f"{target.slow} ÷ {target.fast} {bound}"
    if target.slow not in rows or target.fast not in rows:
        return f"{what} | not measured | "
    laps = (rows[name]["seconds"]["laps"] for name in (target.slow, target.fast))
    found = ratio(*laps)
    value = found["median"]
    met = value >= target.at_least if target.at_least else value <= target.at_most
    shown = f"{value:.2f} ({found['least']:.2f}–{found['most']:.2f})"
    return f"{what} | {shown} | {'met' if met else 'not met'}"


def _cells(what: str, value: float, least: float, most: float, aim: float) -> str:
    met = "met" if value >= aim else "not met"
    return f"{what} ≥ {aim:g} | {value:.2f} ({least:.2f}–{most:.2f}) | {met}"


def _cell(column: str, value: float | str | None) -> str:
    if value is None:
        return "–"
    if column == "engine":
        return value.partition(":")[0].replace(" engine", "")
    if column.startswith("memory"):
        return f"{value:.2f} GB"
    if column == "share":
        return f"{value:.0%}"
    return f"{value:.6g}"
