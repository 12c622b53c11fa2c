"""Plain operations of a model and the layers that take their place, in float64."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from afga_jax import models
from afga_jax.models import plain_layers
from afga_jax.models.plain_layers import fast_layers, has_plain_layers

EXACT = 1e-10  # float64


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def both(module, shape, **options):
    """A module's plain function of variables and inputs, its fast one, arguments."""

    def plain(variables, inputs):
        return module.apply(variables, inputs, mutable=["batch_stats"], **options)

    inputs = normal(0, *shape)
    variables = module.init(jax.random.key(0), inputs, **options)
    variables = jax.tree.map(lambda x: x + 0.1 * normal(1, *x.shape), variables)
    return plain, fast_layers(plain), (variables, inputs)


def results(function, variables, inputs):
    """Outputs, new statistics, and gradients of a random linear function of them."""

    def scalar(variables, inputs):
        outputs, updated = function(variables, inputs)
        return (outputs * normal(9, *outputs.shape)).sum(), (outputs, updated)

    return jax.jit(jax.grad(scalar, (0, 1), has_aux=True))(variables, inputs)


def assert_same(module, shape, *, taken=True, **options):
    """The same results, by a fast layer or, where none is equivalent, by flax's."""
    plain, fast, args = both(module, shape, **options)
    assert has_plain_layers(plain, *args) == taken
    chex.assert_trees_all_close(
        results(fast, *args), results(plain, *args), rtol=EXACT, atol=EXACT
    )
    before = jax.make_jaxpr(plain)(*args)
    after = jax.make_jaxpr(fast)(*args)
    assert (str(before) == str(after)) == (not taken)


IMAGES, SEQUENCES = (3, 8, 7, 4), (3, 9, 4)
TAKEN = {
    "same": (nn.Conv(6, (3, 3)), IMAGES),
    "valid": (nn.Conv(6, (5, 3), padding="VALID"), IMAGES),
    "a number of pixels": (nn.Conv(6, (5, 5), padding=2), IMAGES),
    "explicit padding": (nn.Conv(6, (4, 2), padding=((2, 1), (0, 3))), IMAGES),
    "strides": (nn.Conv(6, (3, 3), strides=2), IMAGES),
    "unequal strides": (nn.Conv(6, (3, 3), strides=(2, 1)), IMAGES),
    "pointwise": (nn.Conv(6, (1, 1)), IMAGES),
    "pointwise with strides": (nn.Conv(6, (1, 1), strides=(2, 2)), IMAGES),
    "patches": (nn.Conv(6, (2, 2), strides=(2, 2)), (3, 8, 6, 4)),
    "without bias": (nn.Conv(6, (3, 3), use_bias=False), IMAGES),
    "one channel": (nn.Conv(6, (3, 3)), (3, 8, 7, 1)),
    "many channels": (nn.Conv(3, (3, 3)), (2, 4, 4, 64)),
    "depthwise": (nn.Conv(4, (3, 3), feature_group_count=4), IMAGES),
    "masked weights": (nn.Conv(2, (1, 1), mask=jnp.ones((1, 1, 4, 2))), IMAGES),
    "circular": (nn.Conv(6, (3, 3), padding="CIRCULAR"), IMAGES),
    "one image without batch": (nn.Conv(6, (3, 3)), IMAGES[1:]),
    "two axes of batches": (nn.Conv(6, (3, 3)), (2, *IMAGES)),
    "sequences": (nn.Conv(6, (3,)), SEQUENCES),
    "causal": (nn.Conv(6, (3,), strides=2, padding="CAUSAL"), SEQUENCES),
    "dense over sequences": (nn.Dense(5), SEQUENCES),
    "jitted": (nn.jit(nn.Conv)(6, (3, 3)), IMAGES),
    "recomputed": (nn.remat(nn.Conv)(6, (3, 3)), IMAGES),
}
LEFT = {
    "two groups": (nn.Conv(6, (3, 3), feature_group_count=2), IMAGES),
    "more filters a channel": (nn.Conv(8, (3, 3), feature_group_count=4), IMAGES),
    "dilated kernel": (nn.Conv(6, (3, 3), kernel_dilation=2), IMAGES),
    "dilated inputs": (nn.Conv(6, (3, 3), padding=1, input_dilation=2), IMAGES),
    "transposed": (nn.ConvTranspose(6, (3, 3), strides=(2, 2)), IMAGES),
    "volumes": (nn.Conv(2, (3, 3, 3)), (2, 4, 4, 4, 3)),
    "a weight for each pixel": (nn.ConvLocal(2, (3, 3)), IMAGES),
    "highest precision": (nn.Conv(6, (3, 3), precision="highest"), IMAGES),
    "dense": (nn.Dense(5), (3, 4)),
    "dense at a precision": (nn.Dense(5, precision="highest"), SEQUENCES),
}


@pytest.mark.parametrize("name", TAKEN)
def test_layer_takes_the_place_of_the_plain_one(x64, name):
    assert_same(*TAKEN[name])


@pytest.mark.parametrize("name", LEFT)
def test_what_no_layer_computes_stays(x64, name):
    assert_same(*LEFT[name], taken=False)


def test_half_precision_stays(x64):
    for dtype in (jnp.bfloat16, jnp.float16):
        plain, _, args = both(nn.Conv(6, (3, 3), dtype=dtype), IMAGES)
        assert not has_plain_layers(plain, *args)


