"""The layers against the plain forms of flax and jax.lax, values and gradients."""

import functools
import importlib

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from afga_jax.models import layers
from afga_jax.models.layers import norm, windows, winograd
from cases import marked

convolution = importlib.import_module("afga_jax.models.layers.convolution")

ROUNDING = 1e-5  # float32 sums of a few hundred terms of size one
EXACT = 1e-10  # float64


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def value_and_gradients(function, *operands):
    """The result, and the gradients of a random linear function of it."""

    def scalar(*operands):
        result = function(*operands)
        return (result * normal(9, *result.shape).astype(result.dtype)).sum(), result

    every = tuple(range(len(operands)))
    return jax.jit(jax.grad(scalar, every, has_aux=True))(*operands)


def assert_same(fast, plain, *operands, tolerance):
    result = value_and_gradients(fast, *operands)
    expected = value_and_gradients(plain, *operands)
    chex.assert_trees_all_close(result, expected, rtol=tolerance, atol=tolerance)


def plain_convolution(strides, padding, groups=1):
    def apply(inputs, kernel):
        module = nn.Conv(
            kernel.shape[3],
            kernel.shape[:2],
            strides,
            padding,
            use_bias=False,
            feature_group_count=groups,
        )
        return module.apply({"params": {"kernel": kernel}}, inputs)

    return apply


# Window, strides, padding, image: each of the special forms, and odd ones everywhere.
WINDOWS = [
    ((1, 1), (1, 1), "SAME", (5, 4)),
    ((1, 1), (2, 2), "VALID", (9, 6)),
    ((2, 2), (2, 2), "VALID", (8, 6)),
    ((2, 2), (2, 2), "VALID", (9, 7)),
    ((2, 2), (2, 2), "SAME", (9, 6)),
    ((3, 3), (1, 1), "SAME", (6, 7)),
    ((3, 3), (2, 2), ((1, 1), (1, 1)), (8, 8)),
    ((5, 5), (1, 1), "SAME", (8, 6)),
    ((4, 2), (2, 1), ((2, 1), (0, 3)), (7, 5)),
    ((2, 3), (1, 3), "VALID", (5, 9)),
]


# One, few and many input channels take different ways to the kernel's gradient.
@pytest.mark.parametrize("channels", [(1, 4), (3, 2), (64, 2)])
@pytest.mark.parametrize(
    ("kernel", "strides", "padding", "image"), marked(WINDOWS, WINDOWS[1::3])
)
def test_convolution_is_flax_conv(x64, kernel, strides, padding, image, channels):
    weights = normal(1, *kernel, *channels)
    assert_same(
        lambda x, k: layers.convolution(x, k, strides, padding),
        plain_convolution(strides, padding),
        normal(0, 3, *image, channels[0]),
        weights,
        tolerance=EXACT,
    )


# Channels, images and padding; the second makes the last tiles reach beyond the image.
@pytest.mark.parametrize(
    ("channels", "image", "padding"),
    [
        ((64, 65), (10, 8, 8), "SAME"),
        ((65, 64), (14, 7, 9), "VALID"),
        ((64, 64), (20, 5, 6), ((2, 0), (0, 3))),
    ],
)
def test_many_channels_take_fewer_products(x64, channels, image, padding):
    inputs = normal(0, *image, channels[0])
    kernel = normal(1, 3, 3, *channels) / 24
    pads = windows.explicit_padding(image[1:], (3, 3), (1, 1), padding)
    assert winograd.is_faster(inputs, kernel, (1, 1), pads)
    fast = functools.partial(layers.convolution, padding=padding)
    plain = plain_convolution((1, 1), padding)
    assert_same(fast, plain, inputs, kernel, tolerance=EXACT)
    # What the transforms cancel costs digits in single precision, as the module says.
    singles = [array.astype(jnp.float32) for array in (inputs, kernel)]
    single, double = fast(*singles), plain(inputs, kernel)
    assert abs(single - double).max() < 3e-5 * abs(double).max()


@pytest.mark.parametrize(
    ("image", "kernel", "strides"),
    [
        ((50, 8, 8, 63), (3, 3, 63, 64), (1, 1)),
        ((50, 8, 8, 64), (5, 5, 64, 64), (1, 1)),
        ((50, 8, 8, 64), (3, 3, 64, 64), (2, 2)),
        ((9, 8, 8, 64), (3, 3, 64, 64), (1, 1)),
        ((50, 3, 8, 64), (3, 3, 64, 64), (1, 1)),
    ],
)
def test_few_tiles_or_channels_take_all_products(image, kernel, strides):
    images, weights = jnp.zeros(image), jnp.zeros(kernel)
    assert not winograd.is_faster(images, weights, strides, ((1, 1), (1, 1)))


def test_half_precision_takes_all_products():
    images = jnp.zeros((50, 8, 8, 64), jnp.bfloat16)
    weights = jnp.zeros((3, 3, 64, 64), jnp.bfloat16)
    assert not winograd.is_faster(images, weights, (1, 1), ((1, 1), (1, 1)))


