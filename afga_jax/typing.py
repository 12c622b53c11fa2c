"""The protocols that the parts of the package agree on.

Data, tasks and algorithms know each other only through what is written here, so each
can be replaced by one's own.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

Array = jax.Array
PyTree = Any


class Batch(NamedTuple):
    """Samples along a leading axis.

    Attributes:
      inputs: What the model sees, `[samples, ...]`.
      targets: What it should answer, `[samples, ...]`.
      mask: One for a real sample, zero for padding, `[samples]`; None: all are real.
    """

    inputs: PyTree
    targets: PyTree
    mask: Array | None = None


class Task(NamedTuple):
    """A loss to minimise, written for one client and one batch.

    Attributes:
      init: `key -> (params, stats)`. `stats` is model state that is not trained by
        gradients (BatchNorm statistics); an empty tuple where there is none.
      loss: `(params, stats, batch, key, train) -> (loss, (stats, metrics))`. `key`
        serves dropout, `train` is a Python bool, `metrics` a dict of scalars that are
        means over the batch. Padding (`batch.mask`) must not count.
      predict: `(params, stats, inputs) -> outputs`, the trained model's answers such as
        logits; None: the task has no model to ask, only its parameters.
      check: `(inputs, targets) -> None`, which raises a ValueError for samples that the
        loss cannot take, looking at all of them before anything compiles; None: any
        samples are taken.
    """

    init: Callable[[Array], tuple[PyTree, PyTree]]
    loss: Callable[[PyTree, PyTree, Batch, Array, bool], tuple[Array, tuple]]
    predict: Callable[[PyTree, PyTree, PyTree], PyTree] | None = None
    check: Callable[[PyTree, PyTree], None] | None = None


def check_task(task: Task) -> None:
    """Refuses a task whose functions do not have the form that rounds rely on.

    Only shapes are computed. What `loss` returns is seen when it meets data.

    Args:
      task: Task of anybody's making.
    """
    if not isinstance(task, Task):
        raise ValueError(
            f"task is of type {type(task).__name__}, but it must be a Task: make one "
            "of a model by afga_jax.task(model, ...)"
        )
    _check_arguments("init", task.init, "key")
    _check_arguments("loss", task.loss, "params", "stats", "batch", "key", "train")
    start = jax.eval_shape(task.init, jax.random.key(0))
    if not isinstance(start, tuple) or len(start) != 2:
        raise ValueError(
            f"task.init returns a {type(start).__name__}, but it must return the pair "
            "(params, stats): return (params, ()) where nothing but parameters is kept"
        )
    for path, leaf in jax.tree.leaves_with_path(start[0]):
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise ValueError(
                f"task.init returns the parameter {jax.tree_util.keystr(path)} of type "
                f"{leaf.dtype}, but gradients need floating point: convert it, or move "
                "it to the statistics"
            )


def _check_arguments(name: str, function: Any, *arguments: str) -> None:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise ValueError(
            f"task.{name} is called as {name}({', '.join(arguments)}), which it does "
            f"not take: {error}"
        ) from error
    except ValueError:
        pass  # Some built-in functions have no signature.


@runtime_checkable
class ClientData(Protocol):
    """The data of all clients; a pytree, because it is an argument of compiled code.

    `client` is always a traced scalar: write for one client.
    """

    @property
    def sizes(self) -> Any:
        """Samples of each client: indexable with an array of ids, and of a length."""

    def indices(self, client: Array) -> Array:
        """The client's sample indices, padded to a common length by valid ones."""

    def batch(self, key: Array, client: Array) -> Batch:
        """A batch drawn uniformly, with replacement, from the client's own samples.

        Args:
          key: Already unique to the round, the step and the client.
          client: The client's id.
        """

    def full(self, client: Array) -> Batch:
        """All samples of the client, padded to a common length, with a mask."""

    def pooled(self) -> "ClientData":
        """The same samples held by one single client."""
