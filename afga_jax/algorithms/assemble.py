"""From a recipe and its options to an algorithm: pure functions."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax.algorithms.compose import check_uploads, warn_if_nothing_mixes
from afga_jax.algorithms.conditions import conditioned
from afga_jax.algorithms.options import Options, numbers
from afga_jax.keys import typed
from afga_jax.population.sampling import Plan, make_plan
from afga_jax.recipe import FederatedState, Recipe, RoundInfo
from afga_jax.rounds.execution import Execution
from afga_jax.rounds.round import init_state, run_round
from afga_jax.rounds.span.schedule import Schedule
from afga_jax.typing import Array, ClientData, Task


class FederatedAlgorithm(NamedTuple):
    """An algorithm, built for a task and a number of clients. All functions are pure.

    Attributes:
      init: `(key, **numbers) -> state`; numbers such as `local_lr` override the built
        ones without compiling again.
      plan: `(key, round) -> Plan`: who takes part in a round; works in and out of jit.
      round: `(key, state, data, plan=None, schedule=None, *, execution=Execution()) ->
        (state, info)`; `key` is the run's key, the same for all rounds. With a schedule
        the span engine runs it, otherwise the dense one; `Trainer` decides by itself.
      recipe: The choices that make the algorithm.
      recipe_at: `(state) -> Recipe`: the same with the numbers of a state and of its
        round, traced or not.
      options: What it was built with.
      task: What is minimised.
      name: Name of the algorithm, its function's where it is not registered.
    """

    init: Callable[..., FederatedState]
    plan: Callable[[Array, Array | int], Plan]
    round: Callable[..., tuple[FederatedState, RoundInfo]]
    recipe: Recipe
    recipe_at: Callable[[FederatedState], Recipe]
    options: Options
    task: Task
    name: str = "own"


def assemble(
    make: Callable[[Options], Recipe], chosen: Options, task: Task, name: str
) -> FederatedAlgorithm:
    """Builds an algorithm.

    Args:
      make: Function from options to the recipe.
      chosen: What the user and the algorithm chose.
      task: The loss to minimise.
      name: Name of the algorithm.
    """
    # Drawn once here, so that tracing the round does not draw it again.
    chosen = chosen.replace(clustering=chosen.clusters())
    values = {name: getattr(chosen, name) for name in numbers(chosen)}
    schedules = {name: value for name, value in values.items() if callable(value)}
    # A weight decay of 0 costs nothing.
    idle = {"weight_decay"} if not np.any(values["weight_decay"]) else set()
    traced = [name for name in values if name not in schedules.keys() | idle]

    def recipe_with(values: dict[str, Array], round: Array) -> Recipe:
        scheduled = {name: value(round) for name, value in schedules.items()}
        options = chosen.replace(**values, **scheduled)
        return conditioned(make(options), options)

    recipe = recipe_with({}, jnp.int32(0))

    def recipe_at(state: FederatedState) -> Recipe:
        return recipe_with(state.numbers, state.round)

    def init(key: Array, **given: Any) -> FederatedState:
        key = typed(key)
        for name in given:
            if name not in traced:
                raise ValueError(
                    f"{name!r} is not a number that can be set here, but one of "
                    f"{', '.join(traced)} can: pass it to build."
                )
        checked = chosen.replace(**given)
        values = {name: jnp.asarray(getattr(checked, name), float) for name in traced}
        return init_state(recipe_with(values, jnp.int32(0)), task, key, values)

    def plan(key: Array, round: Array | int) -> Plan:
        return make_plan(recipe.participation, recipe.order, typed(key), round)

    def round(
        key: Array,
        state: FederatedState,
        data: ClientData,
        plan: Plan | None = None,
        schedule: Schedule | None = None,
        *,
        execution: Execution = Execution(),
    ) -> tuple[FederatedState, RoundInfo]:
        return run_round(
            recipe_at, task, typed(key), state, data, plan, schedule, execution
        )

    shape = jax.eval_shape(plan, jax.random.key(0), 0)
    warn_if_nothing_mixes(recipe, shape.cycles.active.shape[-1])
    check_uploads(recipe, math.prod(shape.cycles.upload.shape[1:]))
    return FederatedAlgorithm(init, plan, round, recipe, recipe_at, chosen, task, name)
