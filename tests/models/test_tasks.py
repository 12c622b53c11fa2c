"""Tasks of models from anywhere: every signature, every kind, every loss."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import afga_jax
from afga_jax.typing import Batch
from cases import marked

KEY = jax.random.key(0)
RANDOM = np.random.default_rng(0)
INPUTS = jnp.asarray(RANDOM.normal(size=(6, 4)), jnp.float32)
BATCH = Batch(INPUTS, jnp.asarray(RANDOM.integers(0, 3, 6)))


def steps(task, batch=BATCH, count=30):
    """Losses of gradient steps, and the parameters and statistics after them."""
    params, stats = jax.jit(task.init)(KEY)

    @jax.jit
    def run(params, stats):
        def step(model, key):
            (loss, (stats, _)), gradient = jax.value_and_grad(task.loss, has_aux=True)(
                *model, batch, key, True
            )
            moved = jax.tree.map(lambda p, g: p - 0.1 * g, model[0], gradient)
            return (moved, stats), loss

        return jax.lax.scan(step, (params, stats), jax.random.split(KEY, count))

    model, losses = run(params, stats)
    return losses, *model


class WithTrain(nn.Module):
    """All that depends on the mode; its flag has a default."""

    @nn.compact
    def __call__(self, x, train: bool = True):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(8)(x))
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(nn.relu(x)))


class Required(WithTrain):
    @nn.compact
    def __call__(self, x, train):
        return WithTrain()(x, train)


class ByKeyword(WithTrain):
    @nn.compact
    def __call__(self, x, *, is_training):
        return WithTrain()(x, is_training)


class Deterministic(nn.Module):
    @nn.compact
    def __call__(self, x, deterministic):
        return WithTrain()(x, not deterministic)


class RunningAverage(nn.Module):
    @nn.compact
    def __call__(self, x, use_running_average=True):
        return WithTrain()(x, not use_running_average)


class Attribute(nn.Module):
    """Flax's other way: the mode is an attribute."""

    train: bool = False

    @nn.compact
    def __call__(self, x):
        return WithTrain()(x, self.train)


class Untold(nn.Module):
    """Nobody tells the layers."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.BatchNorm()(nn.Dense(8)(x)))
        return nn.Dense(3)(nn.Dropout(0.5)(x))


class Net(nnx.Module):
    """The same in nnx."""

    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(4, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.layers = nnx.List(
            [nnx.Linear(8, 5, rngs=rngs), nnx.Linear(5, 3, rngs=rngs)]
        )
        self.constant = jnp.full((), 1.0)

    def __call__(self, x):
        x = self.dropout(nnx.relu(self.norm(self.first(x)))) * self.constant
        for layer in self.layers:
            x = layer(x)
        return x


class NetWithFlag(nnx.Module):
    """Told by arguments, as linen's modules are, streams included."""

    def __init__(self, *, rngs: nnx.Rngs):
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5)
        self.last = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x, train, rngs):
        x = self.norm(x, use_running_average=not train)
        return self.last(self.dropout(x, deterministic=not train, rngs=rngs))


def init(key):
    return {"w": 0.1 * jax.random.normal(key, (4, 3))}, {"mean": jnp.zeros(4)}


def apply(params, stats, x, key, train):
    """Centred by a running mean, with dropout, by hand."""
    if train:
        stats = {"mean": 0.9 * stats["mean"] + 0.1 * x.mean(0)}
        x = jnp.where(jax.random.bernoulli(key, 0.5, x.shape), 2 * x, 0.0)
    return (x - stats["mean"][None]) @ params["w"], stats


MODELS = {
    "train with default": WithTrain(),
    "train without default": Required(),
    "is_training by keyword": ByKeyword(),
    "deterministic": Deterministic(),
    "use_running_average": RunningAverage(),
    "attribute": Attribute(),
    "no flag": Untold(),
    "sequential": nn.Sequential(
        [nn.Dense(8), nn.BatchNorm(), nn.relu, nn.Dropout(0.5), nn.Dense(3)]
    ),
    "nnx": Net(nnx.Rngs(0)),
    "nnx, made of rngs": Net,
    "nnx with a flag": NetWithFlag,
    "pair": (init, apply),
}
# Of linen, of nnx, and neither.
KINDS = ("deterministic", "no flag", "nnx with a flag", "pair")


