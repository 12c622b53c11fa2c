"""Models as users write them against our own of the same layers: a FedAvg round.

    python -m benchmarks.own_models [--repeats=7] [--active=10] [--local_steps=24]

With `--plain` also without our layers, which takes minutes: choose few steps then.

One process; the contestants take turns, and ratios are of laps that share a moment.
Random images of Fashion-MNIST's shape: time does not depend on them. Processor seconds
of all threads are beside those of the clock, since other programs disturb them less.
"""

import argparse
import time

import flax.linen as nn
import jax
import numpy as np
from flax import nnx

import afga_jax
from afga_jax import data, models
from afga_jax.typing import Task
from benchmarks.workers import ratio

SHAPE, CLASSES, BATCH, SAMPLES = (28, 28, 1), 10, 50, 100
OURS = "models.create"


class LinenCNN(nn.Module):
    """`models.create("cnn")` in flax.linen: 28,938 parameters."""

    @nn.compact
    def __call__(self, x):
        for features in (16, 32):
            x = nn.relu(nn.Conv(features, (5, 5), padding=2)(x))
            x = nn.max_pool(x, (2, 2), (2, 2))
        return nn.Dense(CLASSES)(x.reshape(len(x), -1))


class NnxCNN(nnx.Module):
    """The same in flax.nnx."""

    def __init__(self, rngs):
        self.first = nnx.Conv(1, 16, (5, 5), padding=2, rngs=rngs)
        self.second = nnx.Conv(16, 32, (5, 5), padding=2, rngs=rngs)
        self.head = nnx.Linear(7 * 7 * 32, CLASSES, rngs=rngs)

    def __call__(self, x):
        for layer in (self.first, self.second):
            x = nnx.max_pool(nnx.relu(layer(x)), (2, 2), (2, 2))
        return self.head(x.reshape(len(x), -1))


class LinenConvMixer(nn.Module):
    """ConvMixer-64-4 with patches of 4 in flax.linen."""

    @nn.compact
    def __call__(self, x, train):
        def activate(x):
            norm = nn.BatchNorm(not train, momentum=0.9)
            return norm(nn.gelu(x, approximate=False))

        x = activate(nn.Conv(64, (4, 4), (4, 4))(x))
        for _ in range(4):
            x = x + activate(nn.Conv(64, (5, 5), feature_group_count=64)(x))
            x = activate(nn.Conv(64, (1, 1))(x))
        return nn.Dense(CLASSES)(x.mean((1, 2)))


def tasks(plain: bool) -> dict[str, dict[str, Task]]:
    """The contestants by model; ours is the first.

    Args:
      plain: Whether the models also compete without our layers.
    """

    def of(model, **options):
        return afga_jax.task(model, input_shape=SHAPE, **options)

    def slow(model):
        return {"linen, fast_layers=False": of(model, fast_layers=False)}

    mixer = models.create("convmixer", CLASSES, width=64, depth=4, patch=4)
    return {
        "CNN": {
            OURS: of(models.create("cnn", CLASSES)),
            "linen": of(LinenCNN()),
            "nnx": of(NnxCNN),
            **(slow(LinenCNN()) if plain else {}),
        },
        "ConvMixer-64-4": {
            OURS: of(mixer),
            "linen": of(LinenConvMixer()),
            **(slow(LinenConvMixer()) if plain else {}),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--active", type=int, default=10)
    parser.add_argument("--local_steps", type=int, default=24)
    parser.add_argument("--plain", action="store_true")
    args = parser.parse_args()
    for name, contestants in tasks(args.plain).items():
        rounds = {
            label: _round(task, args.active, args.local_steps)
            for label, task in contestants.items()
        }
        print(f"\n{name}: FedAvg, {args.active} clients × {args.local_steps} steps")
        laps = _laps(rounds, args.repeats)
        for label, (seconds, processor) in laps.items():
            times = [ratio(*pair) for pair in zip(laps[label], laps[OURS], strict=True)]
            shown = ", ".join(
                f"{unit} {one['median']:.2f}× ({one['least']:.2f}–{one['most']:.2f})"
                for unit, one in zip(("clock", "processor"), times, strict=True)
            )
            best = f"{min(seconds):.3f} s, {min(processor):.3f} s of processors"
            print(f"  {label}: {shown}; at best {best}", flush=True)


def _round(task: Task, active: int, local_steps: int):
    """A compiled round that has run once."""
    random, total = np.random.default_rng(0), active * SAMPLES
    held = data.partition.by_client(np.repeat(np.arange(active), SAMPLES))
    inputs = random.normal(size=(total, *SHAPE)).astype(np.float32)
    targets = random.integers(0, CLASSES, total)
    clients = data.from_arrays(inputs, targets, held, batch_size=BATCH)
    algorithm = afga_jax.build(
        "fedavg",
        task,
        num_clients=active,
        active=active,
        local_steps=local_steps,
        local_lr=0.05,
    )
    key = jax.random.key(0)
    state = jax.jit(algorithm.init)(key)
    compiled = jax.jit(algorithm.round).lower(key, state, clients).compile()
    jax.block_until_ready(compiled(key, state, clients))
    return lambda: jax.block_until_ready(compiled(key, state, clients))


def _laps(rounds, repeats) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds of the clock and of processors, by contestant; repeats interleave."""
    laps: dict[str, tuple[list, list]] = {label: ([], []) for label in rounds}
    for _ in range(repeats):
        for label, run in rounds.items():
            start, before = time.perf_counter(), time.process_time()
            run()
            laps[label][0].append(time.perf_counter() - start)
            laps[label][1].append(time.process_time() - before)
    return laps


if __name__ == "__main__":
    main()
