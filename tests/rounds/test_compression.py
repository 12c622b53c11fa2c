"""Compressed uploads and gossip: against plain NumPy loops, and in the ledger."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax import compressors
from afga_jax.gossip.compressed import Compressed
from afga_jax.testing import compressed, parts
from reference_cases import ADAPTIVE, TRIPLES, Case, check

pytestmark = pytest.mark.usefixtures("x64")
KEY, CLIENTS = jax.random.key(3), 9
# Two of eight numbers: those of two classes are of the same size, and go together.
TOP = partial(compressed.top_k, ratio=0.3)

CASES = {
    "fedcams": Case(
        "fedams",
        partial(
            compressed.fedcams, compress=TOP, server=partial(parts.fedams, eps=1e-3)
        ),
        ADAPTIVE,
        {"active": 4, "eps": 1e-3, "compress_uploads": compressors.top_k(0.3)},
        norm=True,
    ),
    "fedcams, sign": Case(
        "fedams",
        partial(
            compressed.fedcams,
            compress=compressed.sign,
            server=partial(parts.fedams, eps=1e-3),
        ),
        ADAPTIVE,
        {"active": 4, "eps": 1e-3, "compress_uploads": compressors.sign()},
    ),
    "choco-sgd": Case(
        "dsgd",
        partial(compressed.choco_sgd, compress=TOP, step_size=0.4),
        {"local_lr": 0.3},
        {"compress_gossip": compressors.top_k(0.3), "gossip_step": 0.4},
    ),
    "afga, choco": Case(
        "afga",
        partial(compressed.choco_afga, compress=compressed.sign, step_size=0.4),
        ADAPTIVE,
        {
            "active": 4,
            "compress_gossip": compressors.sign(),
            "gossip_step": 0.4,
        },
        norm=True,
    ),
    "cafga, choco": Case(
        "cafga",
        partial(compressed.choco_afga, compress=TOP, step_size=0.2),
        ADAPTIVE,
        {
            "active": 6,
            "compress_gossip": compressors.top_k(0.3),
            "gossip_step": 0.2,
        },
        labels=TRIPLES,
    ),
}
QUICK = ("fedcams", "choco-sgd", "afga, choco")


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES],
)
def test_is_the_plain_loop_s(name):
    check(CASES[name])


MADE = {
    "top_k": (compressors.top_k(0.25), 0.25),
    "random_k": (compressors.random_k(0.25), 0.25),
    "qsgd, 2 bits": (compressors.qsgd(2), 1 / (1 + 40**0.5)),
    "qsgd, 8 bits": (compressors.qsgd(8), 1 / (1 + 40 / 127**2)),
}


@pytest.mark.parametrize("name", MADE)
def test_contraction(name):
    """E‖C(x) − x‖² ≤ (1 − δ)‖x‖², over 2000 draws; equality for random-k."""
    compressor, delta = MADE[name]
    x = jnp.asarray(np.random.default_rng(0).normal(size=40))
    keys = jax.random.split(KEY, 2000)
    lost = jax.vmap(lambda key: ((compressor.compress(key, x) - x) ** 2).sum())(keys)
    bound = (1 - delta) * (x**2).sum()
    assert lost.mean() <= bound * 1.03  # the mean of 2000 draws is that sharp
    if name == "random_k":
        np.testing.assert_allclose(lost.mean(), bound, rtol=0.03)


def test_qsgd_is_unbiased_but_for_its_scale():
    x = jnp.asarray(np.random.default_rng(0).normal(size=6))
    keys = jax.random.split(KEY, 20000)
    mean = jax.vmap(lambda key: compressors.qsgd(3).compress(key, x))(keys).mean(0)
    scale = 1 + min(6 / 9, 6**0.5 / 3)
    np.testing.assert_allclose(mean * scale, x, rtol=0, atol=0.03)
    assert not compressors.qsgd(3).compress(KEY, jnp.zeros(6)).any()


def test_the_scaled_sign_and_the_numbers_that_are_sent():
    x = jnp.array([3.0, -1.0, 0.5, -0.25])
    assert compressors.sign().compress(KEY, x).tolist() == [
        *(1.1875, -1.1875, 1.1875, -1.1875)
    ]
    assert compressors.top_k(0.5).compress(KEY, x).tolist() == [3, -1, 0, 0]
    sent = compressors.random_k(0.5).compress(KEY, x)
    assert (sent != 0).sum() == 2
    assert ((sent == 0) | (sent == x)).all()


def test_bits():
    assert compressors.top_k(0.1).bits(1000) == 100 * (32 + 10)
    assert compressors.random_k(0.1).bits(1000) == 100 * 32 + 64
    assert compressors.sign().bits(1000) == 1032
    assert compressors.qsgd(4).bits(1000) == 4032


def costs(algorithm, **options):
    task = toy.logistic(norm=True)
    built = afga_jax.build(algorithm, task, num_clients=CLIENTS, active=3, **options)
    return afga_jax.ledger.costs(built, jax.eval_shape(built.init, KEY))


def test_the_ledger_knows_what_is_sent():
    """8 parameters and 3 statistics; these are uploaded as they are."""
    assert costs("afga", compress_uploads=compressors.sign()).upload_size == 5 + 3 * 8
    priced = costs("afga", compress_gossip=compressors.qsgd(4))
    assert priced.gossip_size == -(-(11 * 4 + 32) // 8)
    assert priced.upload_size == 11 * 8


def test_choco_preserves_the_mean_and_moves_towards_it():
    built = afga_jax.build(
        "afga",
        toy.logistic(),
        num_clients=CLIENTS,
        active=3,
        topology="random",
        compress_gossip=compressors.qsgd(4),
    )
    mixing, plan = built.recipe.mixing, built.plan(KEY, 0)
    assert isinstance(mixing, Compressed)
    models = jnp.asarray(np.random.default_rng(1).normal(size=(CLIENTS, 5)))
    start, public = models, jnp.zeros_like(models)

    @jax.jit
    def exchange(step, models, public):
        return mixing.at(plan, step).exchange(models, public)

    for step in range(200):
        models, public = exchange(step, models, public)
        np.testing.assert_allclose(models.mean(0), start.mean(0), rtol=0, atol=1e-12)
    assert np.abs(models - models.mean(0)[None]).max() < 1e-3


def test_nothing_is_sent_in_steps_without_mixing():
    built = afga_jax.build(
        *("afga", toy.logistic()),
        **{"num_clients": CLIENTS, "active": 3, "mix_every": 2},
        compress_gossip=compressors.sign(),
    )
    models = jnp.asarray(np.random.default_rng(1).normal(size=(CLIENTS, 5)))
    public, plan = jnp.zeros_like(models), built.plan(KEY, 0)
    for step, still in ((0, True), (1, False)):
        found = built.recipe.mixing.at(plan, step).exchange(models, public)
        for x, before in zip(found, (models, public), strict=True):
            assert bool((x == before).all()) == still


BAD = [
    ("dsgd", {"compress_uploads": compressors.sign()}, "nobody uploads"),
    ("fedavg", {"compress_gossip": compressors.sign()}, "nobody mixes"),
    ("afga_adapted", {"compress_gossip": compressors.sign()}, "changes from step"),
    (
        "afga",
        {
            "compress_gossip": compressors.sign(),
            "gossip_defence": afga_jax.robust.clipped(1),
        },
        "robust or lied to",
    ),
    ("afga", {"gossip_step": 0.0}, "gossip_step = 0.0, but it must be > 0"),
]


@pytest.mark.parametrize(("algorithm", "options", "message"), BAD, ids=range(len(BAD)))
def test_compression_that_cannot_be(algorithm, options, message):
    with pytest.raises(ValueError, match=message):
        afga_jax.build(algorithm, toy.logistic(), num_clients=6, active=3, **options)