@pytest.mark.parametrize("name", marked(MODELS, KINDS))
def test_training_learns_and_keeps_statistics(name):
    task = afga_jax.task(MODELS[name], input_shape=(4,))
    losses, params, stats = steps(task)
    assert losses[-10:].mean() < losses[:3].mean()
    started = jax.jit(task.init)(KEY)
    chex.assert_trees_all_equal_shapes_and_dtypes((params, stats), started)
    moved = jax.tree.map(lambda a, b: jnp.any(a != b), stats, started[1])
    assert all(jax.tree.leaves(moved))
    assert jax.tree.leaves(moved)


@pytest.mark.parametrize("name", marked(MODELS, KINDS))
def test_dropout_is_in_training_only_and_follows_the_key(name):
    task = afga_jax.task(MODELS[name], input_shape=(4,))
    _, params, stats = steps(task, count=3)
    loss = jax.jit(task.loss, static_argnums=4)
    one, other = jax.random.split(KEY)
    values = [
        float(loss(params, stats, BATCH, key, train)[0])
        for key, train in [(one, True), (one, True), (other, True), (one, False)]
    ]
    assert values[0] == values[1]
    assert values[0] != values[2]
    used, (kept, metrics) = loss(params, stats, BATCH, other, False)
    assert used == values[3]
    chex.assert_trees_all_equal(kept, stats)
    logits = task.predict(params, stats, INPUTS)
    hits = (logits.argmax(-1) == BATCH.targets).mean()
    np.testing.assert_allclose(metrics["accuracy"], hits, rtol=1e-6)


@pytest.mark.slow
def test_linen_signatures_compute_the_same(x64):
    """However the mode is said, the model is the same one."""
    told = afga_jax.task(WithTrain(), input_shape=(4,))
    params, stats = told.init(KEY)
    expected = told.loss(params, stats, BATCH, KEY, False)
    for name in ("no flag", "attribute", "deterministic"):
        task = afga_jax.task(MODELS[name], input_shape=(4,))
        inner = name == "no flag"
        wrap = (lambda x: x) if inner else (lambda x: {"WithTrain_0": x})
        result = task.loss(wrap(params), wrap(stats), BATCH, KEY, False)
        np.testing.assert_allclose(result[0], expected[0], rtol=1e-12)


def test_nnx_is_what_the_module_computes():
    """Against the module itself, which updates its statistics in place."""
    module = Net(nnx.Rngs(3))
    module.dropout.rate = 0.0
    task = afga_jax.task(module)
    params, stats = task.init(KEY)
    twin = nnx.clone(module)
    twin.train()
    logits = twin(INPUTS)
    loss, (updated, _) = task.loss(params, stats, BATCH, KEY, True)
    expected = afga_jax.models.losses.cross_entropy(logits, BATCH.targets).mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    np.testing.assert_allclose(updated["norm"]["mean"], twin.norm.mean[...], rtol=1e-6)
    # The given module is as it was.
    np.testing.assert_array_equal(module.norm.mean[...], 0.0)


def test_nnx_function_draws_from_the_key_and_an_instance_does_not():
    for model, same in ((Net, False), (Net(nnx.Rngs(0)), True)):
        task = afga_jax.task(model)
        one, other = (
            task.init(jax.random.key(seed))[0]["first"]["kernel"] for seed in (0, 1)
        )
        assert np.array_equal(one, other) == same


def test_initial_parameters_of_a_function():
    start = {"w": np.ones((4, 3), np.float32)}
    task = afga_jax.task(lambda params, x: x @ params["w"], init=start)
    chex.assert_trees_all_equal(task.init(KEY), (start, ()))
    losses, *_ = steps(task)
    assert losses[-1] < losses[0]


def test_init_with_inputs_and_any_order_of_arguments():
    """As Haiku's transformed functions are called."""

    def start(rng, x):
        return {"w": jnp.zeros((x.shape[-1], 3))}, {"seen": jnp.zeros(())}

    def run(params, state, rng, *args):
        (x,) = args
        return x @ params["w"], {"seen": state["seen"] + 1}

    task = afga_jax.task((start, run), input_shape=(4,))
    *_, stats = steps(task, count=5)
    assert stats["seen"] == 5


