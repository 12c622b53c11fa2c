"""Compiled rounds: many in one program, for one seed or several.

`jit` lives here.
"""

import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import checks, keys
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.data.clients import Clients
from afga_jax.mesh import CLIENTS, blocks_of, make_mesh, quick_to_compile
from afga_jax.population.sampling import Plan
from afga_jax.recipe import FederatedState, RoundInfo
from afga_jax.rounds.client_blocks import can_be_split, split
from afga_jax.rounds.execution import Execution
from afga_jax.rounds.round import check_population
from afga_jax.rounds.span.schedule import Schedule
from afga_jax.training import engine_choice
from afga_jax.training.client_metrics import ClientMetrics, evaluate_clients
from afga_jax.training.engine_choice import Choice
from afga_jax.training.evaluate import evaluate
from afga_jax.training.placement import Placement, one_copy, placement
from afga_jax.training.planner import Planner
from afga_jax.training.seeds import seeded_init, seeded_round
from afga_jax.typing import Array, Batch, ClientData, PyTree

#: Rounds of a block: planned by the host while those before run.
AHEAD = 8


class Trainer:
    """One algorithm's compiled functions; keep it, and nothing compiles twice.

    Args:
      algorithm: An algorithm from `build`.
      execution: How rounds are computed: the engine, and on which devices.
      capacity: The largest number of rounds in one call of `run`, a guard. One program
        serves any number: rounds run in blocks, and how many of a block is an argument.
      observe: `(new state, info) -> what run returns of each round`; None: the info.
      donate: Whether `run` takes the memory of the state that it is given for the new
        one: the caller's cannot be used again, and no second one needs room.

    Every method takes the run's key, or `[seeds]` keys of as many runs in one program:
    then states and what is returned of rounds have a leading axis of seeds, too.

    Attributes:
      choice: The engine that runs the rounds, and why; None before it is known.
    """

    def __init__(
        self,
        algorithm: FederatedAlgorithm,
        execution: Execution = Execution(),
        *,
        capacity: int = 100,
        observe: Callable[[FederatedState, RoundInfo], PyTree] | None = None,
        donate: bool = False,
    ):
        checks.integer("capacity", capacity)
        if execution.engine == "span":
            engine_choice.check_span(algorithm)
        self.algorithm, self.execution = algorithm, execution
        self.capacity, self.donate = capacity, donate
        self.choice: Choice | None = None
        self._planner: Planner
        self._run: Any
        self._started: dict[Any, Any] = {}
        self._pooled: tuple[ClientData, ClientData] | None = None
        self._copied: tuple[ClientData, ClientData] | None = None
        self._placement: Placement | None = None
        self._block: tuple[Any, Any] | None = None
        self._spread: tuple[Any, Any] | None = None
        self._round = seeded_round(algorithm.round, observe or (lambda _, info: info))
        self._init = jax.jit(
            seeded_init(algorithm.init), compiler_options=quick_to_compile()
        )

    def init(self, key: Array, **numbers: float) -> FederatedState:
        """The state before the first round, built by one program.

        Args:
          key: The run's key.
          **numbers: Numbers such as `local_lr` in place of those that the algorithm was
            built with.
        """
        self.algorithm.options.replace(**numbers)  # checks them
        return self._init(keys.typed(key), **numbers)

    def start(self, key: Array, data: ClientData, **numbers: float) -> FederatedState:
        """`init`, while the program of the rounds is traced beside it.

        Args:
          key: The run's key.
          data: The clients' data, which `run` will be given.
          **numbers: Numbers such as `local_lr` in place of those that the algorithm was
            built with.
        """
        self.algorithm.options.replace(**numbers)  # checks them
        key = keys.typed(key)
        names = tuple(sorted(numbers))
        if names not in self._started:
            # Plans first: nothing can be traced before they are there.
            self.choose(key, data)
            placed = self._placed_key(key)
            init = self._init.lower(placed, **numbers)
            with ThreadPoolExecutor(1) as beside:
                compiled = beside.submit(init.compile)
                # What `run` will call, from shapes of a state.
                state = jax.eval_shape(self._init, key, **numbers)
                plans = self._plans_of(key, 0)
                _, _, placed_data = self._placed(key, None, self._prepared(data))
                block = {"plans": plans, "begin": 0, "rounds": 1}
                self._run.trace(placed, state=state, data=placed_data, **block)
                self._started[names] = compiled.result()
        return self._started[names](self._placed_key(key), **numbers)

    def run(
        self, key: Array, state: FederatedState, data: ClientData, rounds: int
    ) -> tuple[FederatedState, Any]:
        """Runs some rounds in one program.

        Args:
          key: The run's key, the same for all rounds and for `init`.
          state: The state before these rounds; `init` or the last call returned it.
          data: The clients' data.
          rounds: Number of rounds, at most `capacity`.

        Returns:
          The new state, and the diagnostics (or what `observe` makes of them) as NumPy
          arrays with a leading axis of rounds, before that of seeds.
        """
        checks.integer("rounds", rounds)
        if rounds > self.capacity:
            raise ValueError(
                f"rounds = {rounds}, but it must be <= capacity = {self.capacity}: "
                "call run several times, or raise capacity."
            )
        key = keys.typed(key)
        self.choose(key, data)
        data = self._prepared(data)
        first, parts = int(np.ravel(state.round)[0]), []
        placed, state, data = self._placed(key, state, data)
        if not self.donate:
            # The program takes its argument's memory, here that of a copy.
            state = jax.device_put(state, may_alias=False)
        end = first + rounds
        while first < end:
            block, begin = divmod(first, AHEAD)
            count = min(end - first, AHEAD - begin)
            # While a block runs, the host plans the next.
            plans = self._plans_of(key, block)
            state, infos = self._run(
                placed, state=state, data=data, plans=plans, begin=begin, rounds=count
            )
            parts.append((infos, count))
            first += count
        parts = [
            jax.tree.map(lambda x: x[:count], infos)  # noqa: B023
            for infos, count in jax.device_get(parts)
        ]
        infos = jax.tree.map(lambda *x: np.concatenate(x), *parts)
        if self._placement is not None:
            # What all devices hold alike is needed once, by the next call everywhere.
            whole, state = state, jax.tree.map(one_copy, state)
            self._spread = (state, whole)
        return state, infos

    def choose(self, key: Array, data: ClientData | None = None) -> Choice:
        """Decides on the engine, once; `run` does it by itself.

        Args:
          key: The run's key.
          data: The clients' data, as in `engine_choice.choose`.
        """
        key = keys.typed(key)
        if self.choice is None:
            if data is not None:
                check_clients(data, self.algorithm)
                data = self._prepared(data)
            algorithm, mesh = self.algorithm, self.execution.mesh
            if isinstance(data, Clients):
                data.check(algorithm.task)
            chosen = engine_choice.choose(algorithm, key, self.execution, data)
            self.choice, self._planner = chosen
            if mesh is not None:
                blocks = self.choice.engine == "dense"
                self._placement = placement(mesh, key, blocks=blocks)
                self._init = jax.jit(
                    seeded_init(algorithm.init),
                    out_shardings=self._placement.shardings("state"),
                )
            elif self.choice.devices > 1:
                # The same devices in every run: those of the CPU.
                mesh = make_mesh({CLIENTS: self.choice.devices}, jax.local_devices())
                self._placement = placement(mesh, key, blocks=False)
            execution = self.execution
            if self._placement is not None:
                execution = dataclasses.replace(execution, mesh=self._placement.mesh)
            self._run = compiled(self._round, execution, self._placement)
        return self.choice

    def evaluate(self, state: FederatedState, test: Batch) -> dict[str, Array]:
        """The mean loss and metrics of a state's model over test samples."""
        return evaluate(self.algorithm.task, state, test)

    def evaluate_clients(
        self, state: FederatedState, data: ClientData
    ) -> ClientMetrics:
        """The loss and metrics of a state's model for every client."""
        return evaluate_clients(self.algorithm.task, state, data)

    def _plans_of(self, key: Array, block: int) -> tuple[Plan, Schedule | None]:
        """The plans of a block of rounds; the last one is kept for calls of few."""
        name = (np.asarray(jax.random.key_data(key)).tobytes(), block)
        if self._block is None or self._block[0] != name:
            rounds = range(block * AHEAD, (block + 1) * AHEAD)
            plans = self._planner(key, rounds)
            if jax.process_count() > 1:
                # What lies on one process's device is no argument for all of them.
                plans = jax.tree.map(np.asarray, plans)
            self._block = (name, plans)
        return self._block[1]

    def _placed_key(self, key: Array) -> Array:
        return key if self._placement is None else self._placement.put("key", key)

    def _placed(self, key, state, data):
        """Everything where it belongs; the data is put there only once."""
        if self._placement is None:
            return key, state, data
        put = self._placement.put
        if self._copied is None or self._copied[0] is not data:
            parts = self.parts(data)
            lying = data if parts == 1 else split(data, self.algorithm.recipe, parts)
            self._copied = (data, put("data", lying))
        kept, self._spread = self._spread, None
        if kept is not None and kept[0] is state:
            state = kept[1]
        if state is not None:
            state = put("state", state)
        return self._placed_key(key), state, self._copied[1]

    def parts(self, data: ClientData) -> int:
        """Blocks that the data lie in over devices; 1: they stay together."""
        splits = can_be_split(data, self.algorithm.recipe)
        return blocks_of(self.execution.mesh) if splits else 1

    def _prepared(self, data: ClientData) -> ClientData:
        """Pools the data of a centralised algorithm, once, before it is traced."""
        if not self.algorithm.recipe.pooled or len(data.sizes) == 1:
            return data
        if self._pooled is None or self._pooled[0] is not data:
            self._pooled = (data, data.pooled())
        return self._pooled[1]


