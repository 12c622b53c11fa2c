"""How anybody's model is started and called: everything becomes a `Network`."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn

from afga_jax.models.adapters.calls import Network, required_arguments
from afga_jax.models.adapters.functions import from_functions
from afga_jax.models.adapters.linen import from_linen
from afga_jax.typing import PyTree

__all__ = ["Network", "network_of"]


def network_of(
    model: Any,
    inputs: PyTree | None = None,
    *,
    init: Callable | PyTree | None = None,
    rngs: Sequence[str] = ("dropout",),
) -> Network:
    """The model as two functions, whichever library wrote it.

    Args:
      model: Model of flax's linen or nnx, function, or pair of functions, as for
        `afga_jax.task`.
      inputs: Shapes and types of a batch of one sample; None where none is known.
      init: Initial parameters of a function, or a function of a key that makes them.
      rngs: Names of the random streams that a linen model draws from in training.

    Returns:
      The network.

    Raises:
      ValueError: It is no model, or is called with what a task does not have.
    """
    pair = isinstance(model, tuple | list) and len(model) == 2
    if pair and all(map(callable, model)):
        init, model = model
    if init is not None:
        return from_functions(init, model, inputs)
    if isinstance(model, nn.Module):
        return from_linen(model, inputs, tuple(rngs))
    nnx = sys.modules.get("flax.nnx")  # who has a module of it has imported it
    is_nnx = nnx is not None and isinstance(model, nnx.Module)
    if is_nnx or (callable(model) and required_arguments(model) == ["rngs"]):
        # Imported only for those who use it: it takes a fifth of a second.
        from afga_jax.models.adapters.nnx import from_nnx

        return from_nnx(model)
    raise ValueError(_no_model(model))


def _no_model(model: Any) -> str:
    if isinstance(model, type):
        return (
            f"model is the class {model.__name__}, but an instance is needed: pass "
            f"{model.__name__}(...), or for nnx a function of rngs that makes one"
        )
    if callable(model):
        name = getattr(model, "__name__", type(model).__name__)
        return (
            f"model is the function {name!r}, of which the initial parameters are not "
            "known: pass init=, a function of a random key or the parameters "
            f"themselves, or the pair (init, {name})"
        )
    return (
        f"model is of type {type(model).__name__}, but it must be a module of "
        "flax.linen or flax.nnx, a function with init=, or a pair of functions "
        "(init, apply)"
    )
