"""Plain functions, as they are written by hand or by libraries such as Haiku."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from afga_jax.models.adapters.calls import FLAGS, Network, required_arguments, zeros
from afga_jax.typing import PyTree

STATS, KEYS = ("stats", "state", "batch_stats"), ("key", "rng")


def from_functions(
    init: Callable | PyTree, apply: Callable, inputs: PyTree | None
) -> Network:
    """A pair of functions as a network.

    Args:
      init: `key -> params` or `(key, inputs) -> params`, or the parameters themselves.
        Where `apply` takes statistics, `(params, stats)` in place of `params`.
      apply: `(params, inputs) -> outputs`. It may also have arguments for statistics
        (named stats, state or batch_stats; it then returns `(outputs, stats)`), for a
        random key (key or rng) and for whether it trains (train, deterministic, ...),
        in any order after the first.
      inputs: Shapes of a batch of one sample for `init`; None where none is known.

    Returns:
      The network.
    """
    if not callable(apply):
        raise ValueError(
            f"model is of type {type(apply).__name__}, but with init= it must be a "
            "function of parameters and inputs"
        )
    name = getattr(apply, "__name__", type(apply).__name__)
    signature = inspect.signature(apply)
    roles = _roles(signature, name)
    keeps_stats = "stats" in roles.values()

    def start(key):
        variables = _start(init, key, inputs)
        if not keeps_stats:
            return variables, ()
        return _pair(variables, "init", "(params, stats)", name)

    def call(params, stats, inputs, key, train):
        values = {"params": params, "stats": stats, "inputs": inputs, "key": key}
        values["any inputs"] = (inputs,)
        arguments = {
            argument: FLAGS[argument] is train if role == "flag" else values[role]
            for argument, role in roles.items()
        }
        bound = inspect.BoundArguments(signature, arguments)
        outputs = apply(*bound.args, **bound.kwargs)
        if not keeps_stats:
            return outputs, stats
        outputs, updated = _pair(outputs, "it", "(outputs, stats)", name)
        return outputs, updated if train else stats

    return Network(start, call, keeps_stats)


def _roles(signature: inspect.Signature, name: str) -> dict[str, str]:
    """What is passed as each argument."""
    roles: dict[str, str] = {}
    for argument, parameter in signature.parameters.items():
        optional = parameter.default is not parameter.empty
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if not roles:
            roles[argument] = "params"
        elif argument in STATS:
            roles[argument] = "stats"
        elif argument in KEYS:
            roles[argument] = "key"
        elif argument in FLAGS:
            roles[argument] = "flag"
        elif not {"inputs", "any inputs"} & set(roles.values()):
            several = parameter.kind is parameter.VAR_POSITIONAL
            roles[argument] = "any inputs" if several else "inputs"
        elif not optional and parameter.kind is not parameter.VAR_POSITIONAL:
            raise ValueError(
                f"{name} needs {argument!r}, which a task does not have: beside "
                f"parameters and inputs it may take {', '.join((*STATS, *KEYS))} and "
                f"{', '.join(FLAGS)}; give the argument a default"
            )
    if not {"inputs", "any inputs"} & set(roles.values()):
        raise ValueError(
            f"{name} takes the arguments {list(signature.parameters)}, but it must "
            "take parameters and inputs: (params, inputs)"
        )
    return roles


def _start(init, key, inputs):
    if not callable(init):
        return jax.tree.map(jnp.asarray, init)
    arguments = inspect.signature(init).parameters.values()
    several = any(x.kind is x.VAR_POSITIONAL for x in arguments)
    if len(required_arguments(init)) < 2 and not several:
        return init(key)
    if inputs is None:
        raise ValueError(
            "init takes inputs beside the random key: pass input_shape=, the shape of "
            "one sample, or example=, a batch"
        )
    return init(key, zeros(inputs))


def _pair(result: Any, giver: str, form: str, name: str) -> tuple:
    if isinstance(result, tuple) and len(result) == 2:
        return result
    raise ValueError(
        f"{name} takes statistics beside its parameters, so {giver} must give the pair "
        f"{form}, but it gives a {type(result).__name__}"
    )
