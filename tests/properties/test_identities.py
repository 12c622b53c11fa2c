"""The identities between algorithms (to rounding, same randomness)."""

import functools

import chex
import jax
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax.gossip import mixing, topology
from cases import marked

NUM_CLIENTS, STEPS, ROUNDS = 12, 4, 3
COMMON = {"num_clients": NUM_CLIENTS, "local_steps": STEPS, "local_lr": 0.3}
AMSGRAD = {**COMMON, "server_lr": 0.05, "eps": 1e-6}

pytestmark = pytest.mark.usefixtures("x64")


# Several tests compare with the same run.
@functools.cache
def models(name, *, sizes=None, norm=False, rounds=ROUNDS, **options):
    """The server's model after each round."""
    data = toy.clients(NUM_CLIENTS, sizes=sizes)
    algorithm = afga_jax.build(name, toy.logistic(norm=norm), **options)
    key = jax.random.key(7)
    state = jax.jit(algorithm.init)(key)
    step = jax.jit(algorithm.round)
    history = []
    for _ in range(rounds):
        state, _ = step(key, state, data)
        history.append((state.params, state.stats))
    return history


def assert_same(first, second):
    chex.assert_trees_all_close(first, second, rtol=0, atol=1e-10)


def assert_different(first, second):
    with pytest.raises(AssertionError):
        assert_same(first, second)


def test_afga_without_mixing_and_resampling_is_fedamsgrad():
    afga = models("afga", topology="none", resample=False, active=4, **AMSGRAD)
    assert_same(afga, models("fedamsgrad", active=4, **AMSGRAD))
    assert_different(afga, models("afga", topology="none", active=4, **AMSGRAD))
    assert_different(afga, models("afga", resample=False, active=4, **AMSGRAD))


def test_cafga_of_one_cluster_is_afga():
    cafga = models("cafga", num_clusters=1, active=4, **AMSGRAD)
    assert_same(cafga, models("afga", active=4, **AMSGRAD))


def test_adapted_cafga_of_one_cluster_is_adapted_afga():
    cafga = models("cafga_adapted", num_clusters=1, active=4, **AMSGRAD)
    assert_same(cafga, models("afga_adapted", active=4, **AMSGRAD))


def test_cafga_with_everybody_active_is_hafed():
    everybody = {"num_clusters": 3, "active": NUM_CLIENTS, **AMSGRAD}
    assert_same(models("cafga", **everybody), models("hafed", **everybody))


def test_cafga_with_everybody_active_and_few_uploads_is_hafed_partial():
    # CAFGA samples as many clients to compute as to upload; with a plan of one's own
    # the two can differ.
    few = {"num_clusters": 3, "active": 6, **AMSGRAD}
    partial = afga_jax.build("hafed_partial", toy.logistic(), **few)
    cafga = afga_jax.build("cafga", toy.logistic(), **few)
    data, key = toy.clients(NUM_CLIENTS), jax.random.key(7)
    cafga_round, partial_round = jax.jit(cafga.round), jax.jit(partial.round)
    plan_of = jax.jit(partial.plan)
    state, expected = (jax.jit(x.init)(key) for x in (cafga, partial))
    for number in range(ROUNDS):
        plan = plan_of(key, number)
        state, _ = cafga_round(key, state, data, plan)
        expected, _ = partial_round(key, expected, data)
        assert_same(state.params, expected.params)


@pytest.mark.parametrize(
    ("active", "other"),
    [(6, "hafed_partial"), pytest.param(12, "hafed", marks=pytest.mark.slow)],
)
def test_hafed_active_with_certainty_and_mixing_always(active, other):
    options = {"num_clusters": 3, "active": active, **AMSGRAD}
    certain = models("hafed_active", active_prob=1.0, mix_every=1, **options)
    assert_same(certain, models(other, **options))


@pytest.mark.parametrize("q", marked([1, 2, 4], [2]))
def test_hafed_partial_on_complete_graphs_is_full(q):
    options = {"num_clusters": 3, "topology": "complete", "mix_every": q, **AMSGRAD}
    partial = models("hafed_partial", active=3, **options)
    assert_same(partial, models("hafed", **options))


