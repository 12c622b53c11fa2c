"""The engine of a run: the one it began with, and whether its memory is there."""

import dataclasses

from afga_jax import engine, gradient, memory
from afga_jax.config import Config
from afga_jax.engine import Choice
from afga_jax.execution import Execution
from afga_jax.record import Run
from afga_jax.seeds import keys_of
from experiments import cores
from experiments.training import Training

# The share of the memory from which on a run is looked at more closely.
_SCARCE = 0.25


def execution_of(
    config: Config, before: Run | None = None, *, fill: bool = False
) -> Execution:
    """How a run is computed, from its settings.

    Args:
      config: The run's.
      before: What is there of the run; it keeps the engine that it began with.
      fill: As for `cores.mesh_of`.
    """
    begun = ((before and before.facts) or {}).get("engine", {})
    return Execution(
        engine=begun.get("engine") or config.engine or "auto",
        chunk=config.client_chunk,
        slot_width=begun.get("wave_width") or config.wave_width,
        mesh=cores.mesh_of(config, fill=fill),
    )


def fitting(training: Training) -> Choice:
    """The engine of a run that is about to start, with the memory that it will take.

    Only where memory is scarce is it looked at more closely, with the values inside a
    gradient and the other engine: that takes the trace of a loss and some schedules.

    Raises:
      ValueError: There is not as much.
    """
    config, experiment = training.config, training.programs.experiment
    keys, algorithm = keys_of(config.seed, config.num_seeds), experiment.algorithm
    trainer = training.programs.trainer
    choice = trainer.choose(keys, experiment.clients)
    parts = trainer.parts(experiment.clients)
    choice = choice.holding(experiment.clients, parts=parts)
    limit = memory.available()
    if limit is None or choice.run.total <= _SCARCE * limit:
        return choice
    if choice.engine == "dense" and choice.other is None:
        other = engine.alternative(algorithm, keys)
        choice = dataclasses.replace(choice, other=other)
    full_batch = algorithm.recipe.full_batch
    work = gradient.count(experiment.task, experiment.clients, full_batch=full_batch)
    choice = choice.holding(experiment.clients, work, parts=parts)
    memory.check_fits(choice.run, choice.other, limit=limit)
    return choice
