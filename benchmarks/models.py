"""One gradient step of every model, here and in PyTorch, in turn on the same cores.

    python -m benchmarks.models
    python -m benchmarks.models --models cnn lstm --repeats 5

Five clients with weights of their own take SGD steps on batches of 50: in `scan` here,
in a loop there. Five processes take turns: JAX with one device that owns all cores, JAX
with one device per core and the clients spread over them, and PyTorch with all cores in
either memory layout and with threads that spin or sleep while they wait, of which the
fastest counts. PyTorch lives in an environment of its own, made on first use; where it
cannot be had the page says why. The table goes to `models.md` and `models.json` in the
folder `--results`.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import statistics
import sys

from benchmarks import environments
from benchmarks.environments import TORCH
from benchmarks.workers import Worker

HERE = pathlib.Path(__file__).parent
CLIENTS, BATCH, SIDE = 5, 50, 2048
ONE, PER_CORE = "one device", "device per core"
# PyTorch's threads spin at barriers unless told to sleep ("passive"): spinning is
# faster on idle cores and collapses on busy ones, so it gets both.
LAST, FIRST = "torch, channels last", "torch, channels first"
PASSIVE = "torch, channels last, passive"
TORCHES = (LAST, FIRST, PASSIVE)

# Steps between two looks at the clock, so that a lap takes about half a second or more.
# Here they are one call of one program, as in a round: only its first gradients pay the
# page faults of fresh memory, which the widest model has most of.
STEPS = {
    "convmixer-256-8": 3,
    "convmixer-64-4": 4,
    "lstm": 4,
    "cnn": 8,
    "resnet18": 2,
}
# The time allowed, in units of PyTorch's.
ALLOWED = dict.fromkeys(STEPS, 1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", default=list(STEPS), choices=STEPS)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    arguments = parser.parse_args()
    arguments.results.mkdir(exist_ok=True)
    python, missing = environments.interpreter("torch")
    figures = {"machine": machine(), "repeats": arguments.repeats, "models": []}
    figures["missing"] = missing
    with contextlib.ExitStack() as stack:
        workers = {
            name: stack.enter_context(Worker(*command))
            for name, command in commands(python).items()
        }
        for name in arguments.models:
            figures["models"].append(compare(workers, name, arguments.repeats))
            write(figures, arguments.results)
    print(report(figures))


def write(figures, folder):
    (folder / "models.json").write_text(json.dumps(figures, indent=1) + "\n")
    (folder / "models.md").write_text(report(figures))


def commands(python):
    """What each contestant runs, and its environment.

    Args:
      python: PyTorch's; None: it does not compete.
    """
    here = [sys.executable, HERE / "jax_models.py"]
    ours = {
        ONE: (here, {"XLA_FLAGS": device_flag(1)}),
        PER_CORE: (here, {"XLA_FLAGS": device_flag(os.cpu_count())}),
    }
    if python is None:
        return ours
    there = [python, HERE / "torch_models.py"]
    return ours | {
        LAST: (there, {}),
        FIRST: (there, {}),
        PASSIVE: (there, {"OMP_WAIT_POLICY": "passive"}),
    }


def device_flag(devices):
    count = f"--xla_force_host_platform_device_count={devices}"
    return f"{os.environ.get('XLA_FLAGS', '')} {count}"


def compare(workers, name, repeats):
    """Seconds per client step of every contestant; repeats are interleaved."""
    clients, laps = {}, {contestant: [] for contestant in workers}
    matmul = {contestant: [] for contestant in (ONE, LAST) if contestant in workers}
    for contestant, worker in workers.items():
        request = {"name": name, "clients": CLIENTS, "batch": BATCH}
        if contestant in TORCHES:
            request["channels_last"] = contestant != FIRST
        clients[contestant] = worker.ask(prepare=request).get("clients", CLIENTS)
    load = os.getloadavg()[0]
    for _ in range(repeats):
        for contestant, worker in workers.items():
            seconds = worker.ask(steps=STEPS[name])["seconds"]
            laps[contestant].append(seconds / STEPS[name] / clients[contestant])
        for contestant, rates in matmul.items():
            seconds = workers[contestant].ask(matmul=SIDE)["seconds"]
            rates.append(2 * SIDE**3 / seconds / 1e9)
    row = {
        "model": name,
        "gflop per client step": 6 * BATCH * multiplications(name) / 1e9,
        "clients": clients,
        "load average before and after": [load, os.getloadavg()[0]],
        "seconds per client step": laps,
        "matmul gflop per second": matmul,
    }
    print(line(row), flush=True)
    return row


def multiplications(name):
    """Multiply-adds of the forward pass for one sample; training takes three times."""
    if name.startswith("convmixer"):
        width, depth, patch = (256, 8, 2) if "256" in name else (64, 4, 4)
        pixels = (32 // patch) ** 2
        return pixels * width * (3 * patch**2 + depth * (25 + width)) + 10 * width
    if name == "lstm":
        return 80 * 4 * 256 * (80 + 256 + 256 + 256) + 256 * 80
    if name == "cnn":
        return 28**2 * 25 * 16 + 14**2 * 25 * 16 * 32 + 1568 * 10
    total, before = 32**2 * 9 * 3 * 64 + 512 * 10, 64
    for side, width in ((32, 64), (16, 128), (8, 256), (4, 512)):
        shortcut = before * width if before != width else 0
        total += side**2 * (9 * width * (before + 3 * width) + shortcut)
        before = width
    return total


def line(row):
    """The row of the table: medians, spreads, ratios to PyTorch, rates."""
    laps = row["seconds per client step"]
    middle = {name: statistics.median(values) for name, values in laps.items()}
    best = {name: min(values) for name, values in laps.items()}
    torch = min(
        (name for name in TORCHES if name in laps), key=middle.get, default=None
    )
    cells = [row["model"]]
    for name in (ONE, PER_CORE, torch):
        cells.append(_seconds(laps.get(name)))
    cells[-1] += (torch or "").removeprefix("torch")
    # Against the best of PyTorch's settings each time, which may be two of them.
    ratios = torch and [
        (middle[name] / middle[torch], best[name] / min(best[t] for t in TORCHES))
        for name in (ONE, PER_CORE)
    ]
    cells += [f"{median:.2f} / {least:.2f}" for median, least in ratios or ()]
    cells += [] if ratios else ["–", "–"]
    allowed = ALLOWED[row["model"]]
    met = ratios and any(max(pair) <= allowed for pair in ratios)
    cells.append(f"{allowed:.1f} {'met' if met else 'not shown'}")
    work = row["gflop per client step"]
    shown = [name for name in (ONE, PER_CORE, torch) if name]
    cells.append(" / ".join(f"{work / middle[name]:.0f}" for name in shown))
    matmul = row["matmul gflop per second"]
    cells.append(" / ".join(f"{statistics.median(x):.0f}" for x in matmul.values()))
    before, after = row["load average before and after"]
    cells.append(f"{before:.1f}–{after:.1f}")
    return "| " + " | ".join(cells) + " |"


def _seconds(laps):
    if laps is None:
        return "–"
    return f"{statistics.median(laps):.4f} ({min(laps):.4f}–{max(laps):.4f})"


def report(figures):
    missing = figures.get("missing")
    head = (
        "model",
        "one device",
        "one device per core",
        "PyTorch",
        "one device / PyTorch: medians / best laps",
        "device per core / PyTorch: medians / best laps",
        "allowed",
        "GFLOP/s: one / per core / PyTorch",
        f"GFLOP/s of a {SIDE}³ matmul: JAX / PyTorch",
        "load average",
    )
    slots = figures["models"][0]["clients"][PER_CORE]
    return "\n".join(
        [
            "# One gradient step: this package and PyTorch",
            "",
            "`python -m benchmarks.models`, written by it.",
            "",
            f"{figures['machine']}.",
            "Seconds per client step, median (smallest–largest) of "
            f"{figures['repeats']} interleaved laps; {CLIENTS} clients with weights of "
            f"their own, batch {BATCH}, SGD update included. One device per core runs "
            f"{slots} clients, the same number on each; its figure is the lap divided "
            "by that number. Ratios below 1 are faster than PyTorch in the best of "
            "three settings; an aim counts as met if medians and best laps both meet "
            "it. A load average far above the number of cores means that others used "
            "them too.",
            "",
            "| " + " | ".join(head) + " |",
            "|" + "---|" * len(head),
            *(line(row) for row in figures["models"]),
            "",
            *([f"PyTorch is missing: {missing}", ""] if missing else []),
        ]
    )


def machine():
    names = [
        text.split(":")[1].strip()
        for text in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if text.startswith("model name")
    ]
    return f"{os.cpu_count()} cores of {names[0]}, {platform.system()}, torch {TORCH}"


if __name__ == "__main__":
    main()