@pytest.mark.slow
def test_hafed_partial_on_rings_is_not_full():
    options = {"num_clusters": 3, **AMSGRAD}
    partial = models("hafed_partial", active=3, **options)
    assert_different(partial, models("hafed", active=12, **options))


@pytest.mark.parametrize("weighting", marked(["uniform", "size"], ["size"]))
def test_fedcluster_of_one_cluster_is_fedavg(weighting):
    sizes = (3, 9, 4, 6, 5, 8, 7, 6, 3, 9, 2, 4)
    options = {"active": 4, "weighting": weighting, "server_lr": 1.0, **COMMON}
    cluster = models("fedcluster", num_clusters=1, sizes=sizes, **options)
    assert_same(cluster, models("fedavg", sizes=sizes, **options))


def test_fedprox_without_pull_is_fedavg():
    options = {"active": 4, **COMMON}
    assert_same(models("fedprox", mu=0.0, **options), models("fedavg", **options))
    assert_different(models("fedprox", mu=0.5, **options), models("fedavg", **options))


def test_first_round_of_scaffold_is_fedavg():
    options = {"active": 4, **COMMON}
    scaffold, fedavg = models("scaffold", **options), models("fedavg", **options)
    assert_same(scaffold[0], fedavg[0])
    # With fresh clients c_i = 0, but c is not.
    assert_different(scaffold[1:], fedavg[1:])


SIZES = (3, 9, 4, 6, 5, 8, 7, 6, 3, 9, 2, 4)


@pytest.mark.slow
def test_fednova_with_equal_steps_is_fedavg():
    options = {"active": 4, "sizes": SIZES, **COMMON}
    fednova, weighted = models("fednova", **options), {"weighting": "size", **options}
    assert_same(fednova, models("fedavg", **weighted))
    steps = (1, 2, 3, 4) * 3
    fednova = models("fednova", client_steps=steps, **options)
    assert_different(fednova, models("fedavg", client_steps=steps, **weighted))


@pytest.mark.slow
def test_momentum_on_the_server():
    """SlowMo at a constant rate is FedAvgM of everybody, without momentum FedAvg."""
    everybody = {"active": NUM_CLIENTS, "server_lr": 0.9, **COMMON}
    plain = {"local_optimizer": "sgd", **everybody}
    assert_same(models("slowmo", b1=0.6, **plain), models("fedavgm", b1=0.6, **plain))
    assert_same(models("fedavgm", b1=0.0, **everybody), models("fedavg", **everybody))


@pytest.mark.slow
def test_diloco_with_sgd_and_plain_averaging_is_fedavg():
    inside = {"local_optimizer": "sgd", "weight_decay": 0.0, **COMMON}
    diloco = models("diloco", b1=0.0, server_lr=1.0, **inside)
    assert_same(diloco, models("fedavg", active=NUM_CLIENTS, **COMMON))
    remembers = {**inside, "local_optimizer": "momentum"}
    diloco = models("diloco", b1=0.0, server_lr=1.0, **remembers)
    fresh = {"active": NUM_CLIENTS, "local_optimizer": "momentum", **COMMON}
    assert_different(diloco, models("fedavg", **fresh))


@pytest.mark.slow
def test_tthf_with_the_identity_is_fedavg_over_the_sampled():
    unequal = {"clustering": (0,) * 3 + (1,) * 4 + (2,) * 5, **COMMON}
    identity = mixing.Varying(lambda round, step: np.eye(NUM_CLIENTS))
    alone = models("tthf", topology=identity, **unequal)
    sampled = {"cluster_weighting": "size", "participation": 0.25, **unequal}
    assert_same(alone, models("fedavg", **sampled))
    assert_different(alone, models("tthf", **unequal))


def test_epidemic_learning_with_everybody_is_the_complete_graph():
    options = {"local_steps": STEPS, "num_clients": NUM_CLIENTS, "local_lr": 0.3}
    everybody = models("epidemic", peers=NUM_CLIENTS - 1, **options)
    assert_same(everybody, models("dsgd", topology="complete", **options))
    assert_different(everybody, models("epidemic", **options))


