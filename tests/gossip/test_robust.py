"""Robust gossip: against plain NumPy, and what it is known to guarantee."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax import attacks, robust, topology
from afga_jax.gossip.kernels import as_kernels
from afga_jax.gossip.mixing import WithinClusters
from afga_jax.gossip.periods import Every
from afga_jax.population.clustering import from_labels, single
from afga_jax.testing import defences

pytestmark = pytest.mark.usefixtures("x64")
KEY, CLIENTS, SIZE = jax.random.key(3), 9, 4
close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-12)


def graph(given, labels=None):
    clusters = single(CLIENTS) if labels is None else from_labels(labels)
    return WithinClusters(clusters, as_kernels(given, clusters.sizes))


def plan(num_clients=CLIENTS, **options):
    built = afga_jax.build(
        "afga", toy.logistic(), num_clients=num_clients, participation=0.5, **options
    )
    return built.plan(KEY, 0)


def models(seed=0, rows=CLIENTS):
    return np.random.default_rng(seed).normal(size=(rows, SIZE))


def mixed(mixing, given, plan_=None, step=0):
    """As a tree of two arrays, which count as one vector."""
    operator = mixing.at(plan() if plan_ is None else plan_, step)
    tree = {"a": jnp.asarray(given[:, :1]), "b": jnp.asarray(given[:, 1:])}
    done = jax.jit(operator.apply)(tree)
    return np.concatenate([done["a"], done["b"]], axis=1)


def guarded(inner, defence=None, attack=None):
    return robust.Guarded(inner, defence, attack, CLIENTS)


GRAPHS = {
    "ring": "ring",
    "exponential": "exponential",
    "complete": "complete",
    "random": topology.random(CLIENTS, seed=1),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_is_the_plain_loop_s(name):
    inner, x = graph(GRAPHS[name]), models()
    matrix = np.asarray(inner.at(plan(), 0).matrix())
    close(mixed(guarded(inner), x), matrix @ x)
    expected = defences.clipped_gossip(matrix, x, 1)
    close(mixed(guarded(inner, robust.clipped(1)), x), expected)
    b = 0 if name == "ring" else 1
    expected = defences.trimmed_gossip(matrix, x, b)
    close(mixed(guarded(inner, robust.trimmed_mean(b)), x), expected)


def test_clusters_of_unequal_size_and_steps_without_mixing():
    labels = [0] * 4 + [1] * 5
    inner, x = graph("complete", labels), models(rows=10)
    of_plan = plan(clustering=labels)
    matrix = np.asarray(inner.at(of_plan, 0).matrix())
    expected = defences.trimmed_gossip(matrix[:4, :4], x[:4], 1)
    found = mixed(guarded(inner, robust.trimmed_mean(1)), x, of_plan)
    close(found[:4], expected)
    close(found[4], x[4])  # nobody's
    sometimes = guarded(Every(inner, 2), robust.clipped(1))
    close(mixed(sometimes, x, of_plan, step=0), x)
    assert np.abs(mixed(sometimes, x, of_plan, step=1) - x).max() > 0.1


@pytest.mark.parametrize("lie", [1.0, 1e3, 1e12])
def test_a_clipped_neighbour_moves_you_at_most_its_weight_times_the_radius(lie):
    """From where you would be had it said nothing new."""
    inner, radius = graph("ring"), 0.5
    mixing = guarded(inner, robust.clipped(radius=radius))
    x = models()
    x[4] = x[3]
    without = mixed(mixing, x)[3]
    x[4] = x[3] + lie
    with_liar = mixed(mixing, x)[3]
    moved = np.linalg.norm(with_liar - without)
    assert moved <= radius / 3 * (1 + 1e-12)
    assert moved > 0.99 * radius / 3


@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_assumed_liars_say_you_stay_among_the_honest(seed):
    """Trimmed: between their numbers. Clipped: no farther than the radius they set."""
    inner, x, liars = graph("complete"), models(seed), [1, 6]
    honest = [i for i in range(CLIENTS) if i not in liars]
    x[liars] = [[1e9] * SIZE, [-1e9] * SIZE]
    found = mixed(guarded(inner, robust.trimmed_mean(2)), x)[honest]
    assert (found >= x[honest].min(0)).all()
    assert (found <= x[honest].max(0)).all()
    found = mixed(guarded(inner, robust.clipped(2)), x)[honest]
    widest = max(np.linalg.norm(a - b) for a in x[honest] for b in x[honest])
    # τᵢ² is at most (n − 1 − b)/b times the largest squared distance.
    bound = (6 + 2 * np.sqrt(6 / 2)) / CLIENTS * widest
    assert np.linalg.norm(found - x[honest], axis=1).max() <= bound


def test_dissensus_keeps_an_honest_client_where_it_is_unless_it_defends_itself():
    attack = attacks.dissensus(0.3)
    inner, x = graph("complete"), models()
    liars = np.asarray(attack.liars(KEY, CLIENTS))
    close(mixed(guarded(inner, attack=attack), x)[~liars], x[~liars])
    # Liars tell each other the truth.
    matrix = np.asarray(inner.at(plan(), 0).matrix())
    close(mixed(guarded(inner, attack=attack), x)[liars], (matrix @ x)[liars])
    spread = lambda x: np.linalg.norm(x[~liars] - x[~liars].mean(0))  # noqa: E731
    defended = mixed(guarded(inner, robust.trimmed_mean(3), attack), x)
    assert spread(defended) < 0.7 * spread(x)


def test_a_neighbour_that_is_nan_is_left_out():
    inner, x = graph("exponential"), models()
    x[2] = np.nan
    for defence in (robust.clipped(1), robust.trimmed_mean(1)):
        found = mixed(guarded(inner, defence), x)
        assert np.isfinite(np.delete(found, 2, axis=0)).all()
    assert not np.isfinite(np.delete(mixed(guarded(inner), x), 2, axis=0)).all()


def test_where_all_agree_nobody_moves():
    x = np.tile(models()[:1], (CLIENTS, 1))
    for defence in (robust.clipped(1), robust.trimmed_mean(1)):
        close(mixed(guarded(graph("exponential"), defence), x), x)


def test_it_runs_in_the_dense_engine_and_every_gradient_counts():
    defence = robust.trimmed_mean(1)
    options = {"num_clients": CLIENTS, "active": 4, "local_steps": 3}
    options |= {"topology": "exponential", "gossip_defence": defence}
    built = afga_jax.build("afga", toy.logistic(norm=True), **options)
    trainer = afga_jax.Trainer(built)
    state, infos = trainer.run(KEY, trainer.init(KEY), toy.clients(CLIENTS), 2)
    assert trainer.choice.engine == "dense"
    assert "not linear" in trainer.choice.reason
    assert (infos.needed == infos.gradients).all()
    assert np.isfinite(toy.flat(state)[0]).all()
    with pytest.raises(ValueError, match=r"engine = .span.*not linear"):
        afga_jax.Trainer(built, afga_jax.Execution("span"))


BAD = [
    ({"gossip_defence": robust.trimmed_mean(1)}, "needs 3 neighbours.*has 2"),
    ({"topology": "none", "gossip_defence": robust.clipped(1)}, "nobody mixes"),
    ({"topology": "none", "attack": attacks.dissensus(0.3)}, "nobody mixes"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=range(len(BAD)))
def test_defences_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        afga_jax.build("afga", toy.logistic(), num_clients=6, active=3, **options)


def test_one_of_both_sets_the_radius():
    with pytest.raises(ValueError, match="give b"):
        robust.clipped()
    with pytest.raises(ValueError, match="b = 0"):
        robust.clipped(0)
