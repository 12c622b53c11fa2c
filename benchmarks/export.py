"""Writes down who computes on which samples, so that peers repeat the same work.

    python -m benchmarks.export --rounds=3 --out=work.npz \
        '{"algorithm": "fedavg", "model": "cnn", "num_clients": 100, "active": 10}'

Run by the benchmarks in a process of its own; `benchmarks.peers.work` reads it.
"""

import argparse
import json

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import keys
from afga_jax.data import samples
from benchmarks.problem import Problem, problem, torch_layout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("work", type=json.loads, help="arguments of `problem`")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    built = problem(**arguments.work)
    key = jax.random.key(0)
    state = jax.jit(built.algorithm.init)(key)
    params = torch_layout(arguments.work["model"], state.params)
    active, upload, drawn = jax.jit(_drawn, static_argnums=(0, 2))(
        _Fixed(built), built.clients.assignment, arguments.rounds
    )
    dataset = built.dataset
    source = built.clients.source
    np.savez(
        arguments.out,
        inputs=dataset.train_inputs,
        targets=dataset.train_targets,
        test_inputs=dataset.test_inputs,
        test_targets=dataset.test_targets,
        scale=np.asarray(1 / (255 * source.std), np.float32),
        shift=np.asarray(source.mean / source.std, np.float32),
        active=active,
        upload=upload,
        samples=drawn,
        num_clients=arguments.work["num_clients"],
        **{f"param_{place}": array for place, array in enumerate(params)},
        **{f"number_{name}": value for name, value in state.numbers.items()},
    )


class _Fixed:
    """A problem as a static argument."""

    def __init__(self, built: Problem):
        self.algorithm, self.clients = built.algorithm, built.clients


def _drawn(fixed: _Fixed, assignment, rounds: int):
    """Who computes, who uploads, and the samples of every batch, of some rounds."""
    key = jax.random.key(0)
    # Samples that are their own numbers: a batch says which they are.
    count = fixed.clients.source.num_samples
    numbers = samples.Arrays(jnp.arange(count), jnp.zeros(count, jnp.int32))
    clients = fixed.clients.replace(source=numbers, assignment=assignment)

    def at(round):
        plan = fixed.algorithm.plan(key, round).cycle(0)
        active, _ = plan.flat_active(clients.num_clients)

        def draw(step, client):
            return clients.batch(keys.batch_key(key, round, 0, step, client), client)

        of_step = jax.vmap(draw, (None, 0))
        batches = jax.vmap(of_step)(jnp.arange(len(active)), active)
        return active, plan.upload.reshape(-1), batches.inputs

    return jax.lax.map(at, jnp.arange(rounds))


if __name__ == "__main__":
    main()
