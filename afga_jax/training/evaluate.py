"""How good a model is on samples that nobody trained on."""

from typing import cast

import jax
import jax.numpy as jnp

from afga_jax import checks
from afga_jax.typing import Array, Batch, PyTree, Task


def evaluate(
    task: Task, params: PyTree, stats: PyTree, batch: Batch, *, chunk: int = 500
) -> dict[str, Array]:
    """Mean loss and metrics over a batch of any size, a chunk at a time.

    Traceable; `jax.jit(functools.partial(evaluate, task))` compiles it.

    Args:
      task: Its `loss` runs with `train=False`.
      params: The model.
      stats: Its BatchNorm statistics.
      batch: All test samples.
      chunk: Samples that are in memory at once.

    Returns:
      `loss` and the task's metrics, means over the real samples.
    """
    checks.integer("chunk", chunk)
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
