"""From a recipe and its options to an algorithm: pure functions."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax.algorithms.adversaries import with_adversaries
from afga_jax.algorithms.compose import check_uploads, warn_if_nothing_mixes
from afga_jax.algorithms.compression import with_compression
from afga_jax.algorithms.conditions import with_faults
from afga_jax.algorithms.options import Options, numbers
from afga_jax.algorithms.privacy import with_privacy
from afga_jax.gossip.periods import repeated
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
    traced = _traced_numbers(chosen)

    def recipe_with(values: dict[str, Array], round: Array) -> Recipe:
        scheduled = {
            name: value(round)
            for name in numbers(chosen)
            if callable(value := getattr(chosen, name))
        }
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


def conditioned(recipe: Recipe, options: Options) -> Recipe:
    """The recipe in the hard conditions that were chosen; none is the recipe itself."""
    recipe = with_adversaries(with_faults(recipe, options), options)
    recipe = with_compression(with_privacy(recipe, options), options)
    if not recipe.mixing.mixes:
        return recipe
    return recipe._replace(mixing=repeated(recipe.mixing, options.mix_times))


def _traced_numbers(options: Options) -> tuple[str, ...]:
    """Numbers but for schedules, and for a weight decay of 0, which costs nothing."""
    return tuple(
        name
        for name in numbers(options)
        if not callable(value := getattr(options, name))
        and not (name == "weight_decay" and not np.any(value))
    )