def test_regression_and_its_shapes():
    targets = INPUTS @ jnp.arange(4.0)
    task = afga_jax.task(nn.Dense(1), input_shape=(4,), loss="regression")
    batch = Batch(INPUTS, targets)
    losses, params, stats = steps(task, batch)
    assert losses[-1] < losses[0] / 4
    loss, (_, metrics) = task.loss(params, stats, batch, KEY, False)
    residuals = task.predict(params, stats, INPUTS)[:, 0] - targets
    np.testing.assert_allclose(loss, (residuals**2).mean(), rtol=1e-5)
    np.testing.assert_allclose(
        metrics["absolute_error"], jnp.abs(residuals).mean(), rtol=1e-5
    )


def test_own_loss_and_metrics_leave_padding_out():
    def huber(outputs, targets):
        return jnp.abs(outputs - targets) ** 1.5

    task = afga_jax.task(
        nn.Dense(2),
        example=Batch(INPUTS, INPUTS[:, :2]),
        loss=huber,
        metrics={
            "largest": lambda outputs, targets: jnp.abs(outputs).max(1),
            "above": lambda outputs, targets: outputs > targets,
        },
    )
    params, stats = task.init(KEY)
    whole = task.loss(params, stats, Batch(INPUTS, INPUTS[:, :2]), KEY, True)
    assert set(whole[1][1]) == {"largest", "above"}
    above = task.predict(params, stats, INPUTS) > INPUTS[:, :2]
    np.testing.assert_allclose(whole[1][1]["above"], above.mean(), rtol=1e-6)
    padded = Batch(*(jnp.pad(x, ((0, 3), (0, 0))) for x in (INPUTS, INPUTS[:, :2])))
    padded = padded._replace(mask=jnp.arange(9) < 6)
    with_padding = task.loss(params, stats, padded, KEY, True)
    chex.assert_trees_all_close(with_padding, whole, rtol=1e-6)


def test_inputs_may_be_a_tree():
    class Two(nn.Module):
        @nn.compact
        def __call__(self, inputs):
            words = nn.Embed(5, 3)(inputs["word"])
            return words + nn.Dense(3)(inputs["vector"])

    inputs = {"word": jnp.zeros(6, jnp.int32), "vector": INPUTS}
    task = afga_jax.task(Two(), example=inputs)
    losses, *_ = steps(task, Batch(inputs, BATCH.targets))
    assert losses[-1] < losses[0]


