"""The page about accelerators, from the figures of `benchmarks.accelerators`."""

from typing import Any

from benchmarks.targets import LAUNCH, TARGETS, Target

_HEAD = """# What a GPU or TPU would run

`python -m benchmarks.accelerators --target=a6000` (or `h100`, `tpu-v5e`) writes this.

XLA's own compilers made these programs on a machine without such a device: **nothing
here was measured on one**. Sizes are the papers': AFGA's Setting 1 (100 clients, of
which 5 compute; 24 local steps, 100 for the LSTM; batch 50), for HA-Fed its own (32
clients, all of which compute, 48 steps). A *turn* of the loop over local steps is one
local step with the dense engine and one slot of 8 gradients with the span engine.

- *Kernels* are what a turn starts, library calls with them: *outside* of the gradient,
  and *for gradients*, with all in a loop or condition that has any. A loop counts as
  often as it is known to run, otherwise once.
- *Copies* are kernels outside of the gradient that copy an array as it is, *of clients*
  those of arrays with a row for each client.
- *Bytes* are what a turn's kernels read and write, if nothing stays in a cache between
  two of them. Cards keep some megabytes, so that less is moved.
- *Memory* is the compiler's account of the whole round: arguments, with the data set,
  and what it needs beyond them.
- The *estimate* of a round's seconds is the larger of arithmetic over the peak and
  bytes over the bandwidth of the data sheet, and {launch:.0f} µs for each kernel. A
  real device reaches neither peak, and no library call was tuned.
"""
_COLUMNS = (
    "case",
    "turns of a round",
    "kernels outside",
    "copies (of clients)",
    "kernels for gradients",
    "library calls",
    "GB moved outside + for gradients",
    "memory, GB: arguments + beyond",
    "estimate, s per round: arithmetic, bytes, launches",
    "compiled in, s",
)


def page(figures: dict[str, Any], cases: dict[str, dict[str, Any]]) -> str:
    """The page as Markdown.

    Args:
      figures: By target and case, as `compile_round` gives them.
      cases: The cases of each target; those without figures are said to be missing.
    """
    parts = [_HEAD.format(launch=1e6 * LAUNCH)]
    for name, wanted in cases.items():
        target, found = TARGETS[name], figures.get(name, {})
        parts.append(f"## {target.name} (`--target={name}`)\n")
        done = [case for case in wanted if "memory" in found.get(case, {})]
        if done:
            lines = [_COLUMNS, ("---",) * len(_COLUMNS)]
            lines += [_row(target, case, found[case]) for case in done]
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
        parts += _sent(found, done)
        missing = [
            _missing(case, found.get(case)) for case in wanted if case not in done
        ]
        if missing:
            parts.append("Missing: " + "; ".join(missing) + ".\n")
    return "\n".join(parts)


def seconds(target: Target, figures: dict[str, Any]) -> tuple[float, ...]:
    """The estimate of a round: the whole, arithmetic, bytes, launches."""
    turns = figures["turns"]
    trips = figures["trips"]
    # Two steps may be compiled as one turn of the loop.
    often = turns if trips is None else trips
    peak = target.peaks[figures["dtype"]]
    arithmetic = turns * figures["operations"] / peak
    moved = sum(figures[part]["bytes"] for part in ("outside", "gradient"))
    bytes_ = (often * moved + figures["round"]["bytes"]) / target.bandwidth
    kernels = sum(figures[part]["kernels"] for part in ("outside", "gradient"))
    launches = LAUNCH * (often * kernels + figures["round"]["kernels"])
    return max(arithmetic, bytes_) + launches, arithmetic, bytes_, launches


def _row(target: Target, name: str, figures: dict[str, Any]) -> tuple[str, ...]:
    outside, gradient, memory = (
        figures[part] for part in ("outside", "gradient", "memory")
    )
    steps = 1.0
    if figures["trips"] is not None:
        steps = figures["turns"] / figures["trips"]
    calls = {
        call: outside["library"].get(call, 0) + gradient["library"].get(call, 0)
        for call in sorted({**outside["library"], **gradient["library"]})
    }
    whole, *parts = seconds(target, figures)
    return (
        name,
        f"{figures['turns']:.3g}",
        f"{outside['kernels'] / steps:.3g}",
        f"{outside['copies'] / steps:.3g} ({outside['client_copies'] / steps:.3g})",
        f"{gradient['kernels'] / steps:.4g}",
        ", ".join(f"{count / steps:g} {_call(call)}" for call, count in calls.items())
        or "–",
        f"{outside['bytes'] / steps / 1e9:.2f} + {gradient['bytes'] / steps / 1e9:.2f}",
        f"{memory['arguments'] / 1e9:.2f} + "
        f"{(memory['temporary'] + memory['outputs']) / 1e9:.2f}",
        f"**{whole:.3g}**: {', '.join(f'{part:.2g}' for part in parts)}",
        f"{memory['compile_seconds']:.0f}",
    )


def _call(target: str) -> str:
    """A library call as people know it."""
    known = {
        "__cublas$lt$matmul": "cuBLAS",
        "__cublas$gemm": "cuBLAS",
        "__cudnn$convForward": "cuDNN forward",
        "__cudnn$convBackwardFilter": "cuDNN by weights",
        "__cudnn$convBackwardInput": "cuDNN by inputs",
    }
    return known.get(target, f"`{target}`")


def _sent(found: dict[str, Any], done: list[str]) -> list[str]:
    """What devices of a mesh send in a local step."""
    lines = []
    for case in done:
        sent = found[case].get("collectives")
        if sent is not None:
            listed = ", ".join(f"{name} {models:.3g}" for name, models in sent.items())
            lines.append(f"`{case}` receives per step, in models: {listed or '–'}.\n")
    return lines


def _missing(case: str, figures: dict[str, Any] | None) -> str:
    if figures is None:
        return f"{case} was not compiled"
    return f"{case} could not be compiled ({figures['failed']})"
