"""Problems whose optimum is known, with dials for heterogeneity and gradient noise.

Both dials are exact, not asymptotic. With x* the minimiser of f = (1/N) Σ_i f_i,

  σ_g² = (1/N) Σ_i ‖∇f_i(x*) − ∇f(x*)‖² = (1/N) Σ_i ‖∇f_i(x*)‖²,
  σ²   = E_s ‖∇f_{i,s}(x*) − ∇f_i(x*)‖²  for every client i,

where s is one sample drawn uniformly from the client's own; a batch of b samples, drawn
with replacement, has noise σ²/b. Neither dial moves x*.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import checks
from afga_jax.data.clients import Clients, from_arrays
from afga_jax.data.partition import by_client
from afga_jax.typing import Array, Batch, Task


class Problem(NamedTuple):
    """Client data, the loss on it, and the answer.

    Attributes:
      data: Data of all clients, with equal numbers of samples.
      task: Loss whose parameters are one vector `[dimension]`, starting at zero.
      optimum: Minimiser x*, float64 `[dimension]`.
      minimum: Minimum f(x*).
    """

    data: Clients
    task: Task
    optimum: np.ndarray
    minimum: float


def quadratic(
    num_clients: int = 10,
    dimension: int = 10,
    *,
    sigma_g: float = 1.0,
    sigma: float = 0.0,
    condition: float = 10.0,
    spread: float = 0.5,
    client_size: int = 16,
    batch_size: int = 8,
    seed: int = 0,
) -> Problem:
    """Quadratics with curvatures that differ between clients.

      f_i(x) = (1/n) Σ_s ½ Σ_j a_ij (x_j − c_isj)²

    The gradients g_i = ∇f_i(x*) are drawn, made to sum to zero and scaled to σ_g; the
    centres follow as c_i = x* − g_i / a_i, so x* is the optimum in closed form. Noise
    is a displacement of the samples' centres, and so is the same at every x.

    Args:
      num_clients: Number of clients, N.
      dimension: Length of x.
      sigma_g: Heterogeneity σ_g.
      sigma: Gradient noise σ of one sample.
      condition: Largest over smallest of the curvatures' mean.
      spread: Largest relative difference of a client's curvatures from that mean; 0:
        all alike, and then local steps do not move the fixed point of averaging.
      client_size: Number of samples of every client, n.
      batch_size: Number of samples per batch.
      seed: Seed of the problem.

    Returns:
      The problem; a batch's inputs are curvatures, its targets centres.

    Example:
      >>> problem = quadratic(num_clients=4, dimension=3, sigma_g=2.0)
      >>> gradients = jax.vmap(jax.grad(lambda x, client: problem.task.loss(
      ...     x, (), problem.data.full(client), None, True)[0]), (None, 0))
      >>> at_optimum = gradients(jnp.asarray(problem.optimum, float), jnp.arange(4))
      >>> print(f"{jnp.sqrt(jnp.mean(jnp.sum(at_optimum**2, axis=1))):.3f}")
      2.000
    """
    _check_dials(num_clients, dimension, client_size, sigma_g, sigma)
    checks.number("condition", condition, at_least=1)
    checks.number("spread", spread, at_least=0, below=1)
    random = np.random.default_rng(seed)
    optimum = random.normal(size=dimension)
    mean_curvature = np.geomspace(1 / condition, 1, dimension)
    factors = random.uniform(1 - spread, 1 + spread, (num_clients, 1, dimension))
    gradients = _scaled(random.normal(size=(num_clients, dimension)), sigma_g)
    shape = (num_clients, client_size, dimension)
    noise = _scaled(random.normal(size=shape), sigma)
    curvatures = np.broadcast_to(mean_curvature * factors, shape).reshape(-1, dimension)
    pulls = (gradients[:, None] + noise).reshape(-1, dimension)
    centres = optimum - pulls / curvatures
    minimum = 0.5 * np.sum(curvatures * (optimum - centres) ** 2, axis=1).mean()
    owners = by_client(np.repeat(np.arange(num_clients), client_size))
    data = from_arrays(curvatures, centres, owners, batch_size=batch_size)

    def losses(x: Array, batch: Batch) -> Array:
        return 0.5 * jnp.sum(batch.inputs * (x[None] - batch.targets) ** 2, axis=1)

    return Problem(data, _task(losses, dimension), optimum, float(minimum))


def logistic(
    num_clients: int = 10,
    dimension: int = 10,
    *,
    sigma_g: float | None = None,
    sigma: float | None = None,
    regulariser: float = 0.01,
    client_size: int = 50,
    batch_size: int = 8,
    seed: int = 0,
) -> Problem:
    """Logistic regression, tilted per sample so that the dials hold.

      f_i(x) = (1/n) Σ_s log(1 + exp(−y_is ⟨u_is, x⟩)) + λ/2 ‖x‖² + ⟨h_is, x⟩

    The tilts h sum to zero, so f is the same for every setting of the dials: only its
    division among clients and samples changes. x* comes from Newton's method in double
    precision, run until the gradient no longer gets smaller; it is then below 1e-12,
    which places x* within 1e-12/λ.

    Args:
      num_clients: Number of clients, N.
      dimension: Length of x.
      sigma_g: Heterogeneity σ_g; None: that of clients which all draw from one
        distribution.
      sigma: Gradient noise σ of one sample; None: that of the drawn samples.
      regulariser: Weight λ of the penalty.
      client_size: Number of samples of every client, n.
      batch_size: Number of samples per batch.
      seed: Seed of the problem.

    Returns:
      The problem; a batch's inputs are `{"features": u, "tilt": h}`, its targets y.
    """
    _check_dials(num_clients, dimension, client_size, sigma_g or 0, sigma or 0)
    checks.number(
        "regulariser", regulariser, above=0, fix="without it x* may not exist"
    )
    random = np.random.default_rng(seed)
    features = random.normal(size=(num_clients * client_size, dimension))
    truth = random.normal(size=dimension)
    chance = _sigmoid(features @ truth)
    labels = np.where(random.uniform(size=len(features)) < chance, 1.0, -1.0)
    optimum, minimum = _newton(features * labels[:, None], regulariser)
    weights = _sigmoid(-labels * (features @ optimum))
    pulls = -(weights * labels)[:, None] * features + regulariser * optimum
    pulls = pulls.reshape(num_clients, client_size, dimension)
    tilt = _tilt(pulls, sigma_g, sigma)
    owners = by_client(np.repeat(np.arange(num_clients), client_size))
    inputs = {"features": features, "tilt": tilt.reshape(-1, dimension)}
    data = from_arrays(inputs, labels, owners, batch_size=batch_size)

    def losses(x: Array, batch: Batch) -> Array:
        margins = batch.targets * (batch.inputs["features"] @ x)
        penalty = regulariser / 2 * jnp.sum(x**2)
        return jax.nn.softplus(-margins) + penalty + batch.inputs["tilt"] @ x

    return Problem(data, _task(losses, dimension), optimum, minimum)


def _task(losses, dimension: int) -> Task:
    """A task with one vector of parameters, from the losses of a batch's samples."""

    def loss(params, stats, batch, key, train):
        mask = jnp.ones(len(batch.targets)) if batch.mask is None else batch.mask
        mean = jnp.sum(mask * losses(params, batch)) / jnp.sum(mask)
        return mean, (stats, {})

    return Task(lambda key: (jnp.zeros(dimension), ()), loss)


