"""Built-in data: digits, Gaussians, and problems whose optimum is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from afga_jax import data
from afga_jax.data.partition.assignment import members
from afga_jax.typing import ClientData, Task


class TestDigits:
    def test_it_is_scikit_learns_set_split_once(self):
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        made = data.digits()
        images = np.concatenate([made.train_inputs, made.test_inputs]).reshape(-1, 64)
        targets = np.concatenate([made.train_targets, made.test_targets])
        assert made.train_inputs.dtype == np.uint8
        # The seventeen levels are still told apart, so no image was changed.
        restored = np.rint(images / 255 * 16)
        ours = np.column_stack([restored, targets])
        theirs = np.column_stack([pixels, labels])
        np.testing.assert_array_equal(
            ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)]
        )

    def test_the_split_is_stratified_and_always_the_same(self):
        made, again = data.digits(), data.digits()
        np.testing.assert_array_equal(made.test_inputs, again.test_inputs)
        train, test = np.bincount(made.train_targets), np.bincount(made.test_targets)
        np.testing.assert_array_equal(test, (train + test) // 5)


class TestGaussians:
    @pytest.mark.parametrize("variance", [1.0, 0.5])
    def test_points_have_the_mean_and_variance(self, variance):
        clients = data.gaussians(variance, points=4000)
        for client, mean in enumerate([(1, 0), (0, 1)]):
            points = np.asarray(clients.full(client).inputs)
            noise = (points - mean) / np.sqrt(variance)
            assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-3
            assert abs(np.corrcoef(noise.T)[0, 1]) < 4 / np.sqrt(4000)

    def test_the_papers_setting(self):
        clients = data.gaussians()
        assert isinstance(clients, ClientData)
        assert clients.sizes.tolist() == [10, 10]
        for client in range(2):
            batch = clients.full(client)
            assert batch.inputs.shape == (10, 2)
            assert batch.targets.tolist() == [client] * 10
            assert batch.mask.tolist() == [1] * 10

    def test_the_seed_decides(self):
        first, again, other = (data.gaussians(seed=s).full(0).inputs for s in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()

    @pytest.mark.parametrize("variance", [0, -1])
    def test_a_variance_that_is_none_is_refused(self, variance):
        with pytest.raises(ValueError, match=rf"variance = {variance}.* > 0"):
            data.gaussians(variance)


def client_gradients(problem, x):
    """∇f_i(x) of every client, `[num_clients, dimension]`."""

    def loss(x, client):
        return problem.task.loss(x, (), problem.data.full(client), None, True)[0]

    clients = jnp.arange(problem.data.num_clients)
    return np.asarray(jax.vmap(jax.grad(loss), (None, 0))(jnp.asarray(x), clients))


def sample_gradients(problem, client, x):
    """∇f_{i,s}(x) of every sample of one client, `[samples, dimension]`."""

    def loss(x, sample):
        batch = problem.data.source.take(sample[None])
        return problem.task.loss(x, (), batch, None, True)[0]

    samples = jnp.asarray(members(problem.data.assignment, client))
    return np.asarray(jax.vmap(jax.grad(loss), (None, 0))(jnp.asarray(x), samples))


PROBLEMS = {"quadratic": data.quadratic, "logistic": data.logistic}


@pytest.mark.parametrize("build", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.usefixtures("x64")
class TestProblems:
    @pytest.mark.parametrize("sigma_g", [0.0, 0.3, 2.0])
    @pytest.mark.parametrize("sigma", [0.0, 1.5])
    def test_dials_are_exact_at_the_optimum(self, build, sigma_g, sigma):
        problem = build(6, 4, sigma_g=sigma_g, sigma=sigma)
        gradients = client_gradients(problem, problem.optimum)
        np.testing.assert_allclose(gradients.mean(axis=0), 0, atol=1e-12)
        spread = np.sqrt((gradients**2).sum(axis=1).mean())
        np.testing.assert_allclose(spread, sigma_g, rtol=1e-11, atol=1e-12)
        for client in (0, 5):
            noisy = sample_gradients(problem, client, problem.optimum)
            noise = noisy - gradients[client]
            measured = np.sqrt((noise**2).sum(axis=1).mean())
            np.testing.assert_allclose(measured, sigma, rtol=1e-11, atol=1e-12)

    def test_minimum_is_the_loss_at_the_optimum_and_nothing_is_below(self, build):
        problem = build(5, 3, sigma_g=1.0, sigma=0.5)

        def mean_loss(x):
            pooled = problem.data.pooled().full(0)
            return float(problem.task.loss(jnp.asarray(x), (), pooled, None, True)[0])

        best = mean_loss(problem.optimum)
        np.testing.assert_allclose(best, problem.minimum, rtol=1e-12)
        random = np.random.default_rng(0)
        for step in random.normal(size=(20, 3)) * 0.1:
            assert mean_loss(problem.optimum + step) > best

    def test_the_dials_do_not_move_the_optimum(self, build):
        one, two = build(5, 3, sigma_g=0.1), build(5, 3, sigma_g=4.0, sigma=2.0)
        np.testing.assert_array_equal(one.optimum, two.optimum)

    def test_a_batch_has_the_noise_of_its_size(self, build):
        problem = build(2, 3, sigma_g=1.0, sigma=2.0, batch_size=8)
        gradient = client_gradients(problem, problem.optimum)[1]

        def drawn(key):
            def loss(x):
                batch = problem.data.batch(key, jnp.asarray(1))
                return problem.task.loss(x, (), batch, key, True)[0]

            return jax.grad(loss)(jnp.asarray(problem.optimum))

        keys = jax.random.split(jax.random.key(0), 2000)
        squares = ((np.asarray(jax.jit(jax.vmap(drawn))(keys)) - gradient) ** 2).sum(1)
        error = 4 * squares.std() / np.sqrt(len(squares))
        assert abs(squares.mean() - 2.0**2 / 8) < error

    def test_padding_does_not_count(self, build):
        problem = build(2, 3)
        batch = problem.data.full(0)
        half = batch._replace(mask=batch.mask.at[4:].set(0))
        cut = jax.tree.map(lambda leaf: leaf[:4], batch._replace(mask=None))
        x = jnp.asarray(problem.optimum)
        np.testing.assert_allclose(
            problem.task.loss(x, (), half, None, True)[0],
            problem.task.loss(x, (), cut, None, True)[0],
            rtol=1e-14,
        )

    def test_it_is_a_task_that_starts_at_zero(self, build):
        problem = build(2, 3)
        assert isinstance(problem.task, Task)
        params, stats_ = problem.task.init(jax.random.key(0))
        assert params.tolist() == [0, 0, 0]
        loss, (kept, metrics) = problem.task.loss(
            params, stats_, problem.data.full(0), None, False
        )
        assert loss.shape == ()
        assert (kept, metrics) == ((), {})

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"sigma_g": -1.0}, r"sigma_g = -1.0.* >= 0"),
            ({"sigma": -1.0}, r"sigma = -1.0.* >= 0"),
            ({"num_clients": 1, "sigma_g": 1.0}, r"num_clients = 1.* >= 2.*itself"),
            ({"client_size": 1, "sigma": 1.0}, r"client_size = 1.* >= 2.*noise"),
            ({"dimension": 0}, r"dimension = 0.* >= 1"),
            ({"batch_size": 0}, r"batch_size = 0.* >= 1"),
        ],
    )
    def test_refused(self, build, options, message):
        with pytest.raises(ValueError, match=message):
            build(**options)


@pytest.mark.usefixtures("x64")
def test_quadratic_optimum_solves_the_normal_equations():
    problem = data.quadratic(7, 4, sigma_g=1.0, sigma=1.0, spread=0.9, condition=100)
    curvatures = np.asarray(problem.data.source.inputs)
    centres = np.asarray(problem.data.source.targets)
    solved = (curvatures * centres).sum(axis=0) / curvatures.sum(axis=0)
    np.testing.assert_allclose(problem.optimum, solved, rtol=1e-11)
    ratio = curvatures.mean(axis=0).max() / curvatures.mean(axis=0).min()
    assert 30 < ratio < 300


@pytest.mark.usefixtures("x64")
def test_quadratic_noise_and_heterogeneity_without_spread_are_the_same_everywhere():
    problem = data.quadratic(6, 4, sigma_g=0.7, sigma=1.5, spread=0.0)
    away = problem.optimum + 3.0
    gradients = client_gradients(problem, away)
    differences = gradients - gradients.mean(axis=0)
    np.testing.assert_allclose(np.sqrt((differences**2).sum(1).mean()), 0.7, rtol=1e-11)
    noise = sample_gradients(problem, 2, away) - gradients[2]
    np.testing.assert_allclose(np.sqrt((noise**2).sum(1).mean()), 1.5, rtol=1e-11)


@pytest.mark.usefixtures("x64")
def test_logistic_without_dials_is_plain_logistic_regression():
    from scipy.optimize import minimize

    problem = data.logistic(4, 3, regulariser=0.1)
    inputs = problem.data.source.inputs
    features = np.asarray(inputs["features"])
    labels = np.asarray(problem.data.source.targets)
    np.testing.assert_array_equal(inputs["tilt"], 0)

    def plain(x):
        margins = labels * (features @ x)
        return np.log1p(np.exp(-margins)).mean() + 0.05 * x @ x

    solved = minimize(plain, np.zeros(3), method="BFGS", options={"gtol": 1e-9})
    # BFGS with numerical gradients stops at about the root of the machine's precision.
    np.testing.assert_allclose(problem.optimum, solved.x, atol=1e-6)
    np.testing.assert_allclose(problem.minimum, solved.fun, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_logistic_dials_leave_the_mean_objective_as_it_is():
    plain = data.logistic(4, 3)
    tilted = data.logistic(4, 3, sigma_g=3.0, sigma=5.0)
    for x in np.random.default_rng(1).normal(size=(5, 3)):
        values = [
            p.task.loss(jnp.asarray(x), (), p.data.pooled().full(0), None, True)[0]
            for p in (plain, tilted)
        ]
        np.testing.assert_allclose(*values, rtol=1e-12)


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (data.quadratic, {"condition": 0.5}, r"condition = 0.5.* >= 1"),
        (data.quadratic, {"spread": 1.0}, r"spread = 1.0.* < 1"),
        (data.logistic, {"regulariser": 0.0}, r"regulariser = 0.0.* > 0.*not exist"),
    ],
)
def test_refused_options(build, options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)
