"""The models: sizes, normalisation, tasks, and messages about wrong input."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from afga_jax import models
from afga_jax.typing import Batch

COLOUR, GREY = (32, 32, 3), (28, 28, 1)
SMALL = {
    "alexnet": {"features": 8, "hidden": (12, 6), "crop": 8},
    "cnn": {"features": (4, 6)},
    "convmixer": {"width": 8, "depth": 2, "patch": 2, "kernel": 3},
    "lstm": {"embedding": 5, "hidden": 6},
    "mlp": {"hidden": (7, 5)},
    "resnet18": {"width": 4},
}


def count(model, shape, dtype=jnp.float32):
    sample = jax.ShapeDtypeStruct((1, *shape), dtype)
    params = jax.eval_shape(model.init, jax.random.key(0), sample)["params"]
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def small(name, norm=None):
    """A small model with its task and two batches' worth of samples."""
    model = models.create(name, num_classes=10, norm=norm, **SMALL[name])
    random = np.random.default_rng(0)
    targets = jnp.asarray(random.integers(0, 10, 6))
    if name == "lstm":
        inputs = jnp.asarray(random.integers(0, 10, (6, 9)), jnp.int32)
        return models.next_character(model, 9), Batch(inputs, targets)
    inputs = jnp.asarray(random.normal(size=(6, 8, 8, 3)), jnp.float32)
    return models.classifier(model, (8, 8, 3)), Batch(inputs, targets)


@pytest.mark.parametrize(
    ("name", "classes", "shape", "parameters"),
    [
        ("convmixer", 10, COLOUR, 594_186),
        ("convmixer", 100, COLOUR, 617_316),
        ("convmixer", 10, GREY, 592_138),
        ("resnet18", 10, COLOUR, 11_173_962),
        ("resnet18", 100, COLOUR, 11_220_132),
        ("cnn", 10, GREY, 28_938),
        ("alexnet", 10, COLOUR, 1_387_786),
        ("alexnet", 10, GREY, 1_384_586),
        ("mlp", 10, (784,), 79_510),
    ],
)
def test_parameter_counts(name, classes, shape, parameters):
    assert count(models.create(name, classes), shape) == parameters


def test_parameter_count_of_the_lstm():
    assert count(models.create("lstm", 80), (80,), jnp.int32) == 897_360


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_both_norms_have_the_same_parameters(norm):
    assert count(models.create("convmixer", 10, norm=norm), COLOUR) == 594_186
    assert count(models.create("resnet18", 10, norm=norm), COLOUR) == 11_173_962


class PlainConvMixer(nn.Module):
    """ConvMixer as its authors write it, in plain flax."""

    @nn.compact
    def __call__(self, x, train=False):
        def activate(x, name):
            norm = nn.BatchNorm(not train, momentum=0.9, epsilon=1e-5, name=name)
            return norm(nn.gelu(x, approximate=False))

        x = activate(nn.Conv(8, (2, 2), (2, 2), name="stem")(x), "stem_norm")
        for block in range(2):
            depthwise = nn.Conv(
                8, (3, 3), feature_group_count=8, name=f"DepthwiseConv_{block}"
            )
            x = x + activate(depthwise(x), f"Norm_{2 * block}")
            pointwise = nn.Conv(8, (1, 1), name=f"Conv_{block}")
            x = activate(pointwise(x), f"Norm_{2 * block + 1}")
        return nn.Dense(10, name="head")(x.mean((1, 2)))


