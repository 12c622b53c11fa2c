"""A run in progress, from the first round to the last: its state, and its loop."""

import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax.mesh import quick_to_compile
from afga_jax.runs import folder, processes
from afga_jax.runs.checkpoint import Accept, Checkpoints
from afga_jax.runs.command import Interrupted
from afga_jax.runs.config import Config
from afga_jax.runs.folder import evaluates
from afga_jax.runs.load import load, started_from
from afga_jax.runs.programs import CAPACITY, Programs
from afga_jax.runs.progress import Compilation, Display
from afga_jax.runs.record import DUE, Line, Record, Row, Run, packed, plain
from afga_jax.runs.summary import summarise
from afga_jax.training import client_metrics
from afga_jax.training.engine_choice import Choice
from afga_jax.training.seeds import Watched, keys_of, seeded_init
from afga_jax.typing import PyTree

#: A call of the program takes about this long: Ctrl-C and the bar wait for it.
SECONDS_PER_CALL = 1.0

_TOTALS = ("gradients", "uploads", "gossip_messages", "bytes", "hours")


class Diverged(ValueError):
    """A round's loss, its new model or the server's moments are not finite.

    Attributes:
      round: The first such round, counted from 1.
      seeds: The seeds that diverged there.
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
      config: The run's configuration, whose numbers may differ from those that the
        programs were built with.
      programs: The run's programs, compiled or to be compiled at the first call.

    Attributes:
      keys: Random keys, one for each seed.
      done: Number of rounds so far.
      facts: What the run's record says about data, model and theory.
      seconds: Time spent so far, in all the processes that the run was continued in.
      is_due: Whether the last round is still to be evaluated: who stops a run does not
        wait for that.
    """

    def __init__(self, config: Config, programs: Programs):
        self.config, self.programs = config, programs
        self.facts = programs.experiment.facts
        self.seeds = [config.seed + number for number in range(config.num_seeds)]
        self.keys = keys_of(config.seed, config.num_seeds)
        self._numbers = {
            name: value
            for name in programs.numbers
            if (value := getattr(config, name, None)) is not None
        }
        self._totals = self._no_totals()
        self._latest: list[dict[str, Any]] = []
        self._contained: set[tuple[int, int]] = set()
        self._notes: list[str] = []
        self._inspected: dict[str, jax.Array] = {}
        self._clients: dict[str, Any] | None = None
        self._begun = time.perf_counter()
        self._before, self.done, self.is_due = 0.0, 0, False
        self.state: PyTree = None

    @property
    def seconds(self) -> float:
        return self._before + time.perf_counter() - self._begun

    @property
    def loss(self) -> float:
        """The training loss of the last round, the mean over the seeds."""
        return float(np.mean([row["train_loss"] for row in self._latest]))

    def start(self) -> None:
        """Goes to the state before the first round."""
        self.state = self.programs.trainer.start(
            self.keys, self.programs.experiment.clients, **self._numbers
        )
        if self.config.init_from is not None:
            self.state = started_from(self.state, load(self.config.init_from))
        self._totals = self._no_totals()
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
        self.state, self.is_due = state, False

    def notes(self) -> list[str]:
        """What the user should know of the last rounds; each is said once."""
        notes, self._notes = self._notes, []
        return notes

    def inspect(self) -> None:
        """Measures the clients' models in the next round, for its line of metrics."""
        clients = self.programs.experiment.clients
        self._inspected = self.programs.inspect((self.keys, self.state), clients)

    def measure(self) -> list[dict[str, Any]]:
        """A line of metrics for each seed, about the last round and all before."""
        experiment = self.programs.experiment
        model = (self.state.params, self.state.stats)
        metrics = self.programs.evaluate(model, experiment.test, experiment.clients)
        metrics = jax.device_get({**metrics, **self._inspected})
        if "clients" in metrics:
            each = client_metrics.on_host(metrics.pop("clients"), experiment.clients)
            metrics |= each.summary()
            about = {"round": self.done, "seeds": self.seeds, "sizes": each.sizes}
            self._clients = {**about, **each.values}
        return [
            {
                "seed": seed,
                "round": self.done,
                **self._latest[row],
                **{name: value[row] for name, value in metrics.items()},
                **self._sums(row),
                "seconds": round(self.seconds, 3),
            }
            for row, seed in enumerate(self.seeds)
        ]

    def open(self, writer: Record, choice: Choice, **about: Any) -> list[Row]:
        """Writes the settings; returns the lines of metrics that the run goes on from.

        Args:
          writer: Writes the run's files.
          choice: The engine, which the record's facts name.
          **about: More entries for `config.json`.
        """
        self.facts = {**self.facts, "engine": choice.record}
        own = {"identity": self.identity, "facts": self.facts}
        writer.configure(self.config.to_dict(), **own, **about)
        known = self.done - self.is_due
        # A run that had fewer rounds evaluated the last of those; this one would not.
        return writer.resume(
            lambda row: row["round"] <= known and evaluates(self.config, row["round"])
        )

    def write(self, writer: Record) -> list[Row]:
        """Measures and writes: a line for each seed, and every client's metrics."""
        rows, self.is_due = writer.write(self.measure()), False
        if self._clients is not None:
            writer.write_clients(self._clients)
        return rows

    @functools.cached_property
    def _plan(self) -> Callable:
        """Who takes part in a round, compiled."""
        plan = self.programs.experiment.algorithm.plan
        return jax.jit(plan, compiler_options=quick_to_compile())

    @functools.cached_property
    def identity(self) -> str:
        """Names the run, for its folder and its states."""
        availability = self.facts.get("availability")
        return folder.identity(self.config, self.programs.checksum, availability)

    def check_begun(self, before: Run, out: Path) -> None:
        """Refuses to go on with what is in a folder where it is another run."""
        availability = self.facts.get("availability")
        folder.check_begun(before, self.config, self.identity, out, availability)

    def save(self, checkpoints: Checkpoints, lines: Sequence[Line]) -> None:
        """Saves the state, unless it is there already.

        Args:
          checkpoints: The run's states.
          lines: What is noted of the lines of metrics that belong to it.
        """
        if self.done not in checkpoints.steps():
            about = {"identity": self.identity, "lines": packed(lines)}
            if self.is_due:
                inspected = jax.device_get(self._inspected)
                measured = {k: np.asarray(v).tolist() for k, v in inspected.items()}
                about[DUE] = json.dumps([plain(self._latest), measured])
            checkpoints.save(self.done, self._saved(), about)

    def restore(self, checkpoints: Checkpoints, accept: Accept | None = None) -> bool:
        """Goes to the newest saved state; False: there is none.

        Args:
          checkpoints: The run's states.
          accept: Looks at what the state says of itself, as for `Checkpoints.restore`.
        """
        init = seeded_init(self.programs.experiment.algorithm.init)
        self.state = jax.eval_shape(init, self.keys)
        noted: dict[str, Any] = {}

        def look(about: dict[str, Any], path: Path) -> None:
            noted.update(about)
            if accept is not None:
                accept(about, path)

        saved = checkpoints.restore(self._saved(), look)
        if saved is None:
            return False
        self.done, content = saved
        # One that had fewer rounds may have been about to evaluate what this does not.
        self.is_due = DUE in noted and evaluates(self.config, self.done)
        if self.is_due:
            self._latest, self._inspected = json.loads(noted[DUE])
        # A copy, since the memory of a state is given away with it; on a mesh no
        # single device may have room for it.
        mesh = self.programs.trainer.execution.mesh
        copy = jnp.array if mesh is None else np.array
        self.state = jax.tree.map(lambda x: copy(x, copy=True), content["state"])
        self._totals = content["totals"]
        self._before = float(content["seconds"])
        self._begun = time.perf_counter()
        return True

    def go_on(self, checkpoints: Checkpoints, before: Run | None, out: Path) -> None:
        """Goes to the newest state of the run in a folder, or before the first round.

        Args:
          checkpoints: The run's states.
          before: What the folder holds; None: nothing.
          out: The run's folder.

        Raises:
          ValueError: What is there does not belong together; nothing was changed.
        """
        accept = lambda about, path: folder.check_state(  # noqa: E731
            about, path, before, self.identity
        )
        if not self.restore(checkpoints, accept):
            folder.check_unsaved(before, out)
            self.start()

    def rewind(self, checkpoints: Checkpoints, done: int) -> None:
        """Goes back to a round, by repeating those since the last saved state."""
        seconds = self.seconds
        if not self.restore(checkpoints):
            self.start()
        while self.done < done:
            self.advance(min(CAPACITY, done - self.done))
        self._before, self._begun = seconds, time.perf_counter()

    def _no_totals(self) -> dict[str, np.ndarray]:
        algorithm = self.programs.experiment.algorithm
        names = list(_TOTALS)
        if algorithm.options.faults is not None and algorithm.recipe.server is not None:
            names.append("empty_rounds")
        if algorithm.recipe.contain:
            names.append("contained")
        return {name: np.zeros(len(self.seeds)) for name in names}

    def _saved(self) -> PyTree:
        seconds = np.float64(self.seconds)
        return {"state": self.state, "totals": self._totals, "seconds": seconds}

    def _account(self, info: PyTree, row: int) -> dict[str, Any]:
        """Adds a round of one seed to the sums and returns its diagnostics."""
        plan = None
        if self.programs.costs.needs_plan:
            plan = self._plan(self.keys[row], self.done)
        costs = self.programs.costs.per_round(info, self.done, plan)
        spent = {**costs, "gradients": info.gradients, "uploads": info.uploads}
        # Where nothing arrives the model stays what it was.
        spent["empty_rounds"] = int(info.uploads) == 0
        contained = {}
        if jax.tree.leaves(info.contained):
            contained["contained"] = self._contain(info.contained, row)
        spent |= contained
        for name in self._totals:
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
            **({"lost_uploads": info.faults["lost"]} if info.faults else {}),
            **contained,
        }

    def _contain(self, ids: np.ndarray, row: int) -> int:
        """Counts the uploads of a round that were left out; new clients are named."""
        clients = ids[ids < self.config.num_clients].tolist()
        new = sorted(set(clients) - {i for seed, i in self._contained if seed == row})
        if new:
            self._contained |= {(row, client) for client in new}
            names = ", ".join(map(str, new))
            self._notes.append(
                f"round {self.done + 1} of seed {self.seeds[row]}: what client {names} "
                "uploaded is not finite and was left out; a next time is only counted."
            )
        return len(clients)

    def _sums(self, row: int) -> dict[str, Any]:
        sums = {name: total[row] for name, total in self._totals.items()}
        hours = sums.pop("hours")
        whole = {k: None if np.isnan(v) else int(v) for k, v in sums.items()}
        return {**{f"{name}_total": v for name, v in whole.items()}, "hours": hours}