class Pooled(nn.Module):
    """A pooling after something to differentiate."""

    kind: str
    window: tuple
    strides: tuple | None = None
    padding: str | tuple = "VALID"

    @nn.compact
    def __call__(self, x):
        x = x * self.param("scale", nn.initializers.ones, ())
        pool = getattr(nn, f"{self.kind}_pool")
        return pool(x, self.window, self.strides, self.padding)


@pytest.mark.parametrize(
    ("window", "strides", "padding", "shape"),
    [
        ((2, 2), (2, 2), "VALID", (2, 8, 6, 3)),
        ((2, 2), (2, 2), "VALID", (2, 9, 7, 3)),
        ((3, 3), (2, 2), "SAME", (2, 8, 7, 3)),
        ((3, 2), None, "SAME", (2, 5, 6, 3)),
        ((3, 3), (2, 1), ((1, 1), (0, 2)), (2, 8, 8, 3)),
        ((2, 2), (2, 2), "VALID", (8, 6, 3)),
        ((3,), (2,), "SAME", (2, 9, 3)),
    ],
)
def test_max_pool(x64, window, strides, padding, shape):
    assert_same(Pooled("max", window, strides, padding), shape)


def test_mean_pool_stays(x64):
    """It is as fast as it could be."""
    assert_same(Pooled("avg", (2, 2), (2, 2)), IMAGES, taken=False)


def test_of_equal_pixels_the_same_one_gets_the_gradient(x64):
    images = jnp.zeros((1, 4, 4, 1)).at[0, 1, 1].set(-1.0)

    def plain(x):
        return nn.max_pool(x, (2, 2), (2, 2)).sum()

    np.testing.assert_array_equal(
        jax.grad(fast_layers(plain))(images), jax.grad(plain)(images)
    )


class Block(nn.Module):
    """Everything that an ordinary image model has."""

    @nn.compact
    def __call__(self, x, train):
        for features in (4, 6):
            x = nn.Conv(features, (3, 3), padding=1)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
            x = nn.max_pool(x, (2, 2), (2, 2))
        return nn.Dense(3)(x.reshape(len(x), -1))


@pytest.mark.parametrize("train", [True, False])
def test_model_with_batch_norm(x64, train):
    assert_same(Block(), IMAGES, train=train)


def test_clients_side_by_side_in_a_loop(x64):
    """Under vmap over clients' own weights, a scan over steps, and grad."""
    plain, fast, (variables, _) = both(Block(), IMAGES, train=True)
    batches = normal(5, 2, 3, *IMAGES)

    def train(function):
        def step(variables, inputs):
            def loss(params):
                outputs, updated = function({**variables, "params": params}, inputs)
                return (outputs**2).mean(), updated

            gradient, updated = jax.grad(loss, has_aux=True)(variables["params"])
            moved = jax.tree.map(
                lambda p, g: p - 0.1 * g, variables["params"], gradient
            )
            return {"params": moved, **updated}, None

        def client(inputs):
            return lax.scan(step, variables, inputs)[0]

        return jax.jit(jax.vmap(client))(batches)

    chex.assert_trees_all_close(train(fast), train(plain), rtol=EXACT, atol=EXACT)


def test_layers_inside_control_flow(x64):
    kernel, images = normal(0, 3, 3, 4, 4), normal(1, *IMAGES)

    def conv(x, k):
        return lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def plain(x, k):
        x = lax.scan(lambda x, _: (jnp.tanh(conv(x, k)), None), x, length=2)[0]
        x = lax.cond(x.sum() > 0, conv, lambda x, k: x, x, k)
        return lax.fori_loop(0, 2, lambda _, x: jnp.tanh(conv(x, k)), x).sum()

    value = jax.value_and_grad(plain, (0, 1))
    assert has_plain_layers(plain, images, kernel)
    chex.assert_trees_all_close(
        jax.jit(jax.value_and_grad(fast_layers(plain), (0, 1)))(images, kernel),
        value(images, kernel),
        rtol=EXACT,
        atol=EXACT,
    )


def test_other_libraries_models(x64):
    module = nnx.Conv(4, 6, (3, 3), rngs=nnx.Rngs(0), param_dtype=jnp.float64)
    graph, state = nnx.split(module)

    def plain(state, inputs):
        return nnx.merge(graph, state)(inputs)

    images = normal(0, *IMAGES)
    assert has_plain_layers(plain, state, images)
    chex.assert_trees_all_close(
        fast_layers(plain)(state, images), plain(state, images), rtol=0, atol=EXACT
    )


def test_accelerators_only_multiply(x64, monkeypatch):
    """Convolutions whose windows are apart; others stay as they are."""
    monkeypatch.setattr(plain_layers, "on_cpu", lambda: False)
    assert_same(nn.Conv(6, (3, 3)), IMAGES, taken=False)
    assert_same(nn.Conv(6, (1, 1), strides=(2, 2), padding="VALID"), IMAGES)
    assert_same(nn.Conv(6, (3,), strides=(3,), padding="VALID"), SEQUENCES)


@pytest.mark.parametrize("name", models.MODELS)
def test_our_own_models_have_no_plain_layers(name):
    model = models.create(name, 10)
    inputs = jnp.zeros((2, 32), int) if name == "lstm" else jnp.zeros((2, 32, 32, 3))
    shapes = jax.eval_shape(model.init, jax.random.key(0), inputs)
    assert not has_plain_layers(
        lambda variables, inputs: model.apply(
            variables,
            inputs,
            train=True,
            mutable=["batch_stats"],
            rngs={"dropout": jax.random.key(0)},
        ),
        shapes,
        inputs,
    )
