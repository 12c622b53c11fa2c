"""The algorithms by name: how one is declared, looked up and built."""

import contextlib
import dataclasses
import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from afga_jax import checks
from afga_jax.algorithms import signatures
from afga_jax.algorithms.assemble import FederatedAlgorithm, assemble
from afga_jax.algorithms.options import COMMON, Options, option, options_class
from afga_jax.optimizers.client import LocalOptimizer
from afga_jax.recipe import Recipe
from afga_jax.typing import ClientData, Task, check_task

RecipeFunction = Callable[[Options], Recipe]

#: Every algorithm by name; `algorithm` adds your own.
ALGORITHMS: dict[str, "Algorithm"] = {}

# Servers by the number of vectors that they remember: none, m; m and v; m, v and v̂.
_SERVERS = {0: "average", 1: "average", 2: "adam", 3: "amsgrad"}
#: How a method steps; those of one family share published rates and ε.
FAMILIES = (*dict.fromkeys(_SERVERS.values()), "gossip", "adaptive_gossip")

_TAKEN = ("algorithm", "data", "key", "task")
# As near to the name of a common option as this, a new name is taken for a mistake.
_NEAR = 0.85


class Algorithm:
    """An algorithm before it is built: call it with a task, as `build` does.

    Its signature and its docstring name the options that it uses. It accepts those of
    all algorithms that it does not use, so that several can be given the same.

    Attributes:
      recipe: Function from options to the recipe, as it was written.
      defaults: What it sets the common options to.
      own: The options of its own, from `option`, by name.
      like: The algorithm that it is a variant of, whose published rates it shares.
      theory: The paper whose convergence conditions apply to it, `afga` or `hafed`.
    """

    def __init__(
        self,
        recipe: RecipeFunction,
        defaults: Mapping[str, Any],
        own: Mapping[str, dataclasses.Field],
        *,
        like: str | None = None,
        theory: str | None = None,
    ):
        functools.update_wrapper(self, recipe, assigned=("__module__", "__qualname__"))
        self.__name__ = getattr(recipe, "__name__", type(recipe).__name__)
        self.recipe, self.defaults, self.own = recipe, dict(defaults), dict(own)
        self.like, self.theory = like, theory

    def __call__(
        self,
        task: Task,
        *,
        num_clients: int | None = None,
        data: ClientData | None = None,
        **options: Any,
    ) -> FederatedAlgorithm:
        if isinstance(task, Options):
            raise ValueError(
                f"{self.__name__} is given options in place of a task: its recipe is "
                f"{self.__name__}.recipe(options)."
            )
        check_task(task)
        given = {"num_clients": _population(num_clients, data), **options}
        optimizer = given.get("local_optimizer")
        if "local_lr" in given and isinstance(optimizer, optax.GradientTransformation):
            raise ValueError(
                f"local_lr = {given['local_lr']} is given, but local_optimizer is an "
                "optax transformation that has a learning rate of its own: leave "
                "local_lr out, or pass a function of the rate, such as optax.adam "
                "itself."
            )
        return assemble(self.recipe, self.options(**given), task, self.__name__)

    def __repr__(self) -> str:
        return f"<algorithm {self.__name__}>"

    def options(self, **given: Any) -> Options:
        """Options from its defaults and a user's choices, which are checked."""
        own = self.own_options(given)
        self._check_names(given, own)
        return options_class(self.__name__, own)(**{**self.defaults, **given})

    def own_options(self, given: Mapping[str, Any]) -> dict[str, dataclasses.Field]:
        """The options of its own and of algorithms that it is built around, by name.

        Args:
          given: A user's choices, among them which algorithm that is.
        """
        inside: dict[str, dataclasses.Field] = {}
        for name, known in self.own.items():
            if known.metadata["algorithm"]:
                rest = {key: value for key, value in given.items() if key != name}
                around = lookup(given.get(name, known.default), name)
                inside |= around.own_options(rest)
        return inside | self.own

    @functools.cached_property
    def family(self) -> str | None:
        """How it steps, one of `FAMILIES`, read off the recipe with its own defaults.

        A server that remembers nothing or a momentum averages, one with two moments is
        of Adam's kind (ε beside the root), one with their maximum too of AMSGrad's (ε
        inside). Without a server it is gossip, adaptive where the clients remember more
        than a momentum. None: no such server is known, or the clients' steps adapt,
        whose rates are of another size.

        >>> lookup("afga").family, lookup("fedyogi").family, lookup("dsgd").family
        ('amsgrad', 'adam', 'gossip')
        """
        try:
            recipe = self.recipe(self.options(num_clients=signatures.CLIENTS))
        except ValueError:  # its defaults are for another number of clients
            return None
        adapts = _vectors(recipe.optimizer) > 1
        if recipe.server is None:
            return "adaptive_gossip" if adapts else "gossip"
        return None if adapts else _SERVERS.get(_vectors(recipe.server))

    @property
    def __signature__(self) -> inspect.Signature:
        return signatures.signature(self.recipe, self._variants())

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return signatures.docstring(self.recipe, self._variants())

    def _variants(self) -> list[Options]:
        """Options with which the recipe reads all that it may."""
        choices: list[dict[str, Any]] = [{}, *signatures.CHOICES]
        for name, known in self.own.items():
            if known.metadata["algorithm"]:
                choices += [{name: other} for other in ALGORITHMS]
        possible = []
        for choice in choices:
            # Defaults may be for another number of clients.
            with contextlib.suppress(ValueError):
                possible.append(self.options(num_clients=signatures.CLIENTS, **choice))
        return possible

    def _check_names(self, given: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        known = (*COMMON, *own)
        for name in given:
            if name not in known and (owners := owners_of(name)):
                raise ValueError(
                    f"{name} = {given[name]!r}, but {self.__name__} has no such "
                    f"option, it is {' and '.join(owners)}'s: leave it out."
                )
        checks.names(given, known, "option")


def algorithm(
    *, like: str | None = None, theory: str | None = None, **values: Any
) -> Callable[[RecipeFunction], Algorithm]:
    """Registers an algorithm under its function's name.

    The function is given `Options` and returns a `Recipe`; see `afga_jax.compose`.

    Args:
      like: The algorithm that it is a variant of, if any, whose published rates it
        shares.
      theory: The paper whose convergence conditions apply to it, if any.
      **values: By the names of `Options`, its own defaults. Any other name declares an
        option of its own: its default, or what `afga_jax.option` makes of it, bounds
        and a sentence for people. One that another algorithm has is the same option
        with another default.

    Returns:
      The algorithm, which is called with a task, as `build` does.

    >>> @algorithm(local_lr=0.5, share=option(0.1, above=0, at_most=1))
    ... def mine(options):
    ...     return lookup("fedavg").recipe(options)
    >>> mine.options(num_clients=10).share
    0.1
    >>> mine.options(num_clients=10, share=2.0)
    Traceback (most recent call last):
    ...
    ValueError: share = 2.0, but it must be > 0 and <= 1.
    >>> ALGORITHMS.pop("mine").defaults
    {'local_lr': 0.5}
    """

    def register(function: RecipeFunction) -> Algorithm:
        name = function.__name__
        own = {
            key: _declaration(name, key, value)
            for key, value in values.items()
            if key not in COMMON
        }
        defaults = {key: value for key, value in values.items() if key in COMMON}
        ALGORITHMS[name] = Algorithm(function, defaults, own, like=like, theory=theory)
        return ALGORITHMS[name]

    return register


def build(
    algorithm: str | Algorithm | RecipeFunction,
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
      **options: Everything else that can be chosen; see `Options`, and the algorithm's
        own in its signature.

    Returns:
      Pure functions; `jax.jit` them, or use `afga_jax.fit`.
    """
    return lookup(algorithm)(task, num_clients=num_clients, data=data, **options)


def lookup(
    algorithm: str | Algorithm | RecipeFunction, name: str = "algorithm"
) -> Algorithm:
    """The algorithm behind a name or a function.

    Args:
      algorithm: A name of `ALGORITHMS`, an algorithm, or a function from options to a
        recipe, which then has neither defaults nor options of its own.
      name: What an error calls it.
    """
    if isinstance(algorithm, Algorithm):
        return algorithm
    if callable(algorithm):
        return Algorithm(algorithm, {}, {})
    checks.choice(name, algorithm, ALGORITHMS)
    return ALGORITHMS[algorithm]


def own_options() -> dict[str, dataclasses.Field]:
    """The algorithms' own options by name, as declared by the first that has each."""
    found: dict[str, dataclasses.Field] = {}
    for known in ALGORITHMS.values():
        for name, declared in known.own.items():
            found.setdefault(name, declared)
    return found


def owners_of(option: str) -> list[str]:
    """Names of the algorithms that have an option of their own of this name."""
    return [name for name, known in ALGORITHMS.items() if option in known.own]


def _vectors(step: LocalOptimizer | optax.GradientTransformation) -> int:
    """Number of vectors that an optimizer remembers."""
    state = jax.eval_shape(step.init, jnp.zeros(1))
    return sum(leaf.ndim > 0 for leaf in jax.tree.leaves(state))


def _declaration(algorithm: str, name: str, value: Any) -> dataclasses.Field:
    """An algorithm's own option, as it was declared or from its default."""
    plain = not isinstance(value, dataclasses.Field)
    if name in _TAKEN or hasattr(Options, name):
        raise ValueError(f"{algorithm} cannot have an option {name!r}: rename it.")
    near = difflib.get_close_matches(name, COMMON, n=1, cutoff=_NEAR)
    if plain and near:
        raise ValueError(
            f"{algorithm} sets {name!r}; did you mean {near[0]!r}? Otherwise declare "
            f"it: {name}=afga_jax.option({value!r})."
        )
    others = [
        known.own[name]
        for other, known in ALGORITHMS.items()
        if other != algorithm and name in known.own
    ]
    if plain and others:
        return dataclasses.field(default=value, metadata=others[0].metadata)
    declared = option(value) if plain else value
    bounds = {**declared.metadata, "help": ""}
    if any({**other.metadata, "help": ""} != bounds for other in others):
        owner = owners_of(name)[0]
        raise ValueError(
            f"{algorithm} declares {name!r} otherwise than {owner} does: rename it, or "
            f"give its default alone, which makes it {owner}'s."
        )
    return declared


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
