"""What more devices save and what they send: memory, and bytes per local step.

    python -m benchmarks.scaling [--devices=1,2,4,8] [--num_clients=64]

Compiles a round of the dense engine for forced CPU devices, without running it: what a
device holds is the compiler's own account (arguments, results and temporary memory of
one device), what is received is read from the program's collectives and compared with
the edges of the clients' blocks: mixing in a ring and a torus is collective-permute,
batches for clients whose samples are elsewhere are all-reduce. Nothing here is a
timing: a busy machine does not matter.
"""

import argparse

import jax
import numpy as np

import afga_jax
from afga_jax import data, models
from afga_jax.runs.devices import use
from afga_jax.training import memory
from benchmarks import collectives

SHAPE, CLASSES, SAMPLES = (28, 28, 1), 10, 4
_KINDS = ("collective-permute", "all-reduce", "reduce-scatter", "all-gather")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", default="1,2,4,8")
    parser.add_argument("--num_clients", type=int, default=64)
    parser.add_argument("--active", type=int, default=8)
    args = parser.parse_args()
    counts = [int(count) for count in args.devices.split(",")]
    use(max(counts))
    print(f"MLP 784-100-{CLASSES}, N={args.num_clients}, M={args.active}")
    for name, options in {
        "ring": {"algorithm": "afga"},
        "torus": {"algorithm": "afga", "topology": "torus"},
        "complete": {"algorithm": "afga", "topology": "complete"},
        "8 clusters of rings": {"algorithm": "cafga", "num_clusters": 8},
        "SCAFFOLD": {"algorithm": "scaffold"},
    }.items():
        kinds = " | ".join(_KINDS)
        print(f"\n{name}: received per local step, in models")
        print(f"| devices | MB per device | {kinds} |\n|{'---|' * (2 + len(_KINDS))}")
        for devices in counts:
            held, sent = measured(devices, args.num_clients, args.active, **options)
            shown = " | ".join(f"{sent.get(kind, 0):.3g}" for kind in _KINDS)
            print(f"| {devices} | {held / 1e6:.1f} | {shown} |", flush=True)


def measured(
    devices: int, num_clients: int, active: int, algorithm: str, **options
) -> tuple[int, dict[str, float]]:
    """Bytes that a device holds, and what it gets per local step, in models."""
    task = models.classifier(models.create("mlp", CLASSES, hidden=(100,)), SHAPE)
    # An odd number of steps: two of them would be compiled as one.
    built = afga_jax.build(
        algorithm,
        task,
        num_clients=num_clients,
        active=active,
        local_steps=3,
        **options,
    )
    key = jax.random.key(0)
    compiled = collectives.one_round(built, clients(num_clients), key, devices)
    account = compiled.memory_analysis()
    held = account.argument_size_in_bytes + account.temp_size_in_bytes
    held += account.output_size_in_bytes - account.alias_size_in_bytes
    state = jax.eval_shape(built.init, key)
    model = memory.bytes_of((state.params, state.stats))
    sent: dict[str, float] = {}
    for one in collectives.found(compiled.as_text()):
        if one.looped:
            sent[one.name] = sent.get(one.name, 0) + one.bytes / model
    return held, sent


def clients(num_clients: int) -> data.Clients:
    """A few random images for each."""
    rng, total = np.random.default_rng(0), SAMPLES * num_clients
    held = data.partition.by_client(np.repeat(np.arange(num_clients), SAMPLES))
    inputs = rng.normal(size=(total, *SHAPE)).astype(np.float32)
    targets = rng.integers(0, CLASSES, total)
    return data.from_arrays(inputs, targets, held, batch_size=SAMPLES)


if __name__ == "__main__":
    main()
