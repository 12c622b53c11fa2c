"""From the first round to the last: train, evaluate, save, listen to Ctrl-C."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from afga_jax.checkpoint import Checkpoints
from afga_jax.config import Config
from afga_jax.record import Record
from afga_jax.summary import FINAL_ROUNDS, summarise
from experiments import processes
from experiments.interrupts import Interrupted
from experiments.programs import CAPACITY
from experiments.progress import Compilation, Display
from experiments.training import Training

Row = dict[str, Any]

#: A call of the program takes about this long: Ctrl-C and the bar wait for it.
SECONDS_PER_CALL = 1.0


def train(
    training: Training,
    metrics: list[Row],
    *,
    states: Checkpoints,
    writer: Record,
    display: Display,
    interrupted: Callable[[], bool],
) -> str:
    """Trains to the last round, or to the target.

    Args:
      training: Where the run stands.
      metrics: What was measured so far; what follows is appended.
      states: Where states are saved.
      writer: Of the metrics.
      display: Who is told.
      interrupted: Whether the user wants to stop.

    Returns:
      Why it ended: `rounds` or `target`.

    Raises:
      Interrupted: The state is saved.
      Diverged: It is not.
    """
    config, pace = training.config, None
    every = config.checkpoint_every or config.eval_every
    while training.done < config.rounds and not reached(config, metrics):
        pace = _advance(training, display, every, pace)
        if evaluates(config, training.done):
            rows = writer.write(training.measure())
            metrics += rows
            display.evaluated(rows)
        stops = processes.any_of(interrupted()) and training.done < config.rounds
        if stops or training.done % every == 0:
            _save(training, states, writer)
        if stops:
            raise Interrupted
    _save(training, states, writer)
    return "rounds" if training.done == config.rounds else "target"


def evaluates(config: Config, round: int) -> bool:
    """Whether a round, counted from 1, is evaluated.

    Every `eval_every`-th is, and the last five, whose mean is the final accuracy.
    """
    return round % config.eval_every == 0 or round > config.rounds - FINAL_ROUNDS


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
    ends = [
        done + every - done % every,
        done + config.eval_every - done % config.eval_every,
        max(done + 1, config.rounds - FINAL_ROUNDS + 1),
        done + max(1, int(SECONDS_PER_CALL / pace)),
        done + CAPACITY,
        config.rounds,
    ]
    if training.programs.inspects:  # between the round before and an evaluated one
        ends += [end - 1 for end in ends[1:3] if end - 1 > done]
    return min(ends) - done


def _save(training: Training, states: Checkpoints, writer: Record) -> None:
    writer.sync()  # a state on disk means that its metrics are
    training.save(states)
