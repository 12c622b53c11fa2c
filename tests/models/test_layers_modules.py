"""The layers as flax modules, and the boundary that keeps them fast."""

from functools import partial

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from afga_jax.models import layers
from afga_jax.models.layers.boundary import materialise
from afga_jax.models.layers.initial import from_one_draw

EXACT = 1e-10  # float64


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm_is_flax_group_norm(x64, groups):
    inputs = normal(0, 3, 4, 5, 6)
    params = {"scale": normal(1, 6), "bias": normal(2, 6)}
    expected = nn.GroupNorm(groups, epsilon=1e-5).apply({"params": params}, inputs)
    module = layers.Norm("group", groups=groups)
    result = module.apply({"params": params}, inputs, True)
    chex.assert_trees_all_close(result, expected, atol=EXACT)


@pytest.mark.parametrize("gelu", [False, True])
def test_running_statistics_are_those_of_flax(x64, gelu):
    ours, theirs = layers.Norm(gelu=gelu), nn.BatchNorm(momentum=0.9, epsilon=1e-5)
    variables = ours.init(jax.random.key(0), jnp.zeros((1, 2, 2, 6)), True)
    expected = variables
    for step in range(3):
        inputs = 2 + 3 * normal(step, 4, 2, 2, 6)
        hidden = jax.nn.gelu(inputs, approximate=False) if gelu else inputs
        _, stats = ours.apply(variables, inputs, True, mutable=["batch_stats"])
        variables = {**variables, **stats}
        _, stats = theirs.apply(
            expected, hidden, use_running_average=False, mutable=["batch_stats"]
        )
        expected = {**expected, **stats}
        chex.assert_trees_all_close(variables, expected, rtol=EXACT)
    result = ours.apply(variables, inputs, False)
    stored = theirs.apply(expected, hidden, use_running_average=True)
    chex.assert_trees_all_close(result, stored, atol=EXACT)


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        (layers.Conv(4, (3, 3)), nn.Conv(4, (3, 3)), (2, 5, 5, 3)),
        (
            layers.DepthwiseConv((3, 3)),
            nn.Conv(3, (3, 3), feature_group_count=3),
            (2, 5, 5, 3),
        ),
        (layers.Dense(4), nn.Dense(4), (2, 5)),
    ],
)
def test_parameters_are_interchangeable_with_flax(x64, ours, theirs, shape):
    inputs = normal(0, *shape)
    single = inputs.astype(jnp.float32)
    params = theirs.init(jax.random.key(0), single)
    chex.assert_trees_all_equal_shapes(params, ours.init(jax.random.key(0), single))
    params = jax.tree.map(lambda leaf: leaf.astype(inputs.dtype), params)
    result, expected = ours.apply(params, inputs), theirs.apply(params, inputs)
    chex.assert_trees_all_close(result, expected, atol=EXACT)


@pytest.mark.parametrize("window", [(2, 2), (3, 3)])
def test_a_pool_before_bias_and_relu_is_one_after_them(x64, window):
    pool = partial(layers.max_pool, window=window, strides=(2, 2))
    inputs, ours = normal(0, 2, 9, 8, 2), layers.Conv(3, (5, 5), pool=pool)
    params = {"kernel": normal(1, 5, 5, 2, 3), "bias": normal(2, 3)}
    weights = normal(3, *ours.apply({"params": params}, inputs).shape)

    def fast(params, inputs):
        return (nn.relu(ours.apply({"params": params}, inputs)) * weights).sum()

    def plain(params, inputs):
        hidden = nn.relu(nn.Conv(3, (5, 5)).apply({"params": params}, inputs))
        return (nn.max_pool(hidden, window, (2, 2)) * weights).sum()

    gradients = [jax.grad(f, (0, 1))(params, inputs) for f in (fast, plain)]
    chex.assert_trees_all_close(*gradients, rtol=EXACT, atol=EXACT)


