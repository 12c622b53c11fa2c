"""How a run is computed: its devices, its engine, and whether its memory is there."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from afga_jax import mesh as meshes
from afga_jax.rounds.execution import Execution
from afga_jax.runs import processes
from afga_jax.runs.config import Config
from afga_jax.runs.experiment import most_active
from afga_jax.runs.loop import Training
from afga_jax.runs.record import Run
from afga_jax.training import engine_choice, flops, memory
from afga_jax.training.engine_choice import Choice
from afga_jax.training.seeds import keys_of
from afga_jax.training.trainer import AHEAD

# The share of the memory from which on a run is looked at more closely.
_SCARCE = 0.25
# What can be changed so that a run fits, by the names of settings.
_REMEDIES = {
    "engine": "engine={}",
    "devices": "cpu_devices={}",
    "seeds": "num_seeds={}",
    "chunk": "client_chunk={}",
    "slot_width": "wave_width={}",
    "clients": "num_clients={}",
}
# Seconds of planning that a user is told of, and seconds per pair of a cycle's
# gradients: 1.7e-7 to 2.5e-7 were measured for afga and afga_adapted.
_LONG, _SECONDS_PER_PAIR = 30.0, 2e-7


def wanted(given: Mapping[str, Any]) -> int | None:
    """CPU devices that a user's choices ask for; None: nothing does."""
    if given.get("cpu_devices") or not given.get("mesh"):
        return given.get("cpu_devices")
    devices = math.prod(meshes.parse(given["mesh"]).values())
    return -(-devices // (given.get("num_processes") or 1))


def mesh_of(config: Config, *, fill: bool = False) -> Mesh | None:
    """The mesh of a run; None: none was asked for. Several processes always have one.

    Args:
      config: The run's configuration.
      fill: Whether the number of seeds may be any, since copies will fill it up.

    Raises:
      ValueError: It has more devices than there are, or does not divide the work.
    """
    if config.mesh is None and not processes.are_several():
        return None
    everything = {"clients": jax.device_count()}
    axes = everything if config.mesh is None else meshes.parse(config.mesh)
    seeds: dict[str, Any] = {} if fill else {"seeds": config.num_seeds}
    return meshes.make_mesh(axes, clients=config.num_clients, **seeds)


def use(count: int | None = None) -> None:
    """Lets JAX see that many CPU devices; call it before JAX does anything.

    XLA on CPU spreads single operations over the cores, which leaves them waiting for
    each other in small ones. With a device per core each computes another client's
    gradient. Where JAX has started already, or the number of devices is set by its own
    means (`XLA_FLAGS`, `JAX_NUM_CPU_DEVICES`), nothing is changed.

    Args:
      count: Devices; None: the cores that this process may use.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "host_platform_device_count" in flags or "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    known = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", count or cores)


def execution_of(
    config: Config, before: Run | None = None, *, fill: bool = False
) -> Execution:
    """How a run is computed, from its settings.

    Args:
      config: The run's configuration.
      before: What is there of the run; it keeps the engine that it began with.
      fill: Whether the number of seeds may be any, as for `mesh_of`.
    """
    begun = ((before and before.facts) or {}).get("engine", {})
    return Execution(
        engine=begun.get("engine") or config.engine or "auto",
        chunk=config.client_chunk,
        slot_width=begun.get("wave_width") or config.wave_width,
        mesh=mesh_of(config, fill=fill),
    )


def fitting(training: Training, note: Callable[[str], None]) -> Choice:
    """The engine of a run that is about to start, with the memory that it will take.

    Only where memory is scarce is it looked at more closely, with the values inside a
    gradient and the other engine: that takes the trace of a loss and some schedules.

    Args:
      training: Run that is about to start.
      note: Function that tells the user what takes long.

    Raises:
      ValueError: The memory is not there.
    """
    config, experiment = training.config, training.programs.experiment
    keys, algorithm = keys_of(config.seed, config.num_seeds), experiment.algorithm
    trainer = training.programs.trainer
    if trainer.choice is None:
        _announce_planning(training, note)
    choice = trainer.choose(keys, experiment.clients)
    parts = trainer.parts(experiment.clients)
    choice = choice.holding(experiment.clients, parts=parts)
    limit = memory.available()
    if limit is None or choice.run.total <= _SCARCE * limit:
        return choice
    if choice.engine == "dense" and choice.other is None:
        other = engine_choice.alternative(algorithm, keys)
        choice = dataclasses.replace(choice, other=other)
    full_batch = algorithm.recipe.full_batch
    work = flops.count(experiment.task, experiment.clients, full_batch=full_batch)
    choice = choice.holding(experiment.clients, work, parts=parts)
    memory.check_fits(choice.run, choice.other, limit=limit, remedies=_REMEDIES)
    return choice


def _announce_planning(training: Training, note: Callable[[str], None]) -> None:
    """Tells the user of schedules that take long to make."""
    config, experiment = training.config, training.programs.experiment
    algorithm, execution = experiment.algorithm, training.programs.trainer.execution
    pairs = (algorithm.options.local_steps * algorithm.options.num_clients) ** 2
    if config.num_seeds * AHEAD * pairs * _SECONDS_PER_PAIR <= _LONG:
        return  # even if everybody computes at every step
    # About how long schedules of a block of rounds take to make.
    cycles, *steps = most_active(algorithm)
    pairs = cycles * math.prod(steps) ** 2
    seconds = config.num_seeds * AHEAD * pairs * _SECONDS_PER_PAIR
    keys = keys_of(config.seed, config.num_seeds)
    if seconds > _LONG and engine_choice.takes_span(
        algorithm, keys, execution, experiment.clients
    ):
        note(
            f"the span engine first plans the gradients of {AHEAD} rounds, which may "
            f"take {seconds / 60:,.0f} min: take fewer local_steps, or engine=dense, "
            "which plans none."
        )
