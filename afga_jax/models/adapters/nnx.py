"""Modules of `flax.nnx`: split into arrays for the round, merged for the call."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from afga_jax.models.adapters.calls import Network, check_call, flag_values, flags_of
from afga_jax.typing import Array, PyTree


def from_nnx(model: nnx.Module | Callable[..., nnx.Module]) -> Network:
    """An nnx module as a network.

    `module.train()` and `module.eval()` say whether it trains, and so does a flag
    among the arguments of its `__call__`. The streams that it holds, of dropout for
    example, start anew from the key of every step.

    Args:
      model: Module, or function of rngs that makes one. A module's own parameters are
        the initial ones, whatever the key; a function draws them from the key.

    Returns:
      The network; parameters are the module's `nnx.Param`, statistics its
      `nnx.BatchStat`, both as nested dicts.
    """

    def make(key: Array) -> Any:
        return model if isinstance(model, nnx.Module) else model(rngs=nnx.Rngs(key))

    sample = make(jax.random.key(0))
    if not isinstance(sample, nnx.Module):
        raise ValueError(
            f"model makes a {type(sample).__name__} of rngs, but it must make an "
            "nnx.Module"
        )
    name = type(sample).__name__
    # The same parts in both modes, which differ in static attributes only.
    graphs = {train: _split(_in_mode(sample, train))[0] for train in (True, False)}
    _, *likes, constants = _split(sample)
    others = (leaf for _, leaf in nnx.to_flat_state(constants))
    kinds = {type(x).__name__ for x in others if isinstance(x, nnx.Variable)}
    if kinds:
        raise ValueError(
            f"{name} keeps variables of the kinds {', '.join(sorted(kinds))}; a task "
            "carries Param and BatchStat only"
        )
    params_like, stats_like, rngs_like = jax.eval_shape(lambda *x: x, *likes)
    flags = flags_of(sample.__call__)
    takes_rngs = "rngs" in inspect.signature(sample.__call__).parameters
    check_call(sample.__call__, (*flags, *(["rngs"] if takes_rngs else [])), name)

    @jax.jit  # Traced once, for all who ask for shapes.
    def init(key):
        _, params, stats, *_ = _split(make(key))
        return nnx.to_pure_dict(params), nnx.to_pure_dict(stats) or ()

    def apply(params, stats, inputs, key, train):
        module = nnx.merge(
            graphs[train],
            _filled(params_like, params),
            _filled(stats_like, stats or {}),
            _seeded(rngs_like, key),
            constants,
        )
        options = dict(flag_values(flags, train))
        if takes_rngs:
            # Beyond the numbers of the streams that it holds.
            options["rngs"] = nnx.Rngs(jax.random.fold_in(key, 2**31))
        outputs = module(inputs, **options)
        if not train or not stats_like:
            return outputs, stats
        return outputs, nnx.to_pure_dict(nnx.state(module, nnx.BatchStat))

    return Network(init, apply, bool(stats_like))


def _split(module: nnx.Module) -> tuple:
    return nnx.split(module, nnx.Param, nnx.BatchStat, nnx.RngState, ...)


def _in_mode(module: nnx.Module, train: bool) -> nnx.Module:
    """A copy of the module that trains, or does not."""
    copy = nnx.clone(module)
    copy.train() if train else copy.eval()
    return copy


def _filled(like: nnx.State, values: PyTree) -> nnx.State:
    state = jax.tree.map(lambda x: x, like)
    nnx.replace_by_pure_dict(state, values)
    return state


def _seeded(like: nnx.State, key: Array) -> nnx.State:
    """Streams at their beginning, each with a key of its own."""
    leaves, structure = jax.tree.flatten(like)
    fresh = [
        jax.random.split(jax.random.fold_in(key, number), leaf.shape)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else jnp.zeros(leaf.shape, leaf.dtype)
        for number, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, fresh)
