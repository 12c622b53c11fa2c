"""One gradient step per client with this package's models, timed on request.

Run by `benchmarks/models.py`. Reads requests, one JSON object per line, and answers
each with one line; see `serve`. The clients are spread over the devices that
`--xla_force_host_platform_device_count` makes of the CPU.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from afga_jax import models
from afga_jax.typing import Batch

NARROW = {"width": 64, "depth": 4, "patch": 4}
MODELS = {
    "convmixer-256-8": ("convmixer", {}, (32, 32, 3)),
    "convmixer-64-4": ("convmixer", NARROW, (32, 32, 3)),
    "lstm": ("lstm", {}, None),
    "cnn": ("cnn", {}, (28, 28, 1)),
    "resnet18": ("resnet18", {}, (32, 32, 3)),
}


def prepare(name, clients, batch):
    """A function that takes SGD steps with the clients' models, and how many there are.

    The clients are filled up to the same number on every device.
    """
    kind, options, shape = MODELS[name]
    devices = jax.device_count()
    clients = -(-clients // devices) * devices
    random = jax.random.key(0)
    if shape is None:
        task = models.next_character(models.create(kind, 80, **options), 80)
        inputs = jax.random.randint(random, (clients, batch, 80), 0, 80)
    else:
        task = models.classifier(models.create(kind, 10, **options), shape)
        inputs = jax.random.normal(random, (clients, batch, *shape))
    targets = jax.random.randint(random, (clients, batch), 0, 10)
    keys = jax.random.split(random, clients)
    params, stats = jax.jit(jax.vmap(task.init))(keys)

    mesh = Mesh(jax.devices(), ("clients",))
    everybody = P("clients")
    spread = jax.shard_map(
        _steps(task),
        mesh=mesh,
        in_specs=(P(), everybody, everybody, everybody),
        out_specs=everybody,
        check_vma=False,
    )
    compiled = jax.jit(spread, donate_argnums=1)
    state, batches, keys = jax.device_put(
        ((params, stats), Batch(inputs, targets), keys),
        NamedSharding(mesh, everybody),
    )

    def step(number):
        nonlocal state
        state = jax.block_until_ready(compiled(jnp.int32(number), state, batches, keys))

    return step, clients


def _steps(task):
    def client(inputs):
        (params, stats), batch, key = inputs
        gradient, (stats, _) = jax.grad(task.loss, has_aux=True)(
            params, stats, batch, key, True
        )
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradient), stats

    def steps(number, state, batches, keys):
        def step(_, state):
            return jax.lax.map(client, (state, batches, keys))

        return jax.lax.fori_loop(0, number, step, state)

    return steps


def serve(requests, answers):
    """Time steps on request: {"prepare": ...}, {"steps": n} or {"matmul": n}."""
    multiply = jax.jit(lambda square: square @ square)
    step, clients = None, 0
    for line in requests:
        request = json.loads(line)
        if "prepare" in request:
            step, clients = prepare(**request["prepare"])
            step(1)
            seconds = 0.0
        elif "matmul" in request:
            square = jnp.ones((request["matmul"], request["matmul"]))
            multiply(square).block_until_ready()
            start = time.perf_counter()
            multiply(square).block_until_ready()
            seconds = time.perf_counter() - start
        else:
            start = time.perf_counter()
            step(request["steps"])
            seconds = time.perf_counter() - start
        answers.write(json.dumps({"seconds": seconds, "clients": clients}) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
