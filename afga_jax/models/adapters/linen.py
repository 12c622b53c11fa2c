"""Modules of `flax.linen`."""

import dataclasses
import inspect
from collections.abc import Callable

import flax.linen as nn
import jax
from flax import errors

from afga_jax.models.adapters.calls import (
    FLAGS,
    Network,
    check_call,
    flag_values,
    flags_of,
    zeros,
)
from afga_jax.models.layers.initial import from_one_draw
from afga_jax.typing import PyTree


def from_linen(
    model: nn.Module, inputs: PyTree | None, streams: tuple[str, ...]
) -> Network:
    """A linen module as a network.

    Whether it trains is said by an argument of its `__call__`, by an attribute of the
    module, or by neither: layers that need to know and were not told, such as
    `nn.BatchNorm()` or `nn.Dropout(0.5)` in an `nn.Sequential`, are told.

    Args:
      model: Module, called with the inputs.
      inputs: Shapes of a batch of one sample.
      streams: Names of the random streams that it draws from in training.

    Returns:
      The network; its statistics are the collection "batch_stats".
    """
    name = type(model).__name__
    if inputs is None:
        raise ValueError(
            f"the parameters of {name} depend on the shape of its inputs: pass "
            "input_shape=, the shape of one sample, or example=, a batch"
        )
    flags = flags_of(model.__call__)
    check_call(model.__call__, flags, name)
    fields = () if flags else _flag_fields(model)

    def in_mode(train):
        return model.clone(**flag_values(fields, train)) if fields else model

    @jax.jit  # Traced once, for all who ask for shapes.
    def variables_of(key):
        with nn.intercept_methods(_tell(train=False)):
            return from_one_draw(
                in_mode(False), key, zeros(inputs), **flag_values(flags, False)
            )

    shapes = jax.eval_shape(variables_of, jax.random.key(0))
    if unknown := set(shapes) - {"params", "batch_stats"}:
        raise ValueError(
            f"the model keeps the collections {sorted(unknown)}; a task carries "
            "'params' and 'batch_stats' only"
        )
    keeps_stats = "batch_stats" in shapes

    def init(key):
        variables = variables_of(key)
        return variables.get("params", {}), variables.get("batch_stats", ())

    def stream_keys(key):
        if len(streams) == 1:
            return {streams[0]: key}
        return {name: jax.random.fold_in(key, i) for i, name in enumerate(streams)}

    def apply(params, stats, inputs, key, train):
        variables = {"params": params} | ({"batch_stats": stats} if keeps_stats else {})
        with nn.intercept_methods(_tell(train)):
            outputs, updated = in_mode(train).apply(
                variables,
                inputs,
                rngs=stream_keys(key) if train else None,
                mutable=["batch_stats"] if train else [],
                **flag_values(flags, train),
            )
        return outputs, updated.get("batch_stats", stats)

    return Network(init, _explained(apply, name, streams), keeps_stats)


def _tell(train: bool) -> Callable:
    """An interceptor that tells layers whether the model trains, if nobody has.

    Such a layer has the flag as an attribute and as an argument, both None.
    """

    def tell(call, args, options, context):
        module = context.module
        if context.method_name == "__call__":
            arguments = inspect.signature(type(module).__call__).parameters
            for flag in _flag_fields(module):
                if flag not in arguments or getattr(module, flag) is not None:
                    continue
                position = list(arguments).index(flag) - 1  # without `self`
                if options.get(flag) is None and args[position : position + 1] in (
                    (),
                    (None,),
                ):
                    args = args[:position]
                    options = {**options, **flag_values([flag], train)}
        return call(*args, **options)

    return tell


def _flag_fields(model: nn.Module) -> tuple[str, ...]:
    fields = {field.name for field in dataclasses.fields(model)}
    return tuple(name for name in FLAGS if name in fields)


def _explained(apply: Callable, name: str, streams: tuple[str, ...]) -> Callable:
    """The same function; what flax says of a model becomes what to do about it."""

    def explained(*args):
        try:
            return apply(*args)
        except errors.InvalidRngError as error:
            raise ValueError(
                f"{name} draws from a random stream that it is not given ({error}); it "
                f"is given {', '.join(streams)} in training and none without: name its "
                "streams in rngs=, and let it draw in training only"
            ) from error
        except errors.ModifyScopeVariableError as error:
            raise ValueError(
                f"{name} changes its statistics also when it is not trained: leave out "
                "use_running_average=False, or let an argument train of its __call__ "
                "decide"
            ) from error

    return explained
