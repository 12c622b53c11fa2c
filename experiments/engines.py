"""The engine of a run: the one it began with, and whether its memory is there."""

from afga_jax import memory
from afga_jax.engine import Choice
from afga_jax.experiment import Experiment
from afga_jax.record import Run
from afga_jax.seeds import keys_of
from experiments.training import Training


def as_begun(experiment: Experiment, before: Run | None) -> Experiment:
    """With the engine that a run began with: what is measured now may differ.

    Args:
      experiment: Of the same configuration.
      before: What is there of the run; None: nothing.
    """
    recorded = ((before and before.facts) or {}).get("engine", {})
    algorithm = experiment.algorithm
    options = algorithm.options.replace(**recorded)
    return experiment._replace(algorithm=algorithm._replace(options=options))


def fitting(training: Training) -> Choice:
    """The engine of a run that is about to start, with the memory that it will take.

    Raises:
      ValueError: There is not as much.
    """
    config, programs = training.config, training.programs
    choice = programs.trainer.choose(keys_of(config.seed, config.num_seeds))
    choice = choice.holding(programs.experiment.clients)
    memory.check_fits(choice.run, choice.other)
    return choice
