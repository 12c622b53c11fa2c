"""How long data takes: draws for few and many clients, partitions, Shakespeare.

    python -m benchmarks.data
    python -m benchmarks.data --repeats=1      # does it work?

Things that are compared take turns, and the smallest time of each counts: others may be
using the machine. Shakespeare is timed where TFDS_DATA_DIR holds the text.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import data
from afga_jax.data import partition
from afga_jax.data.text import shakespeare

NUM_SAMPLES, NUM_CLASSES = 50_000, 10


def best_of(
    functions: dict[str, Callable[[], object]], repeats: int
) -> dict[str, float]:
    """Smallest seconds of each function, called in turns."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(function())
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def draws(labels: np.ndarray, augment: bool, repeats: int) -> dict[str, float]:
    """Seconds of a compiled draw of a batch of 50 CIFAR-sized images."""
    pixels = np.random.default_rng(0).integers(
        0, 256, (NUM_SAMPLES, 32, 32, 3), dtype=np.uint8
    )
    source = data.samples.images(pixels, labels, augment=augment)
    assignments = {
        "stored, 100 clients": partition.iid(labels, 100),
        "overlap, 100 clients": partition.overlap(labels, 100),
        "overlap, 10 million clients": partition.overlap(labels, 10_000_000),
    }
    key, client = jax.random.key(0), jnp.asarray(99)
    draw = jax.jit(lambda clients, key, client: clients.batch(key, client))
    functions = {}
    for name, held in assignments.items():
        clients = data.client_data(source, held, batch_size=50)
        jax.block_until_ready(draw(clients, key, client))
        functions[name] = lambda clients=clients: draw(clients, key, client)
    return best_of(functions, 100 * repeats)


def partitions(labels: np.ndarray, repeats: int) -> dict[str, float]:
    """Seconds to deal 50,000 samples."""
    functions = {
        f"{name}, {num_clients:,} clients": (
            lambda name=name, num_clients=num_clients: jax.tree.leaves(
                partition.build(name, labels, num_clients)
            )
        )
        for name, num_clients in [
            ("iid", 100),
            ("dirichlet", 100),
            ("dirichlet", 10_000),
            ("dirichlet_client", 100),
            ("dirichlet_client", 10_000),
            ("shards", 32),
            ("major_class", 1000),
            ("overlap", 10_000_000),
        ]
    }
    return best_of(functions, repeats)


def works(folder: Path, repeats: int) -> dict[str, float]:
    """Seconds from the zipped text to roles, to one text, to a hundred clients."""
    text = shakespeare.read_text(folder / "raw" / "shakespeare_complete_works.txt.gz")
    roles = shakespeare.parse(text)
    spoken = data.from_roles(roles)
    held = data.spread(spoken, 100)
    clients = data.text_clients(spoken, held, batch_size=50)
    key, client = jax.random.key(0), jnp.asarray(99)
    draw = jax.jit(lambda clients, key, client: clients.batch(key, client))
    draw(clients, key, client)
    functions = {
        "parse 5.5 MB into 1129 roles": lambda: len(shakespeare.parse(text)),
        "join and cut the roles": lambda: data.from_roles(roles).text,
        "spread over 100 clients": lambda: data.spread(spoken, 100).starts,
        "draw 50 windows": lambda: draw(clients, key, client),
    }
    return best_of(functions, repeats)


def report(title: str, seconds: dict[str, float]) -> None:
    print(f"\n{title}")
    for name, value in seconds.items():
        print(f"  {name:32s} {1e3 * value:10.3f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="a hundred draws each")
    repeats = parser.parse_args().repeats
    labels = np.random.default_rng(1).permutation(np.arange(NUM_SAMPLES) % NUM_CLASSES)
    for augment in (False, True):
        seconds = draws(labels.astype(np.int32), augment, repeats)
        report(f"a batch of 50 images{', cropped and flipped' * augment}", seconds)
        many, few = (seconds[f"overlap, {n} clients"] for n in ("10 million", "100"))
        print(f"  10 million against 100: {many / few:.2f} times")
    report("dealing 50,000 samples", partitions(labels, repeats))
    folder = os.environ.get("TFDS_DATA_DIR")
    if folder and (Path(folder) / "raw").exists():
        report("Shakespeare", works(Path(folder), repeats))


if __name__ == "__main__":
    main()
