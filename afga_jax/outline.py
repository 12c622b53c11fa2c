"""What is known of a run from shapes alone: its sizes, and what it will hold."""

import dataclasses
import math

import jax

from afga_jax import memory
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.execution import Execution
from afga_jax.memory import Run
from afga_jax.platform import on_cpu
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
      rows: Clients that hold a model in a cycle.
      on_mesh: Whether a mesh was asked for.
    """

    def __init__(self, algorithm: FederatedAlgorithm, key: Array, execution: Execution):
        recipe = algorithm.recipe
        plan = jax.eval_shape(algorithm.plan, jax.random.key(0), 0)
        holders = jax.eval_shape(recipe.mixing.rows, plan)
        self.state = jax.eval_shape(algorithm.init, jax.random.key(0))
        self.rows = recipe.clustering.num_clients if holders is None else len(holders)
        self._chunk, self.on_mesh = execution.chunk, execution.mesh is not None
        own = memory.bytes_of((self.state.controls, self.state.clients))
        clients = algorithm.options.num_clients
        self._run = Run(
            engine="dense",
            clients=clients,
            rows=self.rows,
            active=math.prod(plan.cycles.active.shape[2:]),
            uploads=math.prod(plan.cycles.upload.shape[1:]),
            model=memory.bytes_of((self.state.params, self.state.stats)),
            memory=_client_memory(recipe, self.state),
            server=memory.bytes_of(self.state) - own,
            each=own // clients,
            seeds=len(key) if key.ndim else 1,
        )

    def dense(self, shares: int = 1) -> Run:
        """What the dense engine holds.

        Args:
          shares: Devices of a mesh, each with a block of the client rows.
        """
        together = self._together(-(-self._run.active // shares))
        devices = shares if on_cpu() else 1
        return dataclasses.replace(
            self._run, together=together, devices=devices, shares=shares
        )

    def span(self, capacity: Sizes, width: int, devices: int) -> Run:
        """What the span engine holds.

        Args:
          capacity: Of its schedules.
          width: Of its slots.
          devices: That share a slot.
        """
        together = min(self._together(width), width // devices)
        return dataclasses.replace(
            self._run,
            engine="span",
            rows=capacity.rows + 1,
            together=together,
            devices=devices,
        )

    def _together(self, most: int) -> int:
        """Gradients that a device computes side by side."""
        chunk = self._chunk or (1 if on_cpu() else most)
        return min(chunk, self._run.active)


def _client_memory(recipe: Recipe, state: FederatedState) -> int:
    """Bytes that a client's optimizer and correction keep during a round."""
    own = lambda p: (recipe.optimizer.init(p), recipe.correction.begin(p))  # noqa: E731
    return memory.bytes_of(jax.eval_shape(own, state.params))