def test_convmixer_is_the_plain_one(x64):
    task, batch = small("convmixer")
    plain = models.classifier(PlainConvMixer(), (8, 8, 3))
    params, stats, inputs = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float64),
        (*jax.jit(task.init)(jax.random.key(0)), batch.inputs),
    )
    batch = Batch(inputs, batch.targets)
    results = [
        jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=4)(
            params, stats, batch, jax.random.key(1), True
        )
        for loss in (task.loss, plain.loss)
    ]
    chex.assert_trees_all_close(*results, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "norm"), [*((name, None) for name in SMALL), ("convmixer", "group")]
)
def test_a_step_lowers_the_loss(name, norm):
    task, batch = small(name, norm)
    params, stats = jax.jit(task.init)(jax.random.key(0))

    @jax.jit
    def step(params, stats):
        (loss, (stats, metrics)), gradient = jax.value_and_grad(
            task.loss, has_aux=True
        )(params, stats, batch, jax.random.key(1), True)
        moved = jax.tree.map(lambda p, g: p - 0.01 * g, params, gradient)
        return loss, moved, stats, metrics

    before, moved, new, metrics = step(params, stats)
    after = step(moved, stats)[0]
    assert after < before
    assert 0 <= metrics["accuracy"] <= 1
    chex.assert_trees_all_equal_shapes_and_dtypes(new, stats)
    assert (stats == ()) == (norm == "group" or name not in ("convmixer", "resnet18"))


def test_resnet_with_group_norm_is_independent_of_other_samples():
    task, batch = small("resnet18", "group")
    params, stats = jax.jit(task.init)(jax.random.key(0))
    loss = jax.jit(jax.vmap(task.loss, (None, None, 0, None, None)), static_argnums=4)
    alone = jax.tree.map(lambda leaf: leaf[:, None], batch)
    together = jax.tree.map(lambda leaf: leaf[None], batch)
    key = jax.random.key(0)
    losses = loss(params, stats, alone, key, True)[0]
    whole = loss(params, stats, together, key, True)[0]
    np.testing.assert_allclose(losses.mean(), whole[0], rtol=1e-5)


def test_lstm_learns_a_short_text():
    text = np.frombuffer(b"to be or not to be that is the question " * 4, np.uint8)
    codes = np.unique(text, return_inverse=True)[1]
    length, model = 8, models.create("lstm", 80, hidden=32, embedding=16)
    windows = np.stack([codes[i : i + length + 1] for i in range(40)])
    batch = Batch(jnp.asarray(windows[:, :-1], jnp.int32), jnp.asarray(windows[:, -1]))
    task, optimizer = models.next_character(model, length), optax.adam(0.02)

    @jax.jit
    def train(key):
        params, stats = task.init(key)

        def step(carry, key):
            params, state = carry
            loss, gradient = jax.value_and_grad(task.loss, has_aux=True)(
                params, stats, batch, key, True
            )
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(params, updates), state), loss[0]

        start = (params, optimizer.init(params))
        return jax.lax.scan(step, start, jax.random.split(key, 60))[1]

    losses = train(jax.random.key(0))
    assert abs(losses[0] - np.log(80)) < 0.5
    assert losses[-1] < losses[0] / 2


def test_padding_does_not_count():
    task, batch = small("cnn")
    params, stats = jax.jit(task.init)(jax.random.key(0))
    loss = jax.jit(task.loss, static_argnums=4)
    expected = loss(params, stats, batch, jax.random.key(0), False)
    noise = jnp.full((2, *batch.inputs.shape[1:]), 1e3)
    padded = Batch(
        jnp.concatenate([batch.inputs, noise]),
        jnp.concatenate([batch.targets, jnp.zeros(2, batch.targets.dtype)]),
        jnp.array([True] * 6 + [False] * 2),
    )
    result = loss(params, stats, padded, jax.random.key(0), False)
    chex.assert_trees_all_close(result, expected, rtol=1e-6)
    empty = padded._replace(mask=jnp.zeros(8, bool))
    assert loss(params, stats, empty, jax.random.key(0), False)[0] == 0


def test_padding_with_batch_norm_is_refused_in_training_only():
    task, batch = small("convmixer")
    params, stats = jax.jit(task.init)(jax.random.key(0))
    padded = batch._replace(mask=jnp.ones(6, bool))
    with pytest.raises(ValueError, match="norm='group'"):
        task.loss(params, stats, padded, jax.random.key(0), True)
    loss = jax.jit(task.loss, static_argnums=4)
    result = loss(params, stats, padded, jax.random.key(0), False)
    expected = loss(params, stats, batch, jax.random.key(0), False)
    chex.assert_trees_all_close(result, expected, rtol=1e-6)


