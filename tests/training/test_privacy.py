"""Noise on uploads, and what is said about one client's privacy, or not."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax.optimizers.privacy import noisy_mean
from afga_jax.training import privacy

NOISY = {"num_clients": 12, "active": 3, "dp_clip": 0.5, "dp_noise": 2.0}


def build(algorithm="fedavg", *, norm=False, **options):
    return afga_jax.build(algorithm, toy.logistic(norm=norm), **{**NOISY, **options})


def test_noise_is_as_large_as_said_and_uploads_are_clipped():
    aggregator = noisy_mean(0.5, 2.0)
    deltas = jnp.zeros((5, 20000)).at[0, 0].set(80.0).at[1, 1].set(0.3)
    weights = jnp.array([0.25, 0.25, 0.25, 0.25, 0.0])
    state, ids = aggregator.init(deltas[0]), jnp.arange(5)
    found, _, info = aggregator.apply(jax.random.key(0), deltas, weights, state, ids)
    noise = np.asarray(found)[2:]
    assert float(info["noise"]) == 0.25  # σ·C/n
    np.testing.assert_allclose(noise.std(), 0.25, rtol=0.02)  # 20 000 draws
    assert abs(noise.mean()) < 0.01
    size = found - 0.25 * jax.random.normal(jax.random.key(0), found.shape)
    np.testing.assert_allclose(size[:2], [0.5 / 4, 0.3 / 4], rtol=0, atol=1e-6)


WITHOUT = [
    ("afga", {}, "with gossip one client's data is in many uploads"),
    ("fedavg", {"norm": True}, "BatchNorm statistics are uploaded without noise"),
    ("scaffold", {}, "controls"),
    ("fedavg", {"weighting": "size"}, "weighted by size"),
    ("fedavg", {"attack": afga_jax.attacks.sign_flip(0.3)}, "liars"),
    ("fedavg", {"dp_clip": None, "dp_noise": None}, "no noise"),
    (lambda options: afga_jax.ALGORITHMS["fedavg"].recipe(options), {}, "not known"),
]


@pytest.mark.parametrize(("name", "options", "reason"), WITHOUT, ids=range(7))
def test_where_nothing_can_be_said_it_says_so(name, options, reason):
    algorithm = build(name, **options)
    assert reason in privacy.reason_against(algorithm)
    with pytest.raises(ValueError, match="no guarantee of privacy can be computed"):
        privacy.epsilon(algorithm, 10, 1e-5)


BAD = [
    ("fedavg", {"dp_noise": None}, "give both, or none"),
    ("dsgd", {}, "without a server nobody uploads"),
    ("fedavg", {"aggregator": afga_jax.aggregators.median()}, "leave the aggregator"),
    ("fedavg", {"compress_uploads": afga_jax.compressors.sign()}, "compress_uploads"),
    ("fedavg", {"dp_noise": 0.0}, "dp_noise = 0.0, but it must be > 0"),
]


@pytest.mark.parametrize(("name", "options", "message"), BAD, ids=range(len(BAD)))
def test_noise_that_cannot_be(name, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, **options)


def converted(divergence, orders, delta):
    """ε from Rényi divergences: Canonne, Kamath and Steinke 2020, Proposition 12."""
    return min(
        d + math.log1p(-1 / a) - math.log(delta * a) / (a - 1)
        for d, a in zip(divergence, orders, strict=True)
    )


def subsampled(q, sigma, a):
    """Wang, Balle and Kasiviswanathan 2019, Theorem 9, for the Gaussian mechanism."""
    rdp = lambda order: order / (2 * sigma**2)  # noqa: E731
    second = min(4 * math.expm1(rdp(2)), 2 * math.exp(rdp(2)))
    total = 1 + q**2 * math.comb(a, 2) * second
    for j in range(3, a + 1):
        total += 2 * q**j * math.comb(a, j) * math.exp((j - 1) * rdp(j))
    return math.log(total) / (a - 1)


def test_epsilon_without_sampling_is_that_of_the_gaussian_mechanism():
    """Everybody uploads: α·T/(2(σ/2)²), over a fine grid of α."""
    pytest.importorskip("dp_accounting")
    found = privacy.epsilon(build(active=12), 20, 1e-5)
    orders = np.linspace(1.01, 60, 20000)
    expected = converted(orders * 20 / 2, orders, 1e-5)
    # The accountant knows fewer orders.
    assert expected <= found <= 1.02 * expected


def test_epsilon_is_the_one_that_the_accountant_publishes():
    """σ = 4.530877117 is its own tests' noise for exactly (1, 1e-6), on fine orders."""
    pytest.importorskip("dp_accounting")
    found = privacy.epsilon(build(active=12, dp_noise=2 * 4.530877117), 1, 1e-6)
    assert 1 <= found < 1.001


def test_epsilon_of_a_sample_of_fixed_size_is_the_published_bound_s():
    pytest.importorskip("dp_accounting")
    rounds, delta, noise = 100, 1e-5, 4.0
    algorithm = build(num_clients=100, active=2, dp_noise=noise)
    found = privacy.epsilon(algorithm, rounds, delta)
    orders = range(2, 40)
    bounds = [rounds * subsampled(0.02, noise / 2, a) for a in orders]
    expected = converted(bounds, orders, delta)
    # The accountant has a tighter bound of the same paper for the terms of even order.
    assert 0.9 * expected < found <= expected
    everybody = build(num_clients=100, active=100, dp_noise=noise)
    assert found < 0.25 * privacy.epsilon(everybody, rounds, delta)


def test_the_largest_share_of_a_cluster_counts():
    pytest.importorskip("dp_accounting")
    labels = [0] * 20 + [1] * 80
    both = {"num_clients": 100, "active": None, "participation": 0.1}
    clustered = build(**both, clustering=labels)
    assert privacy.epsilon(clustered, 10, 1e-5) == pytest.approx(
        privacy.epsilon(build(**both), 10, 1e-5)
    )
