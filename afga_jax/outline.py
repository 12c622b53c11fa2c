"""What is known of a run from shapes alone: its counts, and what it will hold."""

import dataclasses
import math

import jax

from afga_jax import memory
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.cost import Counts
from afga_jax.execution import Execution
from afga_jax.memory import Run
from afga_jax.participation import Plan
from afga_jax.recipe import FederatedState, Recipe
from afga_jax.schedule import Sizes
from afga_jax.typing import Array


class Outline:
    """A run before anything is drawn or compiled.

    Args:
      algorithm: From `build`.
      key: The run's key, or several seeds'.
      execution: How it is computed.

    Attributes:
      state: Shapes of one seed's.
      counts: Of a round.
    """

    def __init__(self, algorithm: FederatedAlgorithm, key: Array, execution: Execution):
        self._chunk = execution.chunk
        self._recipe, self._num_clients = (
            algorithm.recipe,
            algorithm.options.num_clients,
        )
        self._seeds = len(key) if key.ndim else 1
        self.state = _shapes(algorithm, key)
        plan = jax.eval_shape(algorithm.plan, jax.random.key(0), 0)
        self.counts = _counts(self._recipe, plan, self.state)

    def dense(self, shares: int = 1) -> Run:
        """What the dense engine holds.

        Args:
          shares: Devices of a mesh, each with a block of the client rows.
        """
        most = -(-self.counts.active // shares)
        chunk = self._chunk or (1 if on_cpu() else most)
        run = self._run("dense", self.counts.rows, chunk, shares if on_cpu() else 1)
        return dataclasses.replace(run, shares=shares)

    def span(self, capacity: Sizes, width: int, devices: int) -> Run:
        """What the span engine holds.

        Args:
          capacity: Of its schedules.
          width: Of its slots.
          devices: That share a slot.
        """
        chunk = self._chunk or (1 if on_cpu() else width)
        lanes = min(chunk, width // devices)
        return self._run("span", capacity.rows + 1, lanes, devices)

    def _run(self, engine: str, rows: int, together: int, devices: int) -> Run:
        own = memory.bytes_of((self.state.controls, self.state.clients))
        return Run(
            engine=engine,
            clients=self._num_clients,
            rows=rows,
            active=self.counts.active,
            uploads=self.counts.uploads,
            model=self.counts.model,
            memory=_client_memory(self._recipe, self.state),
            server=memory.bytes_of(self.state) - own,
            each=own // self._num_clients,
            together=min(together, self.counts.active),
            seeds=self._seeds,
            devices=devices,
        )


def on_cpu() -> bool:
    """Whether the devices are CPUs, which compute one client at a time."""
    return jax.default_backend() == "cpu"


def _counts(recipe: Recipe, plan: Plan, state: FederatedState) -> Counts:
    cycles, steps, *active = plan.cycles.active.shape
    rows = jax.eval_shape(recipe.mixing.rows, plan)
    return Counts(
        cycles=cycles,
        steps=steps,
        active=math.prod(active),
        rows=recipe.clustering.num_clients if rows is None else len(rows),
        uploads=math.prod(plan.cycles.upload.shape[1:]),
        model=memory.bytes_of((state.params, state.stats)),
    )


def _client_memory(recipe: Recipe, state: FederatedState) -> int:
    """Bytes that a client's optimizer and correction keep during a round."""
    own = lambda p: (recipe.optimizer.init(p), recipe.correction.begin(p))  # noqa: E731
    return memory.bytes_of(jax.eval_shape(own, state.params))


def _shapes(algorithm: FederatedAlgorithm, key: Array) -> FederatedState:
    state = jax.eval_shape(algorithm.init, key)
    if not key.ndim:
        return state
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), state)
