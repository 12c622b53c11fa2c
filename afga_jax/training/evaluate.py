"""How good a model is on samples that nobody trained on."""

import functools
from typing import Any, Protocol, cast, overload

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import checks
from afga_jax.training.seeds import each_seed
from afga_jax.typing import Array, Batch, PyTree, Task


class HasModel(Protocol):
    """What has a model: a state, for one seed or several, or what `load` returns."""

    @property
    def round(self) -> Any:
        """Rounds done; `[seeds]` for the state of several seeds."""

    @property
    def params(self) -> PyTree:
        """The model."""

    @property
    def stats(self) -> PyTree:
        """Its BatchNorm statistics."""


@overload
def evaluate(
    task: Task, state: HasModel, test: Batch, /, *, chunk: int = 500
) -> dict[str, Array]: ...


@overload
def evaluate(
    task: Task, params: PyTree, stats: PyTree, test: Batch, /, *, chunk: int = 500
) -> dict[str, Array]: ...


def evaluate(task: Task, *model_and_test: Any, chunk: int = 500) -> dict[str, Array]:
    """Mean loss and metrics over all test samples, a chunk at a time.

    `evaluate(task, state, test)`, or `evaluate(task, params, stats, test)`. It compiles
    once for a task and the shapes, and works inside `jit`, too.

    Args:
      task: The task, whose `loss` runs with `train=False`.
      *model_and_test: The model, given by a state or by its params and stats; and the
        test samples, a `Batch` or a pair of inputs and targets.
      chunk: Number of samples that are in memory at once.

    Returns:
      `loss` and the task's metrics, means over the real samples; `[seeds]` each for
      the state of several seeds.

    Example:
      >>> from afga_jax import data, models
      >>> digits = data.digits()
      >>> task = models.classifier(models.create("mlp", 10), input_shape=(8, 8, 1))
      >>> params, stats = task.init(jax.random.key(0))
      >>> sorted(evaluate(task, params, stats, data.held_out(digits)))
      ['accuracy', 'loss']
    """
    checks.integer("chunk", chunk)
    *model, test = model_and_test
    batch, seeds = as_batch(test), False
    if len(model) == 1:
        (state,) = model
        check_state(state)
        model, seeds = [state.params, state.stats], np.ndim(state.round) > 0
    params, stats = model
    return _compiled(task, chunk, seeds, params, stats, batch)


def as_batch(test: Any) -> Batch:
    """The test samples as a batch; refuses what holds none.

    Args:
      test: A `Batch`, or a tuple of its parts.
    """
    if not isinstance(test, tuple) or not 2 <= len(test) <= 3:
        raise ValueError(
            f"test is {'None' if test is None else 'a ' + type(test).__name__}, but an "
            "evaluation needs samples: pass test=afga_jax.Batch(inputs, targets)."
        )
    batch = Batch(*test)
    lengths = {len(leaf) for leaf in jax.tree.leaves(batch)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"the test samples have lengths {sorted(lengths)}, but there must be one "
            "input and one target for each of at least one sample."
        )
    return batch


def check_state(state: Any) -> None:
    """Refuses what is given for a state and has no model."""
    if not all(hasattr(state, name) for name in ("round", "params", "stats")):
        raise ValueError(
            f"state is a {type(state).__name__}, but it must have a model: pass the "
            "state of fit or of a Trainer, or params and stats one after the other."
        )


def mean_metrics(
    task: Task, params: PyTree, stats: PyTree, batch: Batch, *, chunk: int = 500
) -> dict[str, Array]:
    """`evaluate` for one model, to be traced."""
    total = len(jax.tree.leaves(batch.inputs)[0])
    chunk = min(chunk, total)
    mask = jnp.ones(total) if batch.mask is None else batch.mask
    chunks = -(-total // chunk)

    def split(x):
        pad = [(0, chunks * chunk - total)] + [(0, 0)] * (x.ndim - 1)
        return jnp.pad(x, pad).reshape(chunks, chunk, *x.shape[1:])

    def sums(part: Batch):
        key = jax.random.key(0)  # nothing is random without training
        loss, (_, metrics) = task.loss(params, stats, part, key, False)
        count = jnp.sum(cast(Array, part.mask))  # set below, for all parts
        means = {"loss": loss, **metrics}
        # The mean over no sample is 0/0.
        return {k: jnp.where(count > 0, v * count, 0.0) for k, v in means.items()}

    parts = jax.tree.map(split, batch._replace(mask=mask))
    return jax.tree.map(lambda x: x.sum() / mask.sum(), jax.lax.map(sums, parts))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _compiled(task, chunk, seeds, params, stats, batch):
    def per_seed(model, batch):
        return mean_metrics(task, *model, batch, chunk=chunk)

    return each_seed(per_seed, (params, stats), batch, several=seeds)
