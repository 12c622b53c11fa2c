"""A cycle: where in a round we are, and what is fixed while its local steps run."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax.sharding import Mesh

from afga_jax.mesh import CLIENTS, blocks_of
from afga_jax.population.sampling import CyclePlan, Plan
from afga_jax.recipe import FederatedState, Recipe
from afga_jax.rounds.execution import Execution
from afga_jax.rounds.update_rows import collected_rows
from afga_jax.typing import Array, ClientData, PyTree, Task


class Cycle(NamedTuple):
    """Where in a round we are, and all that is fixed while its local steps run.

    Attributes:
      recipe: The algorithm, with the numbers of the state.
      recipe_at: Makes the recipe from a state.
      task: The loss.
      key: The run's key.
      state: The state before this cycle.
      data: The clients' data.
      plan: Who takes part in the round.
      number: The cycle's number in the round.
      execution: How the round is computed.
      liars: Which clients lie, `[N]`; None: nobody does.
    """

    recipe: Recipe
    recipe_at: Callable[[FederatedState], Recipe]
    task: Task
    key: Array
    state: FederatedState
    data: ClientData
    plan: Plan
    number: Array | int
    execution: Execution
    liars: Array | None = None

    @property
    def shared(self) -> PyTree:
        """What a client's step reads of all this, for `given`."""
        state = dataclasses.replace(self.state, server=(), controls=(), clients=())
        if self.mesh is None:
            return None
        return self.key, state, self.number, self.liars

    def given(self, shared: PyTree) -> "Cycle":
        """The same inside `shard_map`, which may close over no array.

        Args:
          shared: From `shared`, passed as an argument; None: on one device.
        """
        if shared is None:
            return self
        key, state, number, liars = shared
        recipe = self.recipe_at(state)
        return self._replace(
            recipe=recipe, key=key, state=state, number=number, liars=liars
        )

    def recipe_of(self, client: Array) -> Recipe:
        """The recipe of one client, which has its own of the numbers that are `[N]`."""
        numbers = self.state.numbers
        if not any(value.ndim for value in numbers.values()):
            return self.recipe
        own = {name: x[client] if x.ndim else x for name, x in numbers.items()}
        return self.recipe_at(dataclasses.replace(self.state, numbers=own))

    @property
    def mesh(self) -> Mesh | None:
        """Devices that share the clients; None: one has all."""
        mesh = self.execution.mesh
        return mesh if mesh is not None and CLIENTS in mesh.axis_names else None

    @property
    def holders(self) -> Array | None:
        """Ids of the clients that hold a model, in row order; None: 0, 1, …, N−1.

        Filled up with nobody's so that all devices have equally many.
        """
        ids = self.recipe.mixing.rows(self.plan, self.number)
        if ids is None:
            return None
        missing = -len(ids) % blocks_of(self.mesh)
        return jnp.pad(ids, (0, missing), constant_values=self.num_clients)

    def rows_at(self, tree: PyTree, rows: Array) -> PyTree:
        """Rows by their numbers, in that order; past the last, anything."""
        return collected_rows(tree, rows, self.mesh)

    @property
    def num_clients(self) -> int:
        """N, which is also the id of nobody."""
        return self.recipe.clustering.num_clients

    @property
    def part(self) -> CyclePlan:
        """Who takes part in this cycle."""
        return self.plan.cycle(self.number)
