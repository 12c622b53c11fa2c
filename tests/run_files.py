"""Runs of toy problems, and what makes two of them the same."""

import signal

import jax
import numpy as np

import afga_jax
import toy
from afga_jax.runs import devices
from afga_jax.runs.checkpoint import Checkpoints
from afga_jax.runs.config import Config
from afga_jax.runs.experiment import Experiment
from afga_jax.runs.loop import Training
from afga_jax.runs.programs import Programs
from afga_jax.runs.progress import Display

CONFIG = Config(
    rounds=7, eval_every=2, checkpoint_every=50, num_clients=8, target=0.5, eps=1e-8
)


def programs(algo="afga", more=None, **changes):
    """Of a logistic regression with a running mean, for eight clients.

    Args:
      algo: The algorithm.
      more: Options that settings have no plain value for.
      **changes: Other settings.
    """
    config = CONFIG.replace(algo=algo, **changes)
    clustered = algo.startswith(("cafga", "fedcluster", "hafed", "tthf"))
    options = {"num_clusters": 2, "mix_every": 1} if clustered else {}
    task = toy.logistic(norm=algo != "sgd")
    algorithm = afga_jax.build(
        algo, task, num_clients=8, active=4, local_steps=2, **options, **(more or {})
    )
    every = toy.clients(8, samples=20).pooled().full(0)
    facts = {"dataset": "toy", "stand_in": False, "parameters": 8, "notes": []}
    experiment = Experiment(config, task, algorithm, toy.clients(8), every, facts)
    return Programs(experiment, devices.execution_of(config))


class Interrupting(Display):
    """Presses Ctrl-C after a round."""

    def __init__(self, round):
        super().__init__(quiet=True)
        self.round, self.done = round, None

    def begin(self, config, facts, folder, done):
        self.done = done

    def advanced(self, rounds, loss):
        self.done += rounds
        if self.done >= self.round:
            self.round = float("inf")
            signal.raise_signal(signal.SIGINT)


def without_time(metrics):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in metrics]


def final(run, programs):
    """The newest saved state and sums, without the time."""
    training = Training(Config.from_dict(run.config), programs)
    assert training.restore(Checkpoints(run.folder / "checkpoints"))
    saved = training._saved()
    del saved["seconds"]
    return training.done, jax.device_get(saved)


def assert_same(first, second, programs):
    """Bit for bit, but for the time."""
    assert without_time(first.metrics) == without_time(second.metrics)
    (done, state), (other_done, other) = final(first, programs), final(second, programs)
    assert done == other_done
    jax.tree.map(np.testing.assert_array_equal, state, other)