def test_kernel_gradients_of_large_images_are_summed_sample_by_sample(x64):
    assert_same(
        layers.convolution,
        plain_convolution((1, 1), "SAME"),
        normal(0, 2, 20, 20, 64),
        normal(1, 5, 5, 64, 2),
        tolerance=EXACT,
    )


@pytest.mark.parametrize(("kernel", "strides", "padding", "image"), WINDOWS)
def test_depthwise_is_flax_conv_with_groups(x64, kernel, strides, padding, image):
    weights = normal(1, *kernel, 1, 6)
    assert_same(
        lambda x, k: layers.depthwise(x, k, strides, padding),
        plain_convolution(strides, padding, groups=6),
        normal(0, 3, *image, 6),
        weights,
        tolerance=EXACT,
    )


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("window", "strides", "padding", "image"), WINDOWS)
def test_max_pool_is_flax_max_pool(x64, window, strides, padding, image, ties):
    inputs = normal(0, 3, *image, 3)
    assert_same(
        lambda x: layers.max_pool(x, window, strides, padding),
        lambda x: nn.max_pool(x, window, strides, padding),
        jnp.round(inputs) if ties else inputs,
        tolerance=EXACT,
    )


def plain_norm(gelu):
    def apply(inputs, scale, bias):
        hidden = jax.nn.gelu(inputs, approximate=False) if gelu else inputs
        module = nn.BatchNorm(use_running_average=False, momentum=0.9, epsilon=1e-5)
        stats = {"mean": jnp.zeros_like(bias), "var": jnp.ones_like(bias)}
        variables = {"params": {"scale": scale, "bias": bias}, "batch_stats": stats}
        return module.apply(variables, hidden, mutable=["batch_stats"])[0]

    return apply


@pytest.mark.parametrize("shape", [(4, 3), (3, 5, 5, 8), (1, 2, 6, 1)])
@pytest.mark.parametrize("gelu", [False, True])
def test_norm_is_flax_batch_norm(x64, gelu, shape):
    fast = layers.gelu_norm if gelu else layers.batch_norm
    operands = normal(0, *shape), normal(1, shape[-1]), normal(2, shape[-1])
    assert_same(
        lambda *o: fast(*o, 1e-5)[0], plain_norm(gelu), *operands, tolerance=EXACT
    )


