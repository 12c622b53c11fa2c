"""The client step of ConvMixer against PyTorch and against the matmul rate."""

import contextlib
import os
import time

from benchmarks import environments, models
from benchmarks.workers import Worker, ratio, summary

MODEL = "convmixer-256-8"
# Of PyTorch's time with all threads, and of the rate of a 2048³ matmul.
FASTER, SHARE = 1.2, 0.45


def measure(repeats: int) -> dict:
    """Figures in the form of `benchmarks.measure`, with targets of their own."""
    start, load = time.time(), os.getloadavg()[0]
    python, missing = environments.interpreter("torch")
    with contextlib.ExitStack() as stack:
        workers = {
            name: stack.enter_context(Worker(*command))
            for name, command in models.commands(python).items()
        }
        row = models.compare(workers, MODEL, repeats)
    laps, work = row["seconds per client step"], row["gflop per client step"]
    matmul = row["matmul gflop per second"]
    shares = {
        name: summary(
            [work / lap / rate for lap, rate in zip(laps[name], rates, strict=True)]
        )
        for name in laps
        for rates in [matmul[models.LAST if name in models.TORCHES else models.ONE]]
    }
    ours = _fastest((models.ONE, models.PER_CORE), laps)
    targets = [_target(f"share of the matmul rate, {ours}", shares[ours], SHARE)]
    if python is not None:
        torch = _fastest(models.TORCHES, laps)
        against = ratio(laps[torch], laps[ours])
        targets.insert(0, _target(f"{torch} ÷ afga_jax, {ours}", against, FASTER))
    return {
        "title": f"Client step of {MODEL}, batch {models.BATCH}, all cores",
        "rows": {
            name: {"seconds": summary(laps[name]), "share": shares[name]["median"]}
            for name in laps
        },
        "targets": targets,
        "missing": {"PyTorch": missing} if missing else {},
        "repeats": repeats,
        "per": "client step",
        "load": [load, os.getloadavg()[0]],
        "took": time.time() - start,
        "date": time.strftime("%Y-%m-%d"),
    }


def _fastest(names, laps: dict) -> str:
    return min(names, key=lambda name: summary(laps[name])["median"])


def _target(what: str, found: dict, aim: float) -> dict:
    return {
        "what": what,
        "value": found["median"],
        "least": found["least"],
        "most": found["most"],
        "at_least": aim,
    }