def train(
    training: Training,
    metrics: list[Row],
    *,
    states: Checkpoints,
    writer: Record,
    display: Display,
    interrupted: Callable[[], bool],
    evaluated: Callable[[list[Row]], None] | None = None,
) -> str:
    """Trains to the last round, or to the target.

    Args:
      training: The run, at the round where it goes on.
      metrics: Rows that were measured so far; new ones are appended.
      states: The folder of saved states.
      writer: Writes the metrics.
      display: Shows the progress to the user.
      interrupted: Whether the user wants to stop.
      evaluated: Called with all rows so far after each evaluation; None: nothing is.

    Returns:
      Why it ended: `rounds` or `target`.

    Raises:
      Interrupted: The state is saved, and a due evaluation left to who goes on.
      Diverged: It is not.
    """
    config, pace = training.config, None
    every = config.checkpoint_every or config.eval_every

    def stopped() -> bool:
        return processes.any_of(interrupted()) and training.done < config.rounds

    def evaluate() -> None:
        rows = training.write(writer)
        metrics.extend(rows)
        display.evaluated(rows)
        if evaluated is not None:
            evaluated(metrics)

    if training.is_due:
        evaluate()
    while training.done < config.rounds and not reached(config, metrics):
        pace = _advance(training, display, every, pace)
        stops = stopped()
        if evaluates(config, training.done):
            training.is_due = stops
            if not stops:
                evaluate()
                stops = stopped()
        if stops or training.done % every == 0:
            _save(training, states, writer)
        if stops:
            raise Interrupted
    _save(training, states, writer)
    return "rounds" if training.done == config.rounds else "target"