def test_evaluation_uses_stored_statistics_and_leaves_them():
    task, batch = small("convmixer")
    params, stats = jax.jit(task.init)(jax.random.key(0))
    loss = jax.jit(task.loss, static_argnums=4)
    _, (same, _) = loss(params, stats, batch, jax.random.key(0), False)
    chex.assert_trees_all_equal(same, stats)
    one = Batch(batch.inputs[:1], batch.targets[:1])
    rest = Batch(batch.inputs[1:], batch.targets[1:])
    parts = [
        loss(params, stats, part, jax.random.key(0), False)[0] for part in (one, rest)
    ]
    whole = loss(params, stats, batch, jax.random.key(0), False)[0]
    # A sample's loss does not depend on its neighbours.
    np.testing.assert_allclose(whole, (parts[0] + 5 * parts[1]) / 6, rtol=1e-5)


def test_dropout_follows_the_key_in_training_only():
    model = models.create("lstm", 10, embedding=5, hidden=6, dropout=0.5)
    task, (_, batch) = models.next_character(model, 9), small("lstm")
    params, stats = jax.jit(task.init)(jax.random.key(0))
    loss = jax.jit(task.loss, static_argnums=4)
    draw = [loss(params, stats, batch, jax.random.key(k), True)[0] for k in (0, 0, 1)]
    assert draw[0] == draw[1] != draw[2]
    still = [loss(params, stats, batch, jax.random.key(k), False)[0] for k in (0, 1)]
    assert still[0] == still[1]


@pytest.mark.parametrize("name", SMALL)
def test_gradient_lowers_for_accelerators(name):
    task, batch = small(name)
    params, stats = jax.eval_shape(task.init, jax.random.key(0))
    clients = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype),
        (params, stats, Batch(batch.inputs, batch.targets)),
    )
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 2))

    def gradient(params, stats, batch, key):
        return jax.grad(task.loss, has_aux=True)(params, stats, batch, key, True)

    traced = jax.jit(jax.vmap(gradient)).trace(*clients, keys)
    for platform in ("cuda", "tpu"):
        assert traced.lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("convmixr", {}, "did you mean 'convmixer'"),
        ("convmixer", {"norm": "layer"}, "norm = 'layer' is not known.*Known: batch"),
        ("resnet18", {"norm": "layer"}, "norm = 'layer' is not known"),
        ("cnn", {"norm": "batch"}, "'cnn' has no option 'norm'; it has features"),
        ("convmixer", {"with": 3}, "no option 'with'; it has depth"),
        ("convmixer", {"kernel": 4}, "kernel=4 must be odd.*use 5"),
        ("convmixer", {"width": 0}, "width = 0, but it must be >= 1"),
        ("mlp", {"hidden": (5, 0)}, "hidden = 0, but it must be >= 1"),
        ("cnn", {"features": (8, 2.5)}, "features = 2.5.* whole number"),
        ("lstm", {"dropout": 1.0}, "dropout = 1.0, but it must be >= 0 and < 1"),
    ],
)
def test_wrong_options_are_explained(name, options, message):
    with pytest.raises(ValueError, match=message):
        models.create(name, num_classes=10, **options)


@pytest.mark.parametrize(
    ("name", "options", "shape", "message"),
    [
        (
            "convmixer",
            {"patch": 3},
            COLOUR,
            "patch=3 does not divide an image of 32×32",
        ),
        ("alexnet", {}, (20, 20, 3), "20×20 pixels is smaller than crop=28"),
        ("lstm", {}, (80,), "a text of float32 was given; characters are integers"),
    ],
)
def test_wrong_inputs_are_explained(name, options, shape, message):
    with pytest.raises(ValueError, match=message):
        models.classifier(models.create(name, 10, **options), shape)


def test_unknown_collections_are_refused():
    class Counting(nn.Module):
        @nn.compact
        def __call__(self, inputs, train=False):
            self.variable("counter", "calls", jnp.zeros, ())
            return nn.Dense(3)(inputs)

    with pytest.raises(ValueError, match=r"collections \['counter'\]"):
        models.classifier(Counting(), (4,))
