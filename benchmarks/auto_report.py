"""The page of `benchmarks.auto`."""

import statistics

ENGINES = ("dense", "span")
# Below these, what a call and an allocator take beside a round is all that is seen.
LEAST = {"seconds": 0.05, "bytes": 2e8}
HEAD = (
    "| model | N | algorithm | auto | dense: s per round | span: s per round | "
    "dense: GB | span: GB | loss |"
)


def page(rows: dict[str, dict], devices: int) -> str:
    """The results as Markdown.

    Args:
      rows: By cell, as `benchmarks.auto` measured them.
      devices: That the CPU was split into.
    """
    lines = [
        "# Is `auto` right?",
        "",
        f"`python -m benchmarks.auto`, {devices} CPU devices. Predicted → measured; "
        "memory is what rounds take beyond the data in a process that has compiled "
        "before. Loss: how many times the faster engine's seconds the chosen one took. "
        "–: not run, because a round or its schedule would take too long. The "
        "constants of `afga_jax/cost.py` were fitted to some of these cells, so this "
        "shows how well they fit, not how well they hold elsewhere. `auto.json` keeps "
        "lines that were not measured again, so they may be of several runs.",
        "",
        HEAD,
        "|---" * 9 + "|",
        *(line(name, row) for name, row in rows.items()),
        "",
        verdict(rows),
    ]
    return "\n".join(lines) + "\n"


def line(name: str, row: dict) -> str:
    """One cell's line of the table."""
    model, number, variant = _parts(name)
    seconds = [_pair(row, "seconds", engine, "{:.3g}", 1) for engine in ENGINES]
    held = [_pair(row, "bytes", engine, "{:.2f}", 1e-9) for engine in ENGINES]
    lost = loss(row)
    cells = [model, number, variant, row["auto"], *seconds, *held]
    cells.append("–" if lost is None else f"{lost:.2f}")
    return "| " + " | ".join(cells) + " |"


def loss(row: dict) -> float | None:
    """Times the faster engine's seconds that the chosen one took; None: one ran."""
    if len(row["seconds"]) < 2:
        return None
    return row["seconds"][row["auto"]] / min(row["seconds"].values())


def verdict(rows: dict[str, dict]) -> str:
    """How often `auto` was right, and how far off the predictions are."""
    losses = {name: lost for name, row in rows.items() if (lost := loss(row))}
    right = sum(lost == 1 for lost in losses.values())
    worst = max(losses, key=losses.get)
    text = (
        f"`auto` took the faster engine in {right} of {len(losses)} cells where both "
        f"ran; its worst choice took {losses[worst]:.2f} times as long ({worst}). "
    )
    for what, least in LEAST.items():
        off = [
            max(predicted / value, value / predicted)
            for row in rows.values()
            for name, value in row[what].items()
            if (predicted := row[f"predicted {what}"].get(name)) and value >= least
        ]
        text += (
            f"Predicted {what}, where at least {least:g} were measured, are off by a "
            f"factor of {statistics.median(off):.2f} in the median, {max(off):.2f} at "
            "most. "
        )
    return text.strip()


def _parts(name: str) -> tuple[str, str, str]:
    model, number, variant = name.split(", ", 2)
    return model, number.removeprefix("N="), variant


def _pair(row: dict, what: str, engine: str, form: str, scale: float) -> str:
    predicted = row[f"predicted {what}"].get(engine)
    measured = row[what].get(engine)
    texts = [
        "–" if value is None else form.format(scale * value)
        for value in (predicted, measured)
    ]
    return " → ".join(texts)
