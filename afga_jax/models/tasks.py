"""A model and its loss, as the task that clients minimise."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from afga_jax.models.layers.initial import from_one_draw
from afga_jax.typing import Task


def classifier(
    model: nn.Module, input_shape: Sequence[int], input_dtype=jnp.float32
) -> Task:
    """The mean cross-entropy of a model's logits against integer labels.

    f(x) = −Σ m_b log softmax(model(x, input_b))[target_b] / Σ m_b

    The model is called as `model(inputs, train)`, may draw from the stream "dropout"
    and may keep the collection "batch_stats".

    Args:
      model: Module that maps `[batch, *input_shape]` to `[batch, classes]`.
      input_shape: Shape of one sample.
      input_dtype: Type of the inputs: images are normalised floats, texts integers.

    Returns:
      The task; its metric is `accuracy`. The weights m are the batch's mask, one
      where there is none. A batch with a mask is refused in training by a model with
      batch normalisation: the padding would enter its statistics.

    >>> from afga_jax import models
    >>> task = classifier(models.create("mlp", num_classes=3), input_shape=(4,))
    >>> params, stats = task.init(jax.random.key(0))
    >>> params["head"]["kernel"].shape, stats
    ((100, 3), ())
    """

    @jax.jit  # Traced once, for all who ask for shapes.
    def variables_of(key):
        inputs = jnp.zeros((1, *input_shape), input_dtype)
        return from_one_draw(model, key, inputs)

    shapes = jax.eval_shape(variables_of, jax.random.key(0))
    unknown = set(shapes) - {"params", "batch_stats"}
    if unknown:
        raise ValueError(
            f"the model keeps the collections {sorted(unknown)}; a task carries "
            "'params' and 'batch_stats' only"
        )
    keeps_stats = "batch_stats" in shapes

    def init(key):
        collections = variables_of(key)
        return collections["params"], collections.get("batch_stats", ())

    def variables(params, stats):
        return {"params": params} | ({"batch_stats": stats} if keeps_stats else {})

    def predict(params, stats, inputs):
        return model.apply(variables(params, stats), inputs, train=False)

    def loss(params, stats, batch, key, train):
        if keeps_stats and train and batch.mask is not None:
            raise ValueError(
                "a padded batch cannot train a model with batch normalisation, since "
                "the padding would enter its statistics; use norm='group', or batches "
                "without padding"
            )
        logits, updated = model.apply(
            variables(params, stats),
            batch.inputs,
            train=train,
            rngs={"dropout": key} if train else None,
            mutable=["batch_stats"] if train else [],
        )
        stats = updated.get("batch_stats", stats)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch.targets)
        hits = (logits.argmax(-1) == batch.targets).astype(losses.dtype)
        return _mean(losses, batch.mask), (stats, {"accuracy": _mean(hits, batch.mask)})

    return Task(init, loss, predict)


def next_character(model: nn.Module, length: int = 80) -> Task:
    """The task of predicting the one character that follows a window of text.

    Args:
      model: Module that maps integers `[batch, length]` to `[batch, alphabet]`.
      length: Number of characters in a window.

    Returns:
      The task; a batch's targets are `[batch]`, the character after each window.
      (Caldas et al., "LEAF: a benchmark for federated settings", 2018.)
    """
    return classifier(model, (length,), jnp.int32)


def _mean(values, mask):
    if mask is None:
        return values.mean()
    weights = mask.astype(values.dtype)
    # A batch of nothing but padding has loss 0, not 0/0.
    return (values * weights).sum() / jnp.maximum(weights.sum(), 1)
