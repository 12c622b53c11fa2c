"""A model and its loss, as the task that clients minimise."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from afga_jax import checks, trees
from afga_jax.data.dataset import check_labels
from afga_jax.models import plain_layers
from afga_jax.models.adapters import Network, network_of
from afga_jax.models.losses import LOSSES, PerSample, mean
from afga_jax.typing import Batch, PyTree, Task

#: Types of numbers that layers can compute in.
DTYPES = ("float32", "bfloat16")


def task(
    model: Any,
    *,
    input_shape: Sequence[int] | None = None,
    input_dtype: Any = jnp.float32,
    example: PyTree | Batch | None = None,
    loss: str | PerSample = "classification",
    metrics: Mapping[str, PerSample] | None = None,
    init: Callable | PyTree | None = None,
    rngs: Sequence[str] = ("dropout",),
    fast_layers: bool = True,
    dtype: str | None = None,
) -> Task:
    """A model of any kind and its loss as a task.

    f(x) = Σ m_b ℓ(model(x, input_b), target_b) / Σ m_b

    The weights m are the batch's mask, one where there is none. How the model is told
    that it trains is looked up in its signature: by `train`, `training`, `is_training`,
    `deterministic`, `use_running_average` or `inference`, or not at all.

    Args:
      model: One of: a module of `flax.linen`, which may keep the collection
        "batch_stats"; a module of `flax.nnx`, or a function of `rngs` that makes one,
        so that each seed draws its own parameters; a pair `(init, apply)` of
        functions; a function `apply(params, inputs)`, with `init`. A function may have
        further arguments for statistics (`stats` or `state`; it then returns outputs
        and statistics, and `init` gives parameters and statistics), for a random key
        (`key` or `rng`), and the flags above.
      input_shape: Shape of one sample, for models whose parameters depend on it.
      input_dtype: Type of the inputs: images are normalised floats, texts integers.
      example: Batch of inputs in place of `input_shape`, or a whole `Batch`, with
        which the loss is tried as well; only shapes and types are read.
      loss: Name of a loss, "classification" (cross-entropy of logits against integer
        labels) or "regression" (squared error), or a function of outputs and targets
        that gives one value for each sample.
      metrics: Functions of outputs and targets by name, which give one value for each
        sample; None: accuracy for a classification, the absolute error for a
        regression, none for a loss of one's own.
      init: Initial parameters of a function, or a function of a random key (and, if
        it has a second argument, of inputs) that makes them.
      rngs: Names of the random streams that a linen model draws from in training.
      fast_layers: Whether plain convolutions, max-pools and products run as our own
        layers on CPU, which compute the same to rounding and are many times faster
        inside a round. They have no forward-mode derivative.
      dtype: Type of numbers that layers compute in, such as "bfloat16"; None: the
        parameters'. Parameters, gradients, statistics and losses keep theirs.

    Returns:
      The task. A batch with a mask is refused in training by a model with statistics:
      the padding would enter them.

    Raises:
      ValueError: The model cannot be called, or does not fit the inputs or the loss.

    >>> import flax.linen as nn
    >>> model = nn.Sequential([nn.Dense(8), nn.relu, nn.Dropout(0.5), nn.Dense(3)])
    >>> three = task(model, input_shape=(4,))
    >>> params, stats = three.init(jax.random.key(0))
    >>> params["layers_0"]["kernel"].shape, stats
    ((4, 8), ())
    >>> line = task(lambda p, x: p["a"] * x, init={"a": 2.0}, loss="regression")
    >>> batch = Batch(jnp.array([1.0, 2.0]), jnp.array([2.0, 5.0]))
    >>> float(line.loss(*line.init(jax.random.key(0)), batch, None, False)[0])
    0.5
    """
    per_sample, metrics = _named(loss, metrics)
    batch = _example(input_shape, input_dtype, example)
    one = lambda x: jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype)  # noqa: E731
    inputs = None if batch is None else jax.tree.map(one, batch.inputs)
    network = network_of(model, inputs, init=init, rngs=rngs)
    if fast_layers:
        network = _faster(network, inputs)
    if dtype is not None:
        network = network._replace(apply=_computed_in(dtype, network.apply))

    def predict(params, stats, inputs):
        # Nothing is random without training.
        return network.apply(params, stats, inputs, jax.random.key(0), False)[0]

    built = Task(network.init, _loss_of(network, per_sample, metrics), predict)
    if batch is not None:
        _try(built, batch)
    return built


def classifier(
    model: Any,
    input_shape: Sequence[int],
    input_dtype: Any = jnp.float32,
    *,
    dtype: str | None = None,
) -> Task:
    """The mean cross-entropy of a model's logits against integer labels.

    Args:
      model: Model of any kind, as for `task`, that maps `[batch, *input_shape]` to
        `[batch, classes]`.
      input_shape: Shape of one sample.
      input_dtype: Type of the inputs: images are normalised floats, texts integers.
      dtype: Type of numbers that layers compute in, as for `task`.

    Returns:
      The task; its metric is `accuracy`.

    >>> from afga_jax import models
    >>> task = classifier(models.create("mlp", num_classes=3), input_shape=(4,))
    >>> params, stats = task.init(jax.random.key(0))
    >>> params["head"]["kernel"].shape, stats
    ((100, 3), ())
    """
    built = task(model, input_shape=input_shape, input_dtype=input_dtype, dtype=dtype)

    def check(inputs, targets):
        shape = jnp.shape(inputs)[1:]
        if shape != tuple(input_shape):
            raise ValueError(
                f"a sample has the shape {shape}, but the task was made for "
                f"input_shape = {tuple(input_shape)}: make them alike."
            )
        sample = jax.ShapeDtypeStruct((1, *input_shape), jnp.dtype(input_dtype))
        start = jax.eval_shape(built.init, jax.random.key(0))
        logits = jax.eval_shape(built.predict, *start, sample)
        check_labels(targets, logits.shape[-1], "targets")

    return built._replace(check=check)


def next_character(model: Any, length: int = 80, *, dtype: str | None = None) -> Task:
    """The task of predicting the one character that follows a window of text.

    Args:
      model: Model that maps integers `[batch, length]` to `[batch, alphabet]`.
      length: Number of characters in a window.
      dtype: Type of numbers that layers compute in, as for `task`.

    Returns:
      The task; a batch's targets are `[batch]`, the character after each window.
      (Caldas et al., "LEAF: a benchmark for federated settings", 2018.)
    """
    return task(model, input_shape=(length,), input_dtype=jnp.int32, dtype=dtype)


def _named(loss, metrics):
    """The loss and the metrics as functions."""
    usual: Mapping[str, PerSample] = {}
    if not callable(loss):
        checks.choice("loss", loss, LOSSES)
        loss, usual = LOSSES[loss]
    metrics = usual if metrics is None else metrics
    if not isinstance(metrics, Mapping) or not all(map(callable, metrics.values())):
        raise ValueError(
            f"metrics = {metrics!r}, but it must be a dict of functions of outputs and "
            "targets by name"
        )
    if "loss" in metrics:
        raise ValueError("a metric is called 'loss', which is the loss's own name")
    return loss, dict(metrics)


def _example(input_shape, input_dtype, example) -> Batch | None:
    """A batch as shapes and types; its targets are None where they are not known."""
    if example is not None and input_shape is not None:
        raise ValueError("input_shape and example say the same: pass one of them")
    if input_shape is not None:
        shape = jax.ShapeDtypeStruct((1, *input_shape), jnp.dtype(input_dtype))
        return Batch(shape, None)
    if example is None:
        return None
    batch = example if isinstance(example, Batch) else Batch(example, None)
    batch = jax.eval_shape(lambda x: x, batch)
    if any(x.ndim == 0 for x in jax.tree.leaves(batch)):
        raise ValueError(
            "example holds a number, but it must be a batch: arrays with a leading "
            "axis of samples"
        )
    return batch


def _faster(network: Network, inputs: PyTree | None) -> Network:
    """The network with fast layers, where it has plain ones."""

    def mode(train):
        return lambda *arrays: network.apply(*arrays, train)

    if inputs is not None:
        key = jax.random.key(0)
        shapes = (*jax.eval_shape(network.init, key), inputs, key)
        if not plain_layers.has_plain_layers(mode(True), *shapes):
            return network

    def faster(*args):
        return plain_layers.fast_layers(mode(args[-1]))(*args[:-1])

    return network._replace(apply=faster)


def _computed_in(dtype: str, apply: Callable) -> Callable:
    """A network's `apply` with its layers in another type of numbers.

    What goes in is rounded, but for statistics, and what comes out is given back in the
    parameters' type: the loss is computed in that, and gradients arrive in it.
    """
    checks.choice("dtype", dtype, DTYPES)

    def cast(tree, dtype):
        floats = lambda x: jnp.issubdtype(jnp.result_type(x), jnp.floating)  # noqa: E731
        return jax.tree.map(lambda x: jnp.asarray(x, dtype) if floats(x) else x, tree)

    def computed(params, stats, inputs, key, train):
        own = jnp.result_type(float, *jax.tree.leaves(params))
        outputs, new = apply(
            cast(params, dtype), stats, cast(inputs, dtype), key, train
        )
        return cast(outputs, own), trees.with_dtypes_of(stats, new)

    return computed


def _loss_of(network: Network, loss: PerSample, metrics: Mapping[str, PerSample]):
    def loss_of(params, stats, batch, key, train):
        if network.keeps_stats and train and batch.mask is not None:
            raise ValueError(
                "a padded batch cannot train a model with batch normalisation, since "
                "the padding would enter its statistics; use norm='group', or batches "
                "without padding"
            )
        outputs, stats = network.apply(params, stats, batch.inputs, key, train)
        count = len(jax.tree.leaves(batch.inputs)[0])
        losses = loss(outputs, batch.targets)
        values = {name: of(outputs, batch.targets) for name, of in metrics.items()}
        average = mean(losses, batch.mask, count, "the loss")
        return average, (
            stats,
            {name: mean(x, batch.mask, count, name) for name, x in values.items()},
        )

    return loss_of


def _try(built, batch: Batch) -> None:
    """Says now, and not in the first round, what is wrong with model or loss."""
    key = jax.random.key(0)
    params, stats = jax.eval_shape(built.init, key)
    outputs = jax.eval_shape(built.predict, params, stats, batch.inputs)
    count = jax.tree.leaves(batch.inputs)[0].shape[0]
    for output in jax.tree.leaves(outputs):
        if output.shape[:1] != (count,):
            raise ValueError(
                f"of {count} samples the model makes an output of shape "
                f"{output.shape}, but its first axis must be the samples', {count}"
            )
    if batch.targets is not None:
        batch = batch._replace(mask=None)
        for train in (True, False):
            jax.eval_shape(
                lambda *args, train=train: built.loss(*args, train),
                *(params, stats, batch, key),
            )
