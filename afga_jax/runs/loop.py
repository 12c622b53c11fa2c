"""A run in progress: its state, and the sums it keeps."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax.checkpoint import Checkpoints
from afga_jax.config import Config
from afga_jax.seeds import Watched, keys_of, seeded_init
from afga_jax.trained import load, started_from
from afga_jax.typing import PyTree
from experiments.programs import CAPACITY, Programs

_TOTALS = ("gradients", "uploads", "gossip_messages", "bytes", "hours")


class Diverged(ValueError):
    """A round's loss, its new model or the server's moments are not finite.

    Attributes:
      round: The first such round, counted from 1.
      seeds: Those it happened to.
    """

    def __init__(self, round: int, seeds: list[int], config: Config):
        self.round, self.seeds = round, seeds
        rates = {"local_lr": config.local_lr, "server_lr": config.server_lr}
        lower = " or ".join(f"{k} (now {v:g})" for k, v in rates.items() if v)
        now = f" (now {config.eps:g})" if config.eps else ""
        super().__init__(
            f"diverged: loss or model became infinite or NaN in round {round} of seed "
            f"{', '.join(map(str, seeds))}: lower {lower}, or raise eps{now}."
        )


class Training:
    """The state of a run, for all its seeds.

    Args:
      config: Its numbers may differ from those that the programs were built with.
      programs: Compiled, or to be compiled at the first call.

    Attributes:
      keys: Of the seeds.
      done: Rounds so far.
      seconds: Spent so far, in all the processes that the run was continued in.
    """

    def __init__(self, config: Config, programs: Programs):
        self.config, self.programs = config, programs
        self.seeds = [config.seed + number for number in range(config.num_seeds)]
        self.keys = keys_of(config.seed, config.num_seeds)
        self._numbers = {
            name: value
            for name in programs.numbers
            if (value := getattr(config, name, None)) is not None
        }
        self._totals = {name: np.zeros(len(self.seeds)) for name in _TOTALS}
        self._latest: list[dict[str, Any]] = []
        self._inspected: dict[str, jax.Array] = {}
        self._begun = time.perf_counter()
        self._before, self.done, self.state = 0.0, 0, None

    @property
    def seconds(self) -> float:
        return self._before + time.perf_counter() - self._begun

    @property
    def loss(self) -> float:
        """The training loss of the last round, the mean over the seeds."""
        return float(np.mean([one["train_loss"] for one in self._latest]))

    def start(self) -> None:
        """Goes to the state before the first round."""
        self.state = self.programs.trainer.start(
            self.keys, self.programs.experiment.clients, **self._numbers
        )
        if self.config.init_from is not None:
            self.state = started_from(self.state, load(self.config.init_from))
        self._totals = {name: np.zeros(len(self.seeds)) for name in _TOTALS}
        self.done = 0

    def advance(self, rounds: int) -> None:
        """Runs some rounds in one call and waits for them.

        Raises:
          Diverged: The state is then lost; see `rewind`.
        """
        data = self.programs.experiment.clients
        state, watched = self.programs.trainer.run(self.keys, self.state, data, rounds)
        self.take(state, jax.device_get(watched))

    def take(self, state: PyTree, watched: Watched) -> None:
        """Some rounds are done: the new state, and the rounds' diagnostics.

        Raises:
          Diverged: Nothing is taken.
        """
        info, finite = watched
        if not finite.all():
            bad = int((~finite).any(1).argmax())
            seeds = [
                s for s, good in zip(self.seeds, finite[bad], strict=True) if not good
            ]
            raise Diverged(self.done + bad + 1, seeds, self.config)
        for number in range(len(finite)):
            self._latest = [
                self._account(jax.tree.map(lambda x: x[number, row], info), row)  # noqa: B023
                for row in range(len(self.seeds))
            ]
            self.done += 1
        self.state = state

    def inspect(self) -> None:
        """Measures the clients' models in the next round, for its line of metrics."""
        clients = self.programs.experiment.clients
        self._inspected = self.programs.inspect((self.keys, self.state), clients)

    def measure(self) -> list[dict[str, Any]]:
        """A line of metrics for each seed, about the last round and all before."""
        experiment = self.programs.experiment
        model = (self.state.params, self.state.stats)
        found = self.programs.evaluate(model, experiment.test, experiment.clients)
        found = jax.device_get({**found, **self._inspected})
        return [
            {
                "seed": seed,
                "round": self.done,
                **self._latest[row],
                **{name: value[row] for name, value in found.items()},
                **self._sums(row),
                "seconds": round(self.seconds, 3),
            }
            for row, seed in enumerate(self.seeds)
        ]

    def save(self, checkpoints: Checkpoints) -> None:
        """Saves the state, unless it is there already."""
        if self.done not in checkpoints.steps():
            checkpoints.save(self.done, self._saved())

    def restore(self, checkpoints: Checkpoints) -> bool:
        """Goes to the newest saved state; False: there is none."""
        init = seeded_init(self.programs.experiment.algorithm.init)
        self.state = jax.eval_shape(init, self.keys)
        found = checkpoints.restore(self._saved())
        if found is None:
            return False
        self.done, content = found
        # A copy, since the memory of a state is given away with it; on a mesh no
        # single device may have room for it.
        mesh = self.programs.trainer.execution.mesh
        copy = jnp.array if mesh is None else np.array
        self.state = jax.tree.map(lambda x: copy(x, copy=True), content["state"])
        self._totals = content["totals"]
        self._before = float(content["seconds"])
        self._begun = time.perf_counter()
        return True

    def rewind(self, checkpoints: Checkpoints, done: int) -> None:
        """Goes back to a round, by repeating those since the last saved state."""
        seconds = self.seconds
        if not self.restore(checkpoints):
            self.start()
        while self.done < done:
            self.advance(min(CAPACITY, done - self.done))
        self._before, self._begun = seconds, time.perf_counter()

    def _saved(self) -> PyTree:
        seconds = np.float64(self.seconds)
        return {"state": self.state, "totals": self._totals, "seconds": seconds}

    def _account(self, info: PyTree, row: int) -> dict[str, Any]:
        """Adds a round of one seed to the sums and returns its diagnostics."""
        plan = None
        if self.programs.costs.needs_plan:
            algorithm = self.programs.experiment.algorithm
            plan = algorithm.plan(self.keys[row], self.done)
        costs = self.programs.costs.per_round(info, self.done, plan)
        spent = {**costs, "gradients": info.gradients, "uploads": info.uploads}
        for name in _TOTALS:
            value = spent[name]
            self._totals[name][row] += np.nan if value is None else float(value)
        return {
            "train_loss": info.loss,
            **{f"train_{name}": value for name, value in info.metrics.items()},
            "spread": info.spread,
            "delta_norm": info.delta_norm,
            "gradients": info.gradients,
            "needed": info.needed,
            "uploads": info.uploads,
            "zero_uploads": float(info.idle_uploads) / max(int(info.uploads), 1),
        }

    def _sums(self, row: int) -> dict[str, Any]:
        sums = {name: self._totals[name][row] for name in _TOTALS}
        hours = sums.pop("hours")
        whole = {f"{name}_total": _whole(value) for name, value in sums.items()}
        return {**whole, "hours": hours}


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else int(value)
