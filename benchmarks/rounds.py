"""What gossip costs: AFGA against FedAMSGrad with the same number of gradients.

    python -m benchmarks.rounds

An MLP 784-100-10, 24 local steps, batch 50. The variants take turns, so that a busy
machine hurts them alike; the median of each and the ratio to FedAMSGrad are printed.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
from flax import struct

import afga_jax
from afga_jax.typing import Batch, Task


@struct.dataclass
class RandomClients:
    """Noise images, the same for every client: only time matters here."""

    inputs: jax.Array
    targets: jax.Array
    sizes: jax.Array

    def batch(self, key, client):
        places = jax.random.randint(key, (50,), 0, len(self.inputs))
        return Batch(self.inputs[places], self.targets[places])


def perceptron(hidden: int = 100) -> Task:
    def init(key):
        first, second = jax.random.split(key)
        return {
            "w": 0.05 * jax.random.normal(first, (784, hidden)),
            "b": jnp.zeros(hidden),
            "v": 0.1 * jax.random.normal(second, (hidden, 10)),
            "c": jnp.zeros(10),
        }, ()

    def loss(params, stats, batch, key, train):
        inside = jax.nn.relu(batch.inputs @ params["w"] + params["b"])
        logits = inside @ params["v"] + params["c"]
        picked = jnp.take_along_axis(
            jax.nn.log_softmax(logits), batch.targets[:, None], 1
        )
        return -picked.mean(), (stats, {})

    return Task(init, loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_clients", type=int, default=100)
    parser.add_argument("--active", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()

    key = jax.random.key(0)
    data = RandomClients(
        jax.random.normal(key, (2000, 784)),
        jax.random.randint(key, (2000,), 0, 10),
        jnp.full(args.num_clients, 2000),
    )
    variants = {
        "fedamsgrad": {},
        "afga": {},
        "cafga": {"num_clusters": 5},
        "afga_adapted": {},
    }
    runs = {}
    for name, options in variants.items():
        algorithm = afga_jax.build(
            name,
            perceptron(),
            num_clients=args.num_clients,
            active=args.active,
            local_lr=0.01,
            **options,
        )
        trainer = afga_jax.Trainer(algorithm, capacity=1, donate=True)
        state, info = trainer.run(key, trainer.init(key), data, 1)
        runs[name] = [trainer, state, int(info.gradients[0]), []]

    for _ in range(args.repeats):
        for run in runs.values():
            trainer, state, _, laps = run
            start = time.perf_counter()
            state, info = trainer.run(key, state, data, 1)
            jax.block_until_ready((state, info))
            laps.append(time.perf_counter() - start)
            run[1] = state

    base = statistics.median(runs["fedamsgrad"][3])
    print(f"N={args.num_clients} M={args.active}, {jax.devices()[0].platform}")
    print(f"{'algorithm':<14}{'gradients':>10}{'ms/round':>10}{'min':>8}{'ratio':>7}")
    for name, (_, _, gradients, laps) in runs.items():
        median = statistics.median(laps)
        print(
            f"{name:<14}{gradients:>10}{1e3 * median:>10.1f}{1e3 * min(laps):>8.1f}"
            f"{median / base:>7.2f}"
        )


if __name__ == "__main__":
    main()
