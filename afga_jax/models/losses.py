"""Losses and metrics of each sample, from a model's outputs and the targets.

All take outputs and targets with a leading axis of samples and give one number, or one
array of numbers, for each sample.
"""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
import optax

from afga_jax.typing import Array

#: `(outputs, targets) -> [samples, ...]`.
PerSample = Callable[..., Array]


def cross_entropy(logits: Array, labels: Array) -> Array:
    """−log softmax(logits)[label] for integer labels."""
    _check_logits(logits, labels)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def accuracy(logits: Array, labels: Array) -> Array:
    """One where the largest logit is the label's, zero elsewhere."""
    return (logits.argmax(-1) == labels).astype(logits.dtype)


def squared_error(outputs: Array, targets: Array) -> Array:
    """(output − target)²; one output may come with a trailing axis of one or without.

    >>> squared_error(jnp.array([[1.0], [3.0]]), jnp.array([1.0, 1.0])).tolist()
    [[0.0], [4.0]]
    """
    return (outputs - _like(outputs, targets)) ** 2


def absolute_error(outputs: Array, targets: Array) -> Array:
    """|output − target|, of shapes as for `squared_error`."""
    return jnp.abs(outputs - _like(outputs, targets))


#: What a task's loss may be called, with its metrics.
LOSSES: dict[str, tuple[PerSample, Mapping[str, PerSample]]] = {
    "classification": (cross_entropy, {"accuracy": accuracy}),
    "regression": (squared_error, {"absolute_error": absolute_error}),
}


def mean(values: Array, mask: Array | None, count: int, name: str) -> Array:
    """The mean over the real samples.

    Args:
      values: Values of each sample, `[samples, ...]`.
      mask: One for a real sample, zero for padding; None: all are real.
      count: Number of samples.
      name: Name of the values for the message.
    """
    values = jnp.asarray(values)
    if values.ndim == 0 or len(values) != count:
        raise ValueError(
            f"{name} of a batch of {count} samples has the shape {values.shape}, but "
            f"it must be one value for each sample, ({count},): leave out the mean, "
            "which is taken over the samples that are no padding"
        )
    if not jnp.issubdtype(values.dtype, jnp.inexact):
        values = values.astype(float)  # Hits, for example, are true or false.
    if values.ndim > 1:
        values = values.reshape(count, -1).mean(1)
    if mask is None:
        return values.mean()
    weights = mask.astype(values.dtype)
    # A batch of nothing but padding has loss 0, not 0/0.
    return (values * weights).sum() / jnp.maximum(weights.sum(), 1)


def _check_logits(logits, labels):
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(
            f"the targets of a classification are of type {labels.dtype}, but they "
            "must be whole numbers, the labels: convert them, or use "
            "loss='regression' or a loss of your own"
        )
    if logits.shape[:-1] != labels.shape or logits.shape[-1:] == (1,):
        raise ValueError(
            f"the outputs have the shape {logits.shape} and the targets "
            f"{labels.shape}, but a classification needs (samples, classes) with at "
            "least 2 classes, and (samples,)"
        )


def _like(outputs, targets):
    """The targets in the outputs' shape: broadcasting would compare all with all."""
    shapes = [
        x.shape[:-1] if x.shape[-1:] == (1,) else x.shape for x in (outputs, targets)
    ]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"the outputs have the shape {outputs.shape} and the targets "
            f"{targets.shape}, but a regression needs them to be the same"
        )
    return targets.reshape(outputs.shape)
