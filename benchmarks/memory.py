"""Peak memory of an AFGA round: 100 clients with a ConvMixer-256-8 each.

    python -m benchmarks.memory [--num_clients=100] [--local_steps=2] [--depth=8]

Random images stand in for CIFAR-10's 50,000, at the same size. Peak memory does not
depend on the number of local steps, so a few are enough.
"""

import argparse
import resource
import time

import jax
import numpy as np

import afga_jax
from afga_jax import data, models


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_clients", type=int, default=100)
    parser.add_argument("--active", type=int, default=5)
    parser.add_argument("--local_steps", type=int, default=2)
    parser.add_argument("--depth", type=int, default=8, help="layers of the model")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (50_000, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(0, 10, 50_000).astype(np.int32)
    held = data.partition.build("dirichlet", labels, args.num_clients, alpha=0.6)
    source = data.samples.images(images, labels, augment=True)
    clients = data.client_data(source, held, batch_size=50)
    report("data loaded")
    task = models.classifier(
        models.create("convmixer", 10, depth=args.depth), (32, 32, 3)
    )
    algorithm = afga_jax.build(
        "afga",
        task,
        num_clients=args.num_clients,
        active=args.active,
        local_steps=args.local_steps,
    )
    key = jax.random.key(0)
    trainer = afga_jax.Trainer(algorithm, capacity=1, donate=True)
    state = trainer.init(key)
    size = sum(x.size for x in jax.tree.leaves(state.params))
    print(f"{size:,} parameters, all clients {4e-6 * size * args.num_clients:,.0f} MB")
    for _ in range(2):
        start = time.perf_counter()
        state, info = trainer.run(key, state, clients, 1)
        jax.block_until_ready(state)
        seconds = time.perf_counter() - start
        report(f"round of {int(info.gradients[0])} gradients in {seconds:.1f} s")


def report(what: str) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{what}: peak {peak:.2f} GB", flush=True)


if __name__ == "__main__":
    main()
