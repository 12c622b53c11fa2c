"""The algorithms by name, and what is known of each beside its recipe."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from afga_jax import checks
from afga_jax.algorithms.options import Options, make_options
from afga_jax.recipe import Recipe

Algorithm = Callable[[Options], Recipe]

#: Every algorithm by name; a function from `Options` to a `Recipe`. Add your own.
ALGORITHMS: dict[str, Algorithm] = {}

# Servers by the number of vectors that they remember: none; m and v; m, v and v̂.
_SERVERS = {0: "average", 2: "adam", 3: "amsgrad"}
#: How a method steps; those of one family share published rates and ε.
FAMILIES = (*_SERVERS.values(), "gossip", "adaptive_gossip")


class Traits(NamedTuple):
    """What an algorithm is declared to be, beside its recipe and its options.

    Attributes:
      like: The algorithm that it is a variant of, whose published rates it shares.
      theory: The paper whose convergence conditions apply to it, `afga` or `hafed`.
      uses: Options that change this algorithm and not every other one.
    """

    like: str | None = None
    theory: str | None = None
    uses: tuple[str, ...] = ()


def defaults(
    *,
    like: str | None = None,
    theory: str | None = None,
    uses: tuple[str, ...] = (),
    **values: Any,
) -> Callable[[Algorithm], Algorithm]:
    """Registers an algorithm under its function's name, with its own default options.

    Args:
      like: The algorithm that it is a variant of, if any; see `Traits`.
      theory: The paper whose convergence conditions apply to it, if any.
      uses: Options that change this algorithm and not every other one.
      **values: Its own defaults, by the names of `Options`.

    >>> @defaults(local_lr=0.5)
    ... def mine(options):
    ...     return lookup("fedavg")(options)
    >>> ALGORITHMS.pop("mine").defaults
    {'local_lr': 0.5}
    """

    def register(function: Algorithm) -> Algorithm:
        setattr(function, "defaults", values)  # noqa: B010
        setattr(function, "traits", Traits(like, theory, uses))  # noqa: B010
        ALGORITHMS[function.__name__] = function
        return function

    return register


def lookup(algorithm: str | Algorithm) -> Algorithm:
    """The function behind a name; a function is returned as it is."""
    if callable(algorithm):
        return algorithm
    checks.choice("algorithm", algorithm, ALGORITHMS)
    return ALGORITHMS[algorithm]


def traits(algorithm: str | Algorithm) -> Traits:
    """What an algorithm is declared to be."""
    return getattr(lookup(algorithm), "traits", Traits())


def family(algorithm: str | Algorithm) -> str | None:
    """How a method steps, one of `FAMILIES`, read off the recipe with its own defaults.

    A server that remembers nothing averages, one with two moments is of Adam's kind (ε
    beside the root), one with their maximum too of AMSGrad's (ε inside). Without a
    server it is gossip, adaptive where the clients remember something.

    Returns:
      The family; None: no such server is known.

    >>> family("afga"), family("fedyogi"), family("dsgd")
    ('amsgrad', 'adam', 'gossip')
    """
    return _family(lookup(algorithm))


@functools.cache
def _family(algorithm: Algorithm) -> str | None:
    try:
        own = getattr(algorithm, "defaults", {})
        recipe = algorithm(make_options(own, {"num_clients": 100}))
    except ValueError:  # its defaults are for another number of clients
        return None
    step = recipe.optimizer if recipe.server is None else recipe.server
    state = jax.eval_shape(step.init, jnp.zeros(1))
    vectors = sum(leaf.ndim > 0 for leaf in jax.tree.leaves(state))
    if recipe.server is None:
        return "adaptive_gossip" if vectors else "gossip"
    return _SERVERS.get(vectors)
