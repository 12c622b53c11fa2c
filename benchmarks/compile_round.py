"""Compiles one round for an accelerator that is not there, and counts what it does.

    python -m benchmarks.compile_round TARGET '{"algorithm": "afga", ...}' KEPT

A process of the environment that `benchmarks.accelerators` makes; it prints the figures
as JSON. What the compiler returned is kept in the folder `KEPT`, by the round's
unoptimised program: the same program is not compiled twice.
"""

import contextlib
import functools
import gzip
import hashlib
import json
import os
import pathlib
import sys
import time
from typing import Any

from benchmarks import targets

STEPS, BATCH, ALPHABET, WINDOW = 24, 50, 80, 80
CLASSES = 10
#: Samples' shape, their number, and local steps, where they are not 24.
SHAPES = {
    "convmixer": ((32, 32, 3), 50_000),
    "resnet18": ((32, 32, 3), 50_000),
    "mlp": ((28, 28, 1), 60_000),
    "lstm": ((WINDOW,), 4_000_000),
}


def main(target_name: str, case: dict[str, Any], kept: pathlib.Path) -> dict[str, Any]:
    """The figures of a case."""
    target = targets.TARGETS[target_name]
    os.environ.update(targets.environment(target))
    import jax

    # Programs of this process are for the target alone, though JAX sees a CPU.
    jax.default_backend = lambda: "gpu" if target.platform == "cuda" else "tpu"
    from benchmarks import collectives, hlo

    started = time.perf_counter()
    lowered, about = _lowered(target, **case)
    about["lowering"] = time.perf_counter() - started
    text, memory = _compiled(target_name, lowered, kept)
    counts = hlo.Program(text, case["num_clients"]).counts()
    parts = counts._asdict()
    figures = {
        name: part._asdict() if isinstance(part, hlo.Part) else part
        for name, part in parts.items()
    }
    if case.get("mesh"):
        sent: dict[str, float] = {}
        steps = about["steps"] / (counts.trips or about["steps"])
        for one in collectives.found(text):
            if one.looped:
                models = one.bytes / about["model"] / steps
                sent[one.name] = sent.get(one.name, 0) + models
        about["collectives"] = sent
    return {**figures, **about, "memory": memory}


def _compiled(target: str, lowered, kept: pathlib.Path) -> tuple[str, dict[str, Any]]:
    """The optimised program and its memory, from an earlier run where there was one."""
    name = hashlib.sha256((target + lowered.as_text()).encode()).hexdigest()[:32]
    path = kept / f"{name}.json.gz"
    if path.exists():
        found = json.loads(gzip.decompress(path.read_bytes()))
        return found["text"], found["memory"]
    started = time.perf_counter()
    compiled = lowered.compile()
    seconds = time.perf_counter() - started
    account = compiled.memory_analysis()
    memory = {
        "arguments": account.argument_size_in_bytes,
        "outputs": account.output_size_in_bytes - account.alias_size_in_bytes,
        "temporary": account.temp_size_in_bytes,
        "compile_seconds": seconds,
    }
    found = {"text": compiled.as_text(), "memory": memory}
    kept.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(".part")
    written.write_bytes(gzip.compress(json.dumps(found).encode()))
    written.rename(path)
    return found["text"], memory


