"""What a model's signature says about how it wants to be called."""

import inspect
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from afga_jax.typing import Array, PyTree

#: What models call the choice between training and use, and its value in training.
FLAGS = {
    "train": True,
    "training": True,
    "is_training": True,
    "deterministic": False,
    "use_running_average": False,
    "inference": False,
}


class Network(NamedTuple):
    """A model as two functions.

    Attributes:
      init: `key -> (params, stats)`; `stats` is () where nothing but parameters is
        kept.
      apply: `(params, stats, inputs, key, train) -> (outputs, stats)`; `train` is a
        Python bool, and without it the statistics stay and nothing is random.
      keeps_stats: Whether there are statistics.
    """

    init: Callable[[Array], tuple[PyTree, PyTree]]
    apply: Callable[[PyTree, PyTree, PyTree, Array, bool], tuple[PyTree, PyTree]]
    keeps_stats: bool


def flags_of(function: Callable) -> tuple[str, ...]:
    """The names among `FLAGS` that a function takes by keyword.

    >>> flags_of(lambda x, train: x), flags_of(lambda x, *, deterministic=True: x)
    (('train',), ('deterministic',))
    """
    return tuple(
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if name in FLAGS and parameter.kind in _BY_NAME
    )


def flag_values(names: Iterable[str], train: bool) -> dict[str, bool]:
    """The flags' values for training, or for use."""
    return {name: FLAGS[name] is train for name in names}


def zeros(shapes: PyTree) -> PyTree:
    """Arrays of these shapes and types."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


def required_arguments(function: Callable) -> list[str]:
    """The names of the arguments that have no default; of a class, to make one.

    >>> required_arguments(lambda x, y, z=0, *rest, **more: x)
    ['x', 'y']
    """
    is_class = isinstance(function, type)
    try:
        signature = inspect.signature(function.__init__ if is_class else function)
    except (TypeError, ValueError):  # Some built-in functions have no signature.
        return []
    names = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in _ANY
    ]
    return names[1:] if is_class else names  # without `self`


def check_call(call: Callable, known: Iterable[str], model: str) -> None:
    """Refuses a model that cannot be called with its inputs and what else is known.

    Args:
      call: The bound method that is called, or a function.
      known: Names of the arguments that are given by keyword.
      model: Name of the model for the message.
    """
    given = dict.fromkeys(known)
    try:
        inspect.signature(call).bind(None, **given)
    except TypeError:
        missing = [name for name in required_arguments(call)[1:] if name not in given]
        arguments = ", ".join(map(repr, missing))
        what = f"needs {arguments} beside the inputs" if missing else "takes no inputs"
        raise ValueError(
            f"{model} {what}, but a task calls it with the inputs and, if it has one, "
            f"a flag among {', '.join(FLAGS)}: give the argument a default, or pass a "
            "pair of functions (init, apply) that sets it"
        ) from None


_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
