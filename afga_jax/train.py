"""Compiled rounds: many in one program, for one seed or several.

`jit` lives here. The state is donated: its memory is reused for the next one, so do not
use a state after you passed it on.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from afga_jax import checks, engine
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.engine import Choice
from afga_jax.recipe import FederatedState, RoundInfo
from afga_jax.typing import Array, ClientData, PyTree

# Rounds that are scheduled while others run.
_AHEAD = 8


class Trainer:
    """One algorithm's compiled functions; keep it, and nothing compiles twice.

    Args:
      algorithm: From `build`.
      capacity: The largest number of rounds in one call of `run`. The number of rounds
        is an argument of the program, so one program serves any number up to that.

    Attributes:
      choice: The engine that runs the rounds, and why; None before it is known.
    """

    def __init__(self, algorithm: FederatedAlgorithm, *, capacity: int = 100):
        checks.integer("capacity", capacity)
        self.algorithm = algorithm
        self.capacity = capacity
        self.choice: Choice | None = None
        self._schedules = None
        self._pooled = None
        rounds = functools.partial(_rounds, algorithm)
        self._init = jax.jit(algorithm.init)
        self._run = jax.jit(rounds, donate_argnames="state", static_argnames="capacity")

    def init(self, key: Array, **numbers: float) -> FederatedState:
        """The state before the first round, built by one program."""
        for name, value in numbers.items():
            self.algorithm.options.replace(**{name: value})
        return self._init(key, **numbers)

    def run(
        self, key: Array, state: FederatedState, data: ClientData, rounds: int
    ) -> tuple[FederatedState, RoundInfo]:
        """Runs some rounds in one program.

        Args:
          key: The run's key, the same for all rounds and for `init`.
          state: Donated.
          data: The clients' data.
          rounds: At most `capacity`.

        Returns:
          The new state, and the diagnostics with a leading axis of rounds.
        """
        checks.integer("rounds", rounds)
        if rounds > self.capacity:
            raise ValueError(
                f"rounds = {rounds}, but it must be <= capacity = {self.capacity}: "
                "call run several times, or raise capacity."
            )
        data = self._prepared(data)
        self.choose(key)
        if self._schedules is None:
            capacity = self.capacity
            state, infos = self._run(
                key, state=state, data=data, rounds=rounds, capacity=capacity
            )
            return state, jax.tree.map(lambda x: x[:rounds], infos)
        return self._run_scheduled(key, state, data, rounds)

    def choose(self, key: Array) -> Choice:
        """Decides on the engine, once; `run` does it by itself.

        Args:
          key: The run's.
        """
        if self.choice is None:
            self.choice, self._schedules = engine.choose(self.algorithm, key)
        return self.choice

    def _run_scheduled(self, key, state, data, rounds: int):
        """A few rounds at a time: while they run, the host schedules the next."""
        first, parts = int(jnp.ravel(state.round)[0]), []
        ahead = min(_AHEAD, self.capacity)
        for begin in range(0, rounds, ahead):
            count = min(ahead, rounds - begin)
            numbers = range(first + begin, first + begin + ahead)
            state, infos = self._run(
                key,
                state=state,
                data=data,
                rounds=count,
                capacity=ahead,
                schedule=self._schedules(key, numbers),
            )
            parts.append(jax.tree.map(lambda x: x[:count], infos))  # noqa: B023
        return state, jax.tree.map(lambda *x: jnp.concatenate(x), *parts)

    def _prepared(self, data: ClientData) -> ClientData:
        """Pools the data of a centralised algorithm, once, before it is traced."""
        if not self.algorithm.recipe.pooled or len(data.sizes) == 1:
            return data
        if self._pooled is None or self._pooled[0] is not data:
            self._pooled = (data, data.pooled())
        return self._pooled[1]


def fit(
    algorithm: FederatedAlgorithm, data: ClientData, *, key: Array, rounds: int
) -> tuple[FederatedState, RoundInfo]:
    """Trains from scratch; the shortest way to a result.

    Args:
      algorithm: From `build`.
      data: The clients' data; no client may be empty.
      key: The run's key; everything random follows from it.
      rounds: R.

    Returns:
      The final state, and the diagnostics with a leading axis of rounds.
    """
    checks.integer("rounds", rounds)
    check_clients(data, algorithm.options.num_clients)
    trainer = Trainer(algorithm, capacity=rounds)
    return trainer.run(key, trainer.init(key), data, rounds)


def over_seeds(function: Callable[[Array], PyTree], keys: Array) -> PyTree:
    """Runs a function of a key for several keys in one program.

    By `vmap` on accelerators; one after another on CPU, where batching over seeds would
    batch the weights and slow every layer down.

    Args:
      function: A pure function of one key.
      keys: `[seeds]`.
    """
    if jax.default_backend() == "cpu":
        return jax.lax.map(function, keys)
    return jax.vmap(function)(keys)


def check_clients(data: ClientData, num_clients: int) -> None:
    """Refuses a client without samples: it could not draw a batch."""
    sizes = data.sizes
    if not isinstance(sizes, jax.Array) or isinstance(sizes, jax.core.Tracer):
        return
    if len(sizes) == num_clients and int(sizes.min()) < 1:
        raise ValueError(
            f"client {int(sizes.argmin())} has {int(sizes.min())} samples, but each "
            "must have >= 1: leave it out, or use another partition."
        )


def _rounds(algorithm, key, *, state, data, rounds, capacity, schedule=None):
    """`rounds` rounds; with a schedule, `[capacity, ...]`, by the span engine."""

    def one(number, state):
        given = ()
        if schedule is not None:
            given = (None, jax.tree.map(lambda x: x[number], schedule))
        return algorithm.round(key, state, data, *given)

    shape = jax.eval_shape(one, 0, state)[1]
    empty = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), shape)

    def add(number, carry):
        state, infos = carry
        state, info = one(number, state)
        infos = jax.tree.map(lambda all_, x: all_.at[number].set(x), infos, info)
        return state, infos

    return jax.lax.fori_loop(0, rounds, add, (state, empty))
