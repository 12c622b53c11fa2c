"""Clients that lie, or send what is no number: who, what, and what becomes of it."""

import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax import aggregators, attacks
from afga_jax.optimizers.attacks import Uploads

pytestmark = pytest.mark.usefixtures("x64")
KEY, CLIENTS = jax.random.key(3), 9
SOME = {"num_clients": CLIENTS, "active": 5, "local_steps": 3, "local_lr": 0.3}

close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-12)


def liars_of(share, key=KEY, clients=40):
    return np.asarray(attacks.sign_flip(share).liars(key, clients))


def test_who_lies_depends_on_the_seed_and_the_client_alone():
    few, more = liars_of(0.1), liars_of(0.3)
    assert (few.sum(), more.sum()) == (4, 12)
    assert (more | few == more).all()  # who lies at a small share, lies at a larger one
    assert (few != liars_of(0.1, jax.random.key(4))).any()


def uploads(seed=0, count=8, liars=2):
    """Of which the first are liars', with padding behind them."""
    rng = np.random.default_rng(seed)
    deltas = np.zeros((count + 2, 6))
    deltas[:count] = rng.normal(size=(count, 6))
    lying = np.arange(count + 2) < liars
    honest = (np.arange(count + 2) < count) & ~lying
    ids = np.r_[np.arange(count) + 3, CLIENTS, CLIENTS]
    return deltas, Uploads(*map(jnp.asarray, (deltas, lying, honest, ids)))


def lie_of(attack, uploads):
    return np.asarray(attack.upload(jax.random.key(1), uploads))


def test_what_liars_upload():
    deltas, given = uploads()
    honest = deltas[2:8]
    close(lie_of(attacks.sign_flip(0.2, 3.0), given)[0], -3 * deltas[0])
    close(lie_of(attacks.inner_product(0.2, 0.5), given)[0], -0.5 * honest.mean(0))
    close(
        lie_of(attacks.alie(0.2, 1.5), given)[1], honest.mean(0) - 1.5 * honest.std(0)
    )
    assert np.isnan(lie_of(attacks.nan(0.2), given)[:2]).all()


def test_the_distance_of_a_little_is_enough():
    """Φ⁻¹((n−m−s)/(n−m)) of 50 uploads with 12 liars: s = 14, Φ⁻¹(24/38) = 0.3360."""
    deltas, given = uploads(count=50, liars=12)
    honest = deltas[12:50]
    moved = (honest.mean(0) - lie_of(attacks.alie(0.2), given)[0]) / honest.std(0)
    np.testing.assert_allclose(moved, 0.33604, rtol=0, atol=1e-5)


def test_noise_is_as_long_as_said_and_each_client_s_own():
    _, given = uploads()
    wide = given._replace(deltas=jnp.tile(given.deltas, (1, 500)))
    lies = lie_of(attacks.gaussian(0.2, 4.0), wide)
    lengths = np.linalg.norm(lies[:2], axis=1)
    expected = 4 * np.linalg.norm(wide.deltas[:2], axis=1)
    np.testing.assert_allclose(lengths, expected, rtol=0.05)  # 3000 numbers each
    order = jnp.array([1, 0, *range(2, 10)])
    shuffled = lie_of(
        attacks.gaussian(0.2, 4.0), jax.tree.map(lambda x: x[order], wide)
    )
    close(shuffled[0], lies[1])


def rounds(algorithm, engine="dense", count=3, data=None, **options):
    built = afga_jax.build(algorithm, toy.logistic(norm=True), **{**SOME, **options})
    data = toy.clients(CLIENTS) if data is None else data
    trainer = afga_jax.Trainer(built, afga_jax.Execution(engine), capacity=4)
    state, infos = trainer.run(KEY, trainer.init(KEY), data, count)
    return jax.device_get((state, infos))