def reached(config: Config, metrics: Sequence[Row]) -> bool:
    """Whether all seeds have reached a target that the run stops at."""
    if not config.stop_at_target:
        return False
    return summarise(metrics, target=config.target)["first_round_at_target"] is not None


def _advance(
    training: Training, display: Display, every: int, pace: float | None
) -> float:
    """One call of the program; returns the seconds that one of its rounds took."""
    compilation, before = Compilation(), training.done
    rounds = 1 if pace is None else _rounds_now(training, every, pace)
    if training.programs.inspects and evaluates(training.config, before + 1):
        training.inspect()
        rounds = 1
    spent = _timed(training, rounds) / rounds
    if pace is None:
        # Compiling happens inside the first call and must not count as a round.
        spent = processes.agreed(max(spent - compilation.seconds, 1e-4))
        if spent < SECONDS_PER_CALL and _is_quiet(training, every):
            spent = _timed(training, 1)  # so short that other beginnings would count
        display.first(training.done, spent, compilation.seconds)
    for note in training.notes():
        display.note(note)
    display.advanced(training.done - before, training.loss)
    return spent


def _timed(training: Training, rounds: int) -> float:
    started = time.perf_counter()
    training.advance(rounds)
    return processes.agreed(time.perf_counter() - started)


def _is_quiet(training: Training, every: int) -> bool:
    """Whether nothing is to be done before and after the next round."""
    config, done = training.config, training.done
    busy = [evaluates(config, number) for number in (done, done + 1)]
    return not any(busy) and done % every != 0


def _rounds_now(training: Training, every: int, pace: float) -> int:
    """Up to the next evaluation or checkpoint, but for about a second only."""
    config, done = training.config, training.done
    rounds = min(until_due(config, done, every), max(1, int(SECONDS_PER_CALL / pace)))
    if training.programs.inspects and evaluates(config, done + rounds):
        return max(1, rounds - 1)  # between the round before and an evaluated one
    return rounds


def until_due(config: Config, done: int, every: int) -> int:
    """Rounds up to the next evaluation or checkpoint, as many as one call may have.

    Args:
      config: The run's configuration.
      done: Number of rounds so far.
      every: Rounds between checkpoints.
    """
    last = min(config.rounds, done + CAPACITY)
    due = (n for n in range(done + 1, last) if n % every == 0 or evaluates(config, n))
    return next(due, last) - done


def _save(training: Training, states: Checkpoints, writer: Record) -> None:
    writer.sync()  # a state on disk means that its metrics are
    training.save(states, writer.lines)
