"""One local step, written for one client; every engine calls it."""

import jax
import jax.numpy as jnp

from afga_jax import rows
from afga_jax.recipe import Memory, Model, Recipe
from afga_jax.typing import Array, Batch, PyTree, Task


def client_step(
    recipe: Recipe,
    task: Task,
    model: Model,
    memory: Memory,
    anchor: tuple[PyTree, PyTree],
    batch: Batch,
    key: Array,
) -> tuple[Model, Memory, Array, dict[str, Array]]:
    """One local step of one client.

    Args:
      recipe: Gives the optimizer and the correction.
      task: The loss.
      model: The client's; `shared` as the step should see it.
      memory: The client's.
      anchor: The round's starting parameters and the mean control.
      batch: The data of the step.
      key: For dropout.

    Returns:
      What to add to the model, the new memory, the loss and the metrics.
    """
    start, mean_control = anchor
    loss_of = jax.value_and_grad(task.loss, has_aux=True)
    (loss, (stats, metrics)), raw = loss_of(model.params, model.stats, batch, key, True)
    gradient = recipe.correction.gradient(
        raw, model.params, start, memory.control, mean_control
    )
    updates, optimizer, shared = recipe.optimizer.update(
        gradient, memory.optimizer, model.shared, model.params
    )
    increment = Model(updates, jax.tree.map(jnp.subtract, stats, model.stats), shared)
    steps = recipe.correction.record(memory.steps, raw)
    memory_now = Memory(optimizer, memory.control, steps)
    return (
        rows.with_dtypes_of(model, increment),
        rows.with_dtypes_of(memory, memory_now),
        loss,
        metrics,
    )