def test_streams_of_a_models_own():
    class Noisy(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            if train:
                x = x + jax.random.normal(self.make_rng("noise"), x.shape)
            return nn.Dense(3)(x)

    task = afga_jax.task(Noisy(), input_shape=(4,), rngs=("noise", "dropout"))
    assert steps(task, count=2)[0].shape == (2,)
    with pytest.raises(ValueError, match=r"(?s)noise.*rngs="):
        afga_jax.task(Noisy(), input_shape=(4,))


def test_fast_layers_can_be_switched_off(x64):
    class Conv(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.max_pool(nn.Conv(3, (3, 3))(x), (2, 2), (2, 2)).mean((1, 2))

    images = jnp.asarray(RANDOM.normal(size=(6, 6, 6, 1)))
    batch = Batch(images, BATCH.targets)
    fast, plain = (
        afga_jax.task(Conv(), example=images, fast_layers=switch)
        for switch in (True, False)
    )
    params = jax.tree.map(lambda x: x.astype(jnp.float64), fast.init(KEY)[0])
    results = []
    for task in (fast, plain):
        of = jax.value_and_grad(
            lambda p, task=task: task.loss(p, (), batch, KEY, True)[0]
        )
        results.append(of(params))
        program = str(jax.make_jaxpr(of)(params))
        assert ("select_and_scatter" in program) == (task is plain)
    chex.assert_trees_all_close(*results, rtol=1e-11, atol=1e-12)


class Masked(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        return nn.Dense(3)(x * mask)


class Cached(nnx.Module):
    def __init__(self):
        self.cache = nnx.Cache(jnp.zeros(3))

    def __call__(self, x):
        return x


class AlwaysTraining(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.BatchNorm(use_running_average=False)(x))


SHAPE = {"input_shape": (4,)}
WRONG = {
    "no shape": (nn.Dense(3), {}, "input_shape="),
    "both": (nn.Dense(3), {**SHAPE, "example": INPUTS}, "one of them"),
    "no batch": (nn.Dense(3), {"example": 3.0}, "leading axis of samples"),
    "class": (WithTrain, SHAPE, r"WithTrain\(...\)"),
    "text": ("cnn", SHAPE, "type str"),
    "function alone": (lambda p, x: x, SHAPE, "init="),
    "argument": (Masked(), SHAPE, "'mask' beside the inputs.*default"),
    "function's argument": ((init, lambda p, x, mask: x), SHAPE, "needs 'mask'"),
    "no inputs": ((init, lambda p: p), SHAPE, "parameters and inputs"),
    "only params": ((lambda key: {}, apply), SHAPE, r"pair \(params, stats\)"),
    "no new stats": ((init, lambda p, stats, x: x), SHAPE, r"\(outputs, stats\)"),
    "kinds": (Cached(), SHAPE, "kinds Cache"),
    "makes no module": (lambda rngs: 3, SHAPE, "nnx.Module"),
    "always training": (AlwaysTraining(), SHAPE, "use_running_average=False"),
    "loss": (nn.Dense(3), {**SHAPE, "loss": "regresion"}, "did you mean 'regression'"),
    "metrics": (nn.Dense(3), {**SHAPE, "metrics": ["accuracy"]}, "dict of functions"),
    "name": (nn.Dense(3), {**SHAPE, "metrics": {"loss": max}}, "own name"),
    "mean loss": (
        nn.Dense(3),
        {"example": BATCH, "loss": lambda o, t: o.mean()},
        r"shape \(\).*leave out the mean",
    ),
    "one class": (nn.Dense(1), {"example": BATCH}, "at least 2 classes"),
    "labels": (nn.Dense(3), {"example": Batch(INPUTS, INPUTS)}, "whole numbers"),
    "targets": (
        nn.Dense(3),
        {"example": Batch(INPUTS, INPUTS), "loss": "regression"},
        r"\(6, 3\).*\(6, 4\)",
    ),
    "outputs": ((lambda key: {}, lambda p, x: x.sum(0)), SHAPE, "first axis"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_when_made(name):
    model, options, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        afga_jax.task(model, **options)


PARAMS = {"w": jnp.ones(3)}


def loss(params, stats, batch, key, train):
    return params["w"].sum(), (stats, {})


WRONG_TASKS = {
    "model": (nn.Dense(3), r"type Dense.*afga_jax\.task\("),
    "only params": (afga_jax.Task(lambda key: PARAMS, loss), r"dict.*\(params, \(\)\)"),
    "three": (afga_jax.Task(lambda key: (PARAMS, (), ()), loss), "pair"),
    "integers": (
        afga_jax.Task(lambda key: ({"n": jnp.ones(3, int)}, ()), loss),
        r"\['n'\] of type int.*floating point",
    ),
    "init": (afga_jax.Task(lambda: (PARAMS, ()), loss), r"init\(key\)"),
    "loss": (
        afga_jax.Task(lambda key: (PARAMS, ()), lambda params, batch: 0.0),
        r"loss\(params, stats, batch, key, train\)",
    ),
}


@pytest.mark.parametrize("name", WRONG_TASKS)
def test_wrong_task_is_refused_when_an_algorithm_is_built(name):
    task, message = WRONG_TASKS[name]
    with pytest.raises(ValueError, match=message):
        afga_jax.build("fedavg", task, num_clients=4)


def test_own_model_in_a_round():
    """Dropout, BatchNorm, clients: all the way through an algorithm."""
    held = afga_jax.data.partition.by_client(np.arange(60) % 6)
    inputs = RANDOM.normal(size=(60, 4)).astype(np.float32)
    labels = (inputs[:, 0] > 0).astype(np.int32)
    clients = afga_jax.data.from_arrays(inputs, labels, held, batch_size=5)
    for model in (MODELS["sequential"], Net):
        task = afga_jax.task(model, input_shape=(4,))
        algorithm = afga_jax.build(
            "fedavg", task, num_clients=6, active=3, local_steps=4, local_lr=0.1
        )
        state = algorithm.init(KEY)
        after, info = jax.jit(algorithm.round)(KEY, state, clients)
        assert np.isfinite(info.loss)
        assert not np.array_equal(
            jax.tree.leaves(after.stats)[0], jax.tree.leaves(state.stats)[0]
        )