def _lowered(
    target: targets.Target,
    algorithm: str,
    model: str,
    engine: str,
    num_clients: int,
    active: int,
    local_steps: int = STEPS,
    seeds: int = 1,
    mesh: int = 0,
    dtype: str = "float32",
    **options: Any,
):
    """A round for a target, before it is compiled, and what is known of it."""
    import jax
    from jax.sharding import SingleDeviceSharding

    import afga_jax
    from afga_jax.mesh import CLIENTS, make_mesh
    from afga_jax.rounds.client_blocks import can_be_split, split
    from afga_jax.rounds.client_step import is_stateful
    from afga_jax.rounds.execution import Execution
    from afga_jax.training import flops, memory
    from afga_jax.training.placement import placement
    from afga_jax.training.planner import Planner
    from afga_jax.training.seeds import keys_of, seeded_init, seeded_round

    task, clients = _task(model, dtype), _clients(model, num_clients)
    built = afga_jax.build(
        algorithm,
        task,
        num_clients=num_clients,
        active=active,
        local_steps=local_steps,
        **options,
    )
    key = keys_of(0, seeds) if seeds > 1 else jax.random.key(0)
    state = jax.eval_shape(seeded_init(built.init), key)
    work = flops.count(task, clients)
    one = jax.eval_shape(built.init, jax.random.key(0))
    about = {
        "model": memory.bytes_of((one.params, one.stats)),
        "dtype": dtype,
        "steps": local_steps,
    }
    width = 8 if engine == "span" else None
    stateful = is_stateful(built.recipe, one.params)
    plans, schedules = Planner(built, width, stateful=stateful)(key, range(8))
    plan, schedule = jax.tree.map(lambda x: x[0], (plans, schedules))
    computing = plan.cycles.active.shape[-2:]
    at_once = width or int(computing[0] * computing[1])
    about["turns"] = float(local_steps if width is None else schedules.slots.mean())
    about["operations"] = seeds * work.operations * at_once
    about["gradients"] = at_once * seeds
    here = targets.devices(target)
    execution = Execution()
    if mesh:
        devices = make_mesh({CLIENTS: mesh}, here)
        execution = Execution(mesh=devices)
        where = placement(devices, key, blocks=engine == "dense")
        if can_be_split(clients, built.recipe):
            clients = split(clients, built.recipe, mesh)
        placed = functools.partial(_placed, where, clients)
        shardings = {
            "out_shardings": (where.shardings("state"), where.shardings("key"))
        }
    else:
        device = SingleDeviceSharding(here[0])
        placed = lambda name, tree: jax.tree.map(  # noqa: E731
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), tree
        )
        shardings = {}
    run = seeded_round(built.round, lambda _, info: info)
    program = jax.jit(
        functools.partial(run, execution=execution), donate_argnums=1, **shardings
    )
    arguments = [("key", key), ("state", state), ("data", clients), ("key", plan)]
    if schedule is not None:
        arguments.append(("key", schedule))
    return program.lower(*(placed(*each) for each in arguments)), about


def _placed(where, data, name, tree):
    """Shapes of an argument, as they lie on a mesh."""
    import jax

    shape = lambda x, at: jax.ShapeDtypeStruct(  # noqa: E731
        x.shape, x.dtype, sharding=at
    )
    return jax.tree.map(
        lambda at, part: jax.tree.map(lambda x: shape(x, at), part),
        where.shardings(name, data),
        tree,
    )


def _task(model: str, dtype: str):
    from afga_jax import models

    how = {"dtype": None if dtype == "float32" else dtype}
    if model == "lstm":
        return models.next_character(models.create(model, ALPHABET), WINDOW, **how)
    return models.classifier(models.create(model, CLASSES), SHAPES[model][0], **how)


def _clients(model: str, num_clients: int):
    """Zeros in place of the papers' data, of the same size: only shapes are read."""
    import numpy as np

    from afga_jax import data

    shape, count = SHAPES[model]
    held = data.partition.by_client(np.arange(min(count, 60_000)) % num_clients)
    if model == "lstm":
        source = data.samples.Windows(np.zeros(count, np.uint8), WINDOW)
    else:
        source = data.samples.images(
            np.zeros((count, *shape), np.uint8),
            np.zeros(count, np.int32),
            mean=np.zeros(shape[-1]),
            std=np.ones(shape[-1]),
            augment=model != "mlp",
        )
    return data.client_data(source, held, batch_size=BATCH)


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        found = main(sys.argv[1], json.loads(sys.argv[2]), pathlib.Path(sys.argv[3]))
    print(json.dumps(found))