def test_the_boundary_survives_the_compiler():
    # Without it every consumer of a depthwise layer would compute the layer again.
    def twice(inputs):
        return 2 * materialise(jnp.sin, inputs)

    inputs = jnp.arange(6.0).reshape(2, 3)
    for function in (twice, jax.vmap(twice)):
        compiled = jax.jit(function).lower(inputs).compile()
        assert " conditional(" in compiled.as_text()
        chex.assert_trees_all_close(compiled(inputs), 2 * jnp.sin(inputs), rtol=1e-6)


class Two(nn.Module):
    """Two layers of different sizes, and a parameter that is not drawn."""

    @nn.compact
    def __call__(self, inputs):
        hidden = layers.Dense(50)(inputs)
        scale = self.param("scale", nn.initializers.ones, (50,))
        return layers.Dense(40)(hidden * scale[None])


class TestFromOneDraw:
    @staticmethod
    def init(key):
        return from_one_draw(Two(), key, jnp.zeros((1, 400)))

    def test_parameters_are_cut_from_one_draw_in_the_order_of_calls(self):
        key = jax.random.key(3)
        params = jax.jit(self.init)(key)["params"]
        numbers = jax.random.uniform(key, (22_090,), minval=-1.0)
        shapes = [(400, (400, 50)), (400, (50,)), (50, (50, 40)), (50, (40,))]
        names = [(f"Dense_{n}", name) for n in (0, 1) for name in ("kernel", "bias")]
        start = 0
        for (fan_in, shape), (layer, name) in zip(shapes, names, strict=True):
            end = start + np.prod(shape)
            expected = fan_in**-0.5 * numbers[start:end].reshape(shape)
            np.testing.assert_array_equal(params[layer][name], expected)
            start = end

    def test_one_draw_is_compiled(self):
        lowered = jax.jit(self.init).lower(jax.random.key(0)).as_text()
        assert lowered.count("call @threefry2x32") == 1
        assert "dot_general" not in lowered

    def test_without_it_every_parameter_has_its_own_draw(self):
        key, inputs = jax.random.key(0), jnp.zeros((1, 400))
        plain = Two().init(key, inputs)["params"]["Dense_0"]["kernel"]
        from_one_draw(Two(), key, inputs)
        again = Two().init(key, inputs)["params"]["Dense_0"]["kernel"]
        np.testing.assert_array_equal(again, plain)
        assert not np.allclose(plain, self.init(key)["params"]["Dense_0"]["kernel"])

    def test_each_parameter_is_uniform_within_its_own_bound(self):
        params = self.init(jax.random.key(0))["params"]
        chex.assert_trees_all_equal_shapes_and_dtypes(
            params, Two().init(jax.random.key(0), jnp.zeros((1, 400)))["params"]
        )
        np.testing.assert_array_equal(params["scale"], 1)
        for name, fan_in in {"Dense_0": 400, "Dense_1": 50}.items():
            drawn = params[name]["kernel"].ravel() * fan_in**0.5
            deciles = jnp.histogram(drawn, 10, (-1, 1))[0] / drawn.size
            # Five standard deviations of a tenth of 2,000 draws.
            np.testing.assert_allclose(deciles, 0.1, rtol=0, atol=0.034)

    def test_no_number_is_used_twice_and_the_key_decides(self):
        init = jax.jit(self.init)
        leaves = [
            np.asarray(layer[name]).ravel() * fan_in**0.5
            for layer, fan_in in zip(
                [init(jax.random.key(1))["params"][f"Dense_{n}"] for n in (0, 1)],
                (400, 50),
                strict=True,
            )
            for name in ("kernel", "bias")
        ]
        numbers = np.concatenate(leaves).round(5)
        assert len(numbers) == 400 * 50 + 50 + 50 * 40 + 40
        # Of 22,090 numbers among 200,000 places 1,180 pairs meet by chance.
        assert len(np.unique(numbers)) > 20_500
        for key, same in ((1, True), (2, False)):
            again = init(jax.random.key(key))["params"]["Dense_1"]["kernel"]
            first = init(jax.random.key(1))["params"]["Dense_1"]["kernel"]
            assert np.allclose(again, first) == same
