"""The page of `benchmarks.auto`."""

import statistics

ENGINES = ("dense", "span")
# Below these bytes, what an allocator takes beside a round is all that is seen.
LEAST = 2e8
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
        f"`python -m benchmarks.auto`, {devices} CPU devices. `auto` is the rule of "
        "`afga_jax/training/engine_choice.py`, which looks at no clock. Memory, "
        "predicted → measured, is what rounds take beyond the data in a process that "
        "has compiled before. "
        "Loss: how many times the faster engine's seconds the chosen one took. –: not "
        "run, because a round or its schedule would take too long. `auto.json` keeps "
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
    seconds = [_shown(row["seconds"].get(engine), "{:.3g}") for engine in ENGINES]
    held = [
        " → ".join(
            _shown(row[what].get(engine), "{:.2f}", 1e-9)
            for what in ("predicted bytes", "bytes")
        )
        for engine in ENGINES
    ]
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
    """How often `auto` was right, and how far off the predicted bytes are."""
    losses = {name: lost for name, row in rows.items() if (lost := loss(row))}
    right = sum(lost == 1 for lost in losses.values())
    text = f"`auto` took the faster engine in {right} of {len(losses)} cells where "
    text += "both ran"
    if losses:
        worst = max(losses, key=losses.get)
        text += f"; its worst choice took {losses[worst]:.2f} times as long ({worst})"
    off = [
        max(predicted / value, value / predicted)
        for row in rows.values()
        for name, value in row["bytes"].items()
        if (predicted := row["predicted bytes"].get(name)) and value >= LEAST
    ]
    if off:
        text += (
            f". Predicted bytes, where at least {LEAST:g} were measured, are off by a "
            f"factor of {statistics.median(off):.2f} in the median, {max(off):.2f} at "
            "most"
        )
    return text + "."


def _parts(name: str) -> tuple[str, str, str]:
    model, number, variant = name.split(", ", 2)
    return model, number.removeprefix("N="), variant


def _shown(value: float | None, form: str, scale: float = 1) -> str:
    return "–" if value is None else form.format(scale * value)