def test_who_gets_the_servers_model():
    """All are all clusters, where an upload comes from each; who is sampled, is fewer.

    Where all are sampled it is the same; from a common start the first round is, too.
    """
    some = {"num_clusters": 3, "active": 6, **AMSGRAD}
    everybody, clusters, sampled = (
        models("hafed_partial", broadcast=broadcast, **some)
        for broadcast in ("all", "clusters", "sampled")
    )
    assert_same(clusters, everybody)
    assert_same(sampled[0], everybody[0])
    assert_different(sampled[1:], everybody[1:])
    whole = {"num_clusters": 3, **AMSGRAD}
    full = models("hafed", broadcast="sampled", **whole)
    assert_same(full, models("hafed", **whole))


@pytest.mark.slow
def test_dfedavgm_without_momentum_is_dsgd_that_mixes_once():
    options = {"local_steps": STEPS, "num_clients": NUM_CLIENTS, "local_lr": 0.3}
    plain = models("dfedavgm", momentum=0.0, **options)
    assert_same(plain, models("dsgd", mix_every=STEPS, **options))
    # Its momentum begins anew in each round.
    heavy = models("dfedavgm", momentum=0.9, **options)
    kept = {"local_optimizer": "momentum", "momentum": 0.9, "mix_every": STEPS}
    dsgd = models("dsgd", **kept, **options)
    assert_same(heavy[0], dsgd[0])
    assert_different(heavy[1:], dsgd[1:])


def test_serverless_and_full_averaging_are_centralised_sgd():
    # Equal batches: everybody's whole data, all clients of one size.
    options = {
        "full_batch": True,
        "num_clients": NUM_CLIENTS,
        "local_lr": 0.3,
    }
    rounds, steps = 3, 4
    total = {"rounds": rounds * steps, "local_steps": 1}
    central = models("sgd", **total, **options)
    fedavg = models("fedavg", active=NUM_CLIENTS, server_lr=1.0, **total, **options)
    assert_same(central, fedavg)
    inside = {"rounds": rounds, "local_steps": steps}
    assert_same(
        models("pga", pga_period=1, **inside, **options), central[steps - 1 :: steps]
    )
    complete = models("dsgd", topology="complete", **inside, **options)
    assert_same(complete, central[steps - 1 :: steps])
    assert_same(models("sgd", **inside, **options), central[steps - 1 :: steps])


@pytest.mark.slow
def test_batchnorm_statistics_are_averaged_outside_the_server_optimizer():
    # With one local step from the same start, the mean of the clients' statistics does
    # not depend on the server's optimizer, nor on gossip with everybody uploading.
    options = {**AMSGRAD, "local_steps": 1, "active": NUM_CLIENTS}
    averaged = models("fedavg", norm=True, rounds=1, **options)
    adaptive = models("fedamsgrad", norm=True, rounds=1, **options)
    mixed = models("afga", norm=True, rounds=1, **options)
    assert_same(averaged[0][1], adaptive[0][1])
    assert_same(averaged[0][1], mixed[0][1])
    assert float(np.abs(averaged[0][1]["mean"]).max()) > 0


@pytest.mark.slow
def test_ring_by_rolls_and_by_matrix_train_alike():
    by_name = models("afga", active=4, **AMSGRAD)
    matrix = models("afga", active=4, topology=topology.ring, **AMSGRAD)
    assert_same(by_name, matrix)


@pytest.mark.slow
def test_given_labels_equal_the_same_random_clusters():
    clustering = afga_jax.clustering.equal(NUM_CLIENTS, 3, seed=5)
    options = {"active": 6, **AMSGRAD}
    drawn = models("cafga", num_clusters=3, clustering_seed=5, **options)
    given = models("cafga", clustering=tuple(clustering.labels()), **options)
    # Labels are numbered as the clusters were, so the same keys draw the same clients.
    assert_same(drawn, given)