def _scaled(vectors: np.ndarray, size: float) -> np.ndarray:
    """Moves and scales `[..., n, d]` to mean zero and mean square norm `size`²."""
    vectors = vectors - vectors.mean(axis=-2, keepdims=True)
    if size == 0:
        return np.zeros_like(vectors)
    square = np.sum(vectors**2, axis=-1, keepdims=True).mean(axis=-2, keepdims=True)
    return size * vectors / np.sqrt(square)


def _tilt(pulls: np.ndarray, sigma_g: float | None, sigma: float | None) -> np.ndarray:
    """What the samples' gradients `[N, n, d]` lack of what the dials want."""
    means = pulls.mean(axis=1)
    noise = pulls - means[:, None]
    tilt = np.zeros_like(pulls)
    if sigma_g is not None:
        tilt += (_scaled(means, sigma_g) - means)[:, None]
    if sigma is not None:
        tilt += _scaled(noise, sigma) - noise
    return tilt


def _newton(signed: np.ndarray, regulariser: float) -> tuple[np.ndarray, float]:
    """Minimises logistic regression on label times features, and gives the minimum."""

    def gradient_at(x):
        weights = _sigmoid(-signed @ x)
        return regulariser * x - weights @ signed / len(signed), weights

    x = np.zeros(signed.shape[1])
    gradient, weights = gradient_at(x)
    while True:
        curvature = weights * (1 - weights) / len(signed)
        hessian = (signed.T * curvature) @ signed + regulariser * np.eye(len(x))
        step, shrink = np.linalg.solve(hessian, gradient), 1.0
        trial, trial_weights = gradient_at(x - step)
        # The gradient's norm falls along Newton's direction if one goes short enough.
        while np.linalg.norm(trial) >= np.linalg.norm(gradient) and shrink > 1e-3:
            shrink /= 2
            trial, trial_weights = gradient_at(x - shrink * step)
        if np.linalg.norm(trial) >= np.linalg.norm(gradient):
            break
        x, gradient, weights = x - shrink * step, trial, trial_weights
    if np.linalg.norm(gradient) > 1e-12:
        raise ValueError(
            f"regulariser = {regulariser}: Newton's method stops at a gradient of "
            f"{np.linalg.norm(gradient):.1e}, above 1e-12; raise the regulariser."
        )
    value = np.logaddexp(0, -signed @ x).mean() + regulariser / 2 * x @ x
    return x, float(value)


def _sigmoid(value: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -value))


def _check_dials(num_clients, dimension, client_size, sigma_g, sigma) -> None:
    checks.integer("dimension", dimension)
    fix = "one client does not differ from itself"
    checks.integer("num_clients", num_clients, at_least=1 + (sigma_g > 0), fix=fix)
    fix = "a single sample has no noise"
    checks.integer("client_size", client_size, at_least=1 + (sigma > 0), fix=fix)
    checks.number("sigma_g", sigma_g, at_least=0)
    checks.number("sigma", sigma, at_least=0)