def plain_lstm(inputs, kernel, recurrent_kernel, bias):
    def step(state, now):
        output, cell = state
        gates = now @ kernel + output @ recurrent_kernel + bias[None]
        i, f, g, o = jnp.split(gates, 4, axis=1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        output = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (output, cell), output

    shape = (inputs.shape[1], recurrent_kernel.shape[0])
    zeros = jnp.zeros(shape, inputs.dtype)
    return lax.scan(step, (zeros, zeros), inputs)[1]


@pytest.mark.parametrize(
    ("time", "batch", "hidden"), [(1, 1, 1), (7, 3, 5), (20, 2, 8)]
)
def test_lstm_is_a_plain_scan(x64, time, batch, hidden):
    shapes = (time, batch, 3), (3, 4 * hidden), (hidden, 4 * hidden), (4 * hidden,)
    operands = [normal(number, *shape) for number, shape in enumerate(shapes)]
    assert_same(layers.lstm, plain_lstm, *operands, tolerance=EXACT)


def test_lstm_is_flax_lstm_cell(x64):
    inputs, kernel = normal(0, 4, 3, 6), normal(1, 6, 20)
    recurrent_kernel, bias = normal(2, 5, 20), normal(3, 20)
    params = {}
    for number, gate in enumerate("ifgo"):
        columns = slice(5 * number, 5 * number + 5)
        params[f"i{gate}"] = {"kernel": kernel[:, columns]}
        params[f"h{gate}"] = {
            "kernel": recurrent_kernel[:, columns],
            "bias": bias[columns],
        }
    cell, state = nn.OptimizedLSTMCell(5), (jnp.zeros((3, 5)), jnp.zeros((3, 5)))
    expected = []
    for step in inputs:
        state, output = cell.apply({"params": params}, state, step)
        expected.append(output)
    result = layers.lstm(inputs, kernel, recurrent_kernel, bias)
    chex.assert_trees_all_close(result, jnp.stack(expected), atol=EXACT)


CASES = {
    "convolution": (
        layers.convolution,
        plain_convolution((1, 1), "SAME"),
        ((4, 8, 8, 6), (3, 3, 6, 5)),
    ),
    "grey": (
        layers.convolution,
        plain_convolution((1, 1), "SAME"),
        ((4, 9, 8, 1), (5, 5, 1, 4)),
    ),
    "strided": (
        lambda x, k: layers.convolution(x, k, (2, 2), ((1, 1), (1, 1))),
        plain_convolution((2, 2), ((1, 1), (1, 1))),
        ((4, 8, 8, 6), (3, 3, 6, 5)),
    ),
    "pointwise": (
        layers.convolution,
        plain_convolution((1, 1), "SAME"),
        ((4, 8, 8, 6), (1, 1, 6, 5)),
    ),
    "patches": (
        lambda x, k: layers.convolution(x, k, (2, 2), "VALID"),
        plain_convolution((2, 2), "VALID"),
        ((4, 8, 6, 3), (2, 2, 3, 5)),
    ),
    "depthwise": (
        layers.depthwise,
        plain_convolution((1, 1), "SAME", groups=6),
        ((4, 8, 8, 6), (5, 5, 1, 6)),
    ),
    "max_pool": (
        layers.max_pool,
        lambda x: nn.max_pool(x, (2, 2), (2, 2)),
        ((4, 8, 8, 6),),
    ),
    "gelu_norm": (
        lambda *o: layers.gelu_norm(*o, 1e-5)[0],
        plain_norm(True),
        ((4, 5, 5, 6), (6,), (6,)),
    ),
    "batch_norm": (
        lambda *o: layers.batch_norm(*o, 1e-5)[0],
        plain_norm(False),
        ((4, 5, 5, 6), (6,), (6,)),
    ),
    "lstm": (layers.lstm, plain_lstm, ((6, 3, 5), (5, 16), (4, 16), (16,))),
}


@pytest.mark.parametrize("name", CASES)
def test_float32_agrees_to_rounding(name):
    fast, plain, shapes = CASES[name]
    operands = [normal(n, *s).astype(jnp.float32) for n, s in enumerate(shapes)]
    assert_same(fast, plain, *operands, tolerance=ROUNDING)


@pytest.mark.parametrize("name", marked(CASES, ["convolution", "pointwise", "lstm"]))
def test_vmap_and_loop_give_every_client_its_own_weights(x64, name):
    fast, plain, shapes = CASES[name]
    clients = [normal(n, 3, *s) for n, s in enumerate(shapes)]

    def one_by_one(function):
        return lambda o: lax.map(lambda one: value_and_gradients(function, *one), o)

    def at_once(function):
        return jax.vmap(lambda *one: value_and_gradients(function, *one))

    expected = jax.jit(one_by_one(plain))(clients)
    loop, batch = one_by_one(fast), at_once(fast)
    result = jax.jit(lambda o: (loop(o), batch(*o)))(clients)
    chex.assert_trees_all_close(result, (expected, expected), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("name", CASES)
def test_lowers_for_every_platform(name):
    fast, _, shapes = CASES[name]

    def gradients(*operands):
        return value_and_gradients(fast, *operands)

    shapes = [jax.ShapeDtypeStruct((2, *shape), jnp.float32) for shape in shapes]
    traced = jax.jit(jax.vmap(gradients)).trace(*shapes)
    for platform in ("cpu", "cuda", "tpu"):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        if name == "depthwise":
            # The native operation everywhere but on CPU.
            assert ("stablehlo.convolution" in text) == (platform != "cpu")


@pytest.mark.parametrize(("kernel", "strides", "padding", "image"), WINDOWS[:3])
def test_accelerators_multiply_where_windows_are_apart(
    x64, kernel, strides, padding, image
):
    """By batched matmuls where every client has its own weights."""
    layer = lambda x, k: layers.convolution(x, k, strides, padding)  # noqa: E731
    operands = normal(0, 4, 3, *image, 2), normal(1, 4, *kernel, 2, 6)
    traced = jax.jit(jax.vmap(layer)).trace(*operands)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "stablehlo.dot_general" in text
    assert "stablehlo.convolution" not in text
    pads = windows.explicit_padding(image, kernel, strides, padding)
    fast = functools.partial(convolution._full, strides=strides, padding=pads)
    assert_same(
        jax.vmap(fast),
        jax.vmap(plain_convolution(strides, padding)),
        *operands,
        tolerance=EXACT,
    )


def test_accelerators_compute_gelu_again(x64, monkeypatch):
    # Of a shape that no other test has traced for a CPU.
    operands = normal(0, 3, 7, 5, 8), normal(1, 8), normal(2, 8)
    monkeypatch.setattr(norm, "on_cpu", lambda: False)
    fast = lambda *o: layers.gelu_norm(*o, 1e-5)[0]  # noqa: E731
    saved = jax.eval_shape(lambda *o: jax.vjp(fast, *o)[1], *operands)
    assert [x.size for x in jax.tree.leaves(saved)].count(operands[0].size) == 1
    assert_same(fast, plain_norm(True), *operands, tolerance=EXACT)


def test_a_window_larger_than_the_image_is_refused():
    image, kernel = jnp.zeros((1, 4, 4, 1)), jnp.zeros((5, 5, 1, 1))
    with pytest.raises(ValueError, match="window of 5 pixels does not fit"):
        layers.convolution(image, kernel, padding="VALID")
    with pytest.raises(ValueError, match="window of 5 pixels does not fit"):
        layers.max_pool(image, (5, 5))