def check_clients(data: ClientData, algorithm: FederatedAlgorithm) -> None:
    """Refuses data of another number of clients, and a client without samples."""
    sizes = data.sizes
    if not (algorithm.recipe.pooled and len(sizes) == 1):
        check_population(data, algorithm.options.num_clients)
    if not isinstance(sizes, jax.Array) or isinstance(sizes, jax.core.Tracer):
        return
    if int(sizes.min()) < 1:
        raise ValueError(
            f"client {int(sizes.argmin())} has {int(sizes.min())} samples, but each "
            "must have >= 1: leave it out, or use another partition."
        )


def compiled(
    round: Callable[..., tuple],
    execution: Execution = Execution(),
    where: Placement | None = None,
) -> Callable:
    """The program of some rounds; on a mesh, the compiler partitions it.

    Args:
      round: An algorithm's, or `seeds.seeded_round` of it.
      execution: Passed on to `round`.
      where: How the arguments lie on a mesh; None: on one device.
    """
    rounds = functools.partial(_rounds, round, execution)
    if where is None:
        return jax.jit(rounds, donate_argnames="state")
    shardings = (where.shardings("state"), where.shardings("infos"))
    return jax.jit(rounds, donate_argnames="state", out_shardings=shardings)


def _rounds(round, execution, key, *, state, data, plans, begin, rounds):
    """`rounds` rounds from the `begin`-th of a block, whose plans are given."""
    # So that it is traced once, for the shapes and for the loop.
    round_ = jax.jit(round, static_argnames="execution")

    def run_round(number, state):
        plan, schedule = jax.tree.map(lambda x: x[begin + number], plans)
        return round_(key, state, data, plan, schedule, execution=execution)

    shape = jax.eval_shape(run_round, jnp.int32(0), state)[1]
    empty = jax.tree.map(lambda x: jnp.zeros((AHEAD, *x.shape), x.dtype), shape)

    def add(number, carry):
        state, infos = carry
        state, info = run_round(number, state)
        infos = jax.tree.map(lambda all_, x: all_.at[number].set(x), infos, info)
        return state, infos

    return jax.lax.fori_loop(0, rounds, add, (state, empty))
