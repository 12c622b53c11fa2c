"""The algorithms by name."""

from collections.abc import Callable
from typing import Any

from afga_jax import checks
from afga_jax.algorithms.options import Options
from afga_jax.recipe import Recipe

Algorithm = Callable[[Options], Recipe]

#: Every algorithm by name; a function from `Options` to a `Recipe`. Add your own.
ALGORITHMS: dict[str, Algorithm] = {}


def defaults(**values: Any) -> Callable[[Algorithm], Algorithm]:
    """Registers an algorithm under its function's name, with its own default options.

    >>> @defaults(local_lr=0.5)
    ... def mine(options):
    ...     return lookup("fedavg")(options)
    >>> ALGORITHMS.pop("mine").defaults
    {'local_lr': 0.5}
    """

    def register(function: Algorithm) -> Algorithm:
        setattr(function, "defaults", values)  # noqa: B010
        ALGORITHMS[function.__name__] = function
        return function

    return register


def lookup(algorithm: str | Algorithm) -> Algorithm:
    """The function behind a name; a function is returned as it is."""
    if callable(algorithm):
        return algorithm
    checks.choice("algorithm", algorithm, ALGORITHMS)
    return ALGORITHMS[algorithm]
