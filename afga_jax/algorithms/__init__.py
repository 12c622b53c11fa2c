"""All algorithms, and how one is built."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

# In the order of the papers' tables; importing a module registers what it defines.
from afga_jax.algorithms import (  # isort: skip
    fedopt,
    corrected,
    afga,
    hafed,
    fedcluster,
    decentralized,
)
from afga_jax.algorithms.adversaries import with_adversaries
from afga_jax.algorithms.compose import (
    check_uploads,
    compose,
    warn_if_nothing_mixes,
)
from afga_jax.algorithms.compression import with_compression
from afga_jax.algorithms.conditions import with_faults
from afga_jax.algorithms.options import NUMBERS, Options, make_options
from afga_jax.algorithms.privacy import with_privacy
from afga_jax.algorithms.registry import (
    ALGORITHMS,
    FAMILIES,
    Algorithm,
    defaults,
    family,
    lookup,
    traits,
)
from afga_jax.keys import typed
from afga_jax.population.sampling import Plan, make_plan
from afga_jax.recipe import FederatedState, Recipe, RoundInfo
from afga_jax.rounds.execution import Execution
from afga_jax.rounds.round import init_state, run_round
from afga_jax.rounds.span.schedule import Schedule
from afga_jax.typing import Array, ClientData, Task, check_task

__all__ = [
    "ALGORITHMS",
    "FAMILIES",
    "FederatedAlgorithm",
    "Options",
    "afga",
    "build",
    "compose",
    "corrected",
    "decentralized",
    "defaults",
    "family",
    "fedcluster",
    "fedopt",
    "hafed",
    "traits",
]


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


def build(
    algorithm: str | Algorithm,
    task: Task,
    *,
    num_clients: int | None = None,
    data: ClientData | None = None,
    **options: Any,
) -> FederatedAlgorithm:
    """Builds an algorithm; all that is wrong with the options is said here.

    Args:
      algorithm: A name of `ALGORITHMS`, or a function from `Options` to a `Recipe`.
      task: The loss to minimise.
      num_clients: N, the number of clients; None: that of the data.
      data: The clients' data, for their number alone; not kept.
      **options: Everything else that can be chosen; see `Options`.

    Returns:
      Pure functions; `jax.jit` them, or use `afga_jax.fit`.
    """
    check_task(task)
    make = lookup(algorithm)
    given = {"num_clients": _population(num_clients, data), **options}
    _check_rate_is_used(given)
    chosen = make_options(getattr(make, "defaults", {}), given)
    recipe = _conditioned(make(chosen), chosen)
    # Drawn once here, so that tracing the round does not draw it again.
    chosen = chosen.replace(clustering=chosen.clusters())
    traced = _traced_numbers(chosen)

    def recipe_with(numbers: dict[str, Array], round: Array) -> Recipe:
        scheduled = {
            name: value(round)
            for name in NUMBERS
            if callable(value := getattr(chosen, name))
        }
        options = chosen.replace(**numbers, **scheduled)
        return _conditioned(make(options), options)

    def recipe_at(state: FederatedState) -> Recipe:
        return recipe_with(state.numbers, state.round)

    def init(key: Array, **numbers: Any) -> FederatedState:
        key = typed(key)
        for name in numbers:
            if name not in traced:
                raise ValueError(
                    f"{name!r} is not a number that can be set here, but one of "
                    f"{', '.join(traced)} can: pass it to build."
                )
        checked = chosen.replace(**numbers)
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
    name = getattr(make, "__name__", "own")
    return FederatedAlgorithm(init, plan, round, recipe, recipe_at, chosen, task, name)


def _conditioned(recipe: Recipe, options: Options) -> Recipe:
    """The recipe in the hard conditions that were chosen; none is the recipe itself."""
    recipe = with_adversaries(with_faults(recipe, options), options)
    return with_compression(with_privacy(recipe, options), options)


def _population(num_clients: int | None, data: ClientData | None) -> int:
    """N, as it is given or from the data."""
    if data is None:
        if num_clients is None:
            raise ValueError(
                "num_clients is not given: pass num_clients, or data to take it from."
            )
        return num_clients
    if num_clients not in (None, len(data.sizes)):
        raise ValueError(
            f"num_clients = {num_clients}, but data has {len(data.sizes)} clients: "
            "leave num_clients out, or partition the data for it."
        )
    return len(data.sizes)


def _check_rate_is_used(given: dict[str, Any]) -> None:
    optimizer = given.get("local_optimizer")
    if "local_lr" in given and isinstance(optimizer, optax.GradientTransformation):
        raise ValueError(
            f"local_lr = {given['local_lr']} is given, but local_optimizer is an optax "
            "transformation that has a learning rate of its own: leave local_lr out, "
            "or pass a function of the rate, such as optax.adam itself."
        )


def _traced_numbers(options: Options) -> tuple[str, ...]:
    """Numbers but for schedules, and for a weight decay of 0, which costs nothing."""
    return tuple(
        name
        for name in NUMBERS
        if not callable(value := getattr(options, name))
        and not (name == "weight_decay" and not np.any(value))
    )
