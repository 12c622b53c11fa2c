"""Layers that compute in bfloat16, with parameters and statistics in float32."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from afga_jax import models
from afga_jax.typing import Batch
from cases import marked

# The most that a rounding to bfloat16, which has eight binary digits, changes.
ROUNDING = 2.0**-8
SMALL = {
    "alexnet": {},
    "cnn": {},
    "convmixer": {"width": 8, "depth": 1, "patch": 4, "kernel": 3},
    "convmixer, group": {"width": 16, "depth": 2, "norm": "group"},
    "lstm": {"hidden": 16},
    "mlp": {},
    "resnet18": {"width": 8},
}


def in_bfloat16(tree):
    """The numbers of a tree, rounded."""
    cast = lambda x: x.astype(jnp.bfloat16).astype(x.dtype)  # noqa: E731
    floats = lambda x: jnp.issubdtype(x.dtype, jnp.floating)  # noqa: E731
    return jax.tree.map(lambda x: cast(x) if floats(x) else x, tree)


def apart(tree, other):
    return optax.tree.norm(jax.tree.map(jnp.subtract, tree, other))


@pytest.mark.parametrize("case", marked(SMALL, ["mlp"]))
def test_bfloat16_is_float32_to_its_rounding(case):
    name = case.partition(",")[0]
    model = models.create(name, 5, **SMALL[case])
    rng = np.random.default_rng(0)
    if name == "lstm":
        inputs = rng.integers(0, 5, (6, 10))
        task = lambda dtype: models.next_character(model, 10, dtype=dtype)  # noqa: E731
    else:
        side = 32 if name in ("alexnet", "resnet18") else 16
        inputs = rng.normal(size=(6, side, side, 3)).astype(np.float32)
        shape = inputs.shape[1:]
        task = lambda dtype: models.classifier(model, shape, dtype=dtype)  # noqa: E731
    batch = Batch(jnp.asarray(inputs), jnp.asarray(rng.integers(0, 5, 6)))
    start = task(None).init(jax.random.key(0))

    def step(dtype, start, batch):
        loss = jax.value_and_grad(task(dtype).loss, has_aux=True)
        given = (*start, batch, jax.random.key(1))
        (value, (stats, _)), gradient = jax.jit(lambda *x: loss(*x, True))(*given)
        return value, stats, gradient

    exact, low = step(None, start, batch), step("bfloat16", start, batch)
    chex.assert_trees_all_equal_dtypes(low, exact)
    # Networks magnify: what comes of rounding no more than where a step begins.
    rounded = step(None, *in_bfloat16((start, batch)))
    for found, begun, expected in zip(low, rounded, exact, strict=True):
        least = ROUNDING * optax.tree.norm(expected)
        assert apart(found, expected) <= 3 * apart(begun, expected) + least
    # It is another computation, and its outputs are those of the loss's type.
    logits = task("bfloat16").predict(*start, batch.inputs)
    assert logits.dtype == jnp.float32
    assert (logits == logits.astype(jnp.bfloat16)).all()


def test_an_unknown_type_is_refused():
    with pytest.raises(ValueError, match=r"dtype = 'float16'.*bfloat16"):
        models.classifier(models.create("mlp", 3), (4,), dtype="float16")
