"""Predicted and measured peak memory, each case in a process of its own.

    python -m benchmarks.peaks
    python -m benchmarks.peaks --only "span AFGA"

Peaks are beyond what the process held when its data was loaded, compilation included.
"""

import argparse
import json
import os
import subprocess
import sys

import jax

import afga_jax
from afga_jax.training import flops, memory
from benchmarks.measure import device_flags
from benchmarks.ours import memory as peak
from benchmarks.problem import problem

# Model, algorithm, N, M, CPU devices (None: one per core), and options.
CASES = {
    "dense AFGA": ("convmixer-64-4", "afga", 100, 5, 1, {"engine": "dense"}),
    "span AFGA": ("mlp-100", "afga", 100, 5, None, {"engine": "span"}),
    "a million, one device": ("mlp-100", "afga", 1_000_000, 1000, 1, {}),
    "a million": ("mlp-100", "afga", 1_000_000, 1000, None, {}),
    "SCAFFOLD, one device": ("cnn", "scaffold", 1000, 10, 1, {}),
    "SCAFFOLD": ("cnn", "scaffold", 1000, 10, None, {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--case", choices=CASES, help="measure it in this process")
    args = parser.parse_args()
    if args.case:
        print(json.dumps(measured(*CASES[args.case])))
        return
    print("| case | model | N | engine | devices | predicted GB | measured GB |")
    print("|---" * 7 + "|")
    for name in args.only:
        model, _, clients, _, devices, _ = CASES[name]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.peaks", f"--case={name}"],
            env={**os.environ, **device_flags(devices)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr[-400:]}")
        row = json.loads(done.stdout.splitlines()[-1])
        values = [row["engine"], row["devices"], *row["gigabytes"]]
        print(f"| {name} | {model} | {clients:,} |", *(f" {x} |" for x in values))


def measured(model, algorithm, num_clients, active, devices, options) -> dict:
    """One case's figures."""
    built, task, clients, _, execution = problem(
        algorithm=algorithm,
        model=model,
        num_clients=num_clients,
        active=active,
        local_steps=4,
        partition="overlap",
        **options,
    )
    before, key = peak(reset=True), jax.random.key(0)
    trainer = afga_jax.Trainer(built, execution, capacity=1, donate=True)
    state = trainer.init(key)
    for _ in range(2):
        state, info = trainer.run(key, state, clients, 1)
    jax.block_until_ready((state, info))
    found = peak() - before
    choice = trainer.choice.holding(clients, flops.count(task, clients))
    predicted = 1e-9 * (choice.run.total - memory.bytes_of(clients))
    figures = [round(predicted, 2), round(found, 2)]
    return {"engine": choice.engine, "devices": choice.devices, "gigabytes": figures}


if __name__ == "__main__":
    main()