LIES = {
    "sign_flip": aggregators.median(),
    "label_flip": aggregators.trimmed_mean(1),
    "gaussian": aggregators.krum(1, 2),
    "nan": aggregators.centred_clipping(0.3, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIES)
def test_both_engines_agree(name):
    """On what is uploaded and on what the server makes of it."""
    more = {"classes": 2} if name == "label_flip" else {}
    given = {"attack": getattr(attacks, name)(0.3, **more), "aggregator": LIES[name]}
    found = [rounds("afga", engine, **given) for engine in ("dense", "span")]
    chex.assert_trees_all_close(*found, rtol=0, atol=1e-10)


def test_wrong_labels_are_a_liar_s_alone():
    """As if the liars' data had them."""
    attack, data = attacks.label_flip(0.3, classes=2), toy.clients(CLIENTS)
    liars = attack.liars(KEY, CLIENTS)[:, None]
    wrong = data.replace(targets=jnp.where(liars, 1 - data.targets, data.targets))
    state, _ = rounds("fedavg", attack=attack, data=data)
    expected, _ = rounds("fedavg", data=wrong)
    close(toy.flat(state)[0], toy.flat(expected)[0])
    assert np.abs(toy.flat(rounds("fedavg")[0])[0] - toy.flat(state)[0]).max() > 1e-3


def without(liars):
    """The mean of the others' uploads."""

    def apply(key, deltas, weights, state, ids):
        kept = jnp.where(liars[jnp.minimum(ids, CLIENTS - 1)], 0, weights)
        return kept @ deltas / jnp.maximum(kept.sum(), 1e-30), state, {}

    return afga_jax.Aggregator(lambda params: afga_jax.AggregatorState(), apply)


def test_what_is_no_number_is_contained_counted_and_named():
    """The model is that of the others' uploads, in every round."""
    attack = attacks.nan(0.4)
    liars = attack.liars(KEY, CLIENTS)
    state, infos = rounds("fedamsgrad", attack=attack)
    expected, _ = rounds("fedamsgrad", aggregator=without(liars))
    close(toy.flat(state)[0], toy.flat(expected)[0])
    built = afga_jax.build("fedamsgrad", toy.logistic(norm=True), **SOME)
    for number in range(3):
        sent = np.ravel(built.plan(KEY, number).cycles.upload)
        named = infos.contained[number]
        assert sorted(named[named < CLIENTS]) == sorted(sent[liars[sent]])
    assert (infos.contained < CLIENTS).any()
    assert (infos.uploads == 5).all()


def test_a_round_of_nothing_but_nan_leaves_the_model_alone():
    options = {**SOME, "active": 1, "attack": attacks.nan(0.4)}
    built = afga_jax.build("fedamsgrad", toy.logistic(norm=True), **options)
    liars = built.recipe.attack.liars(KEY, CLIENTS)
    advance, state = jax.jit(built.round), built.init(KEY)
    seen = set()
    for number in itertools.count():
        before, (state, _) = state, advance(KEY, state, toy.clients(CLIENTS))
        lied = bool(liars[np.ravel(built.plan(KEY, number).cycles.upload)[0]])
        same = bool((toy.flat(state)[0] == toy.flat(before)[0]).all())
        assert same == lied
        seen.add(lied)
        if len(seen) == 2:
            break
    assert np.isfinite(toy.flat(state)[0]).all()


def test_without_containing_nan_takes_the_model():
    state, _ = rounds("fedavg", attack=attacks.nan(0.4), contain=False)
    assert not np.isfinite(toy.flat(state)[0]).all()


BAD = [
    ({"attack": attacks.nan(0.02)}, "0.02 of 9 clients lie, which is nobody"),
    ({"algorithm": "dsgd", "attack": attacks.nan(0.3)}, "nobody uploads"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=range(len(BAD)))
def test_attacks_that_cannot_be(options, message):
    options = {"algorithm": "fedavg", **SOME, **options}
    with pytest.raises(ValueError, match=message):
        afga_jax.build(task=toy.logistic(), **options)


def test_a_share_is_between_none_and_all():
    with pytest.raises(ValueError, match=r"share = 1.5.*every fifth"):
        attacks.sign_flip(1.5)
