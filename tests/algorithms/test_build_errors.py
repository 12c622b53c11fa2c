"""Bad input is refused when an algorithm is built; the message says all."""

import jax
import numpy as np
import optax
import pytest

import afga_jax
import toy
from afga_jax.gossip import kernels, mixing, topology
from afga_jax.optimizers import compressors

TASK = toy.logistic()

BAD = [
    ("agfa", {}, r"'agfa' is not known; did you mean 'afga'"),
    ("fedavg", {"active": 11}, r"active = 11.*<= num_clients = 10.*lower active"),
    ("fedavg", {"active": 0}, r"active = 0.*>= 1.*at least one client"),
    ("fedavg", {"active": 2.5}, r"active = 2.5.*whole number"),
    ("fedavg", {"participation": 0.0}, r"participation = 0.0.*> 0"),
    ("fedavg", {"participation": 1.5}, r"participation = 1.5.*<= 1"),
    ("fedavg", {"participation": 0.01}, r"0.01 samples 0 clients.*raise participation"),
    ("cafga", {"active": 15}, r"active = 15.*<= num_clients = 10"),
    ("cafga", {"active": 4}, r"active = 4 is not divisible by num_clusters = 5.*= 5"),
    ("cafga", {"num_clusters": 3}, r"10 is not divisible by num_clusters = 3"),
    ("cafga", {"num_clusters": 11}, r"num_clusters = 11.*<= num_clients = 10"),
    ("cafga", {"num_clusters": 0}, r"num_clusters = 0.*>= 1"),
    (
        "cafga",
        {"clustering": [0] * 7 + [1] * 3, "active": 8},
        r"samples 4 from each cluster.*smallest has 3.*lower active",
    ),
    ("cafga", {"clustering": [0, 1]}, r"clustering is of 2 clients.*num_clients = 10"),
    ("cafga", {"clustering": "eqal"}, r"clustering = 'eqal'.*did you mean 'equal'"),
    ("afga", {"local_steps": 0}, r"local_steps = 0.*>= 1"),
    ("afga", {"b1": 1.0}, r"b1 = 1.0.*>= 0 and < 1"),
    ("afga", {"b2": -0.1}, r"b2 = -0.1.*>= 0 and < 1"),
    ("afga", {"eps": 0.0}, r"eps = 0.0.*> 0.*1e-10"),
    ("afga", {"eps": float("nan")}, r"eps = nan.*finite"),
    ("afga", {"local_lr": -1.0}, r"local_lr = -1.0.*>= 0"),
    ("afga", {"local_lr": float("inf")}, r"local_lr = inf.*finite"),
    ("dadam", {"b3": 1.0}, r"b3 = 1.0.*< 1"),
    ("fedprox", {"mu": -1.0}, r"mu = -1.0.*>= 0.*FedAvg"),
    ("feddyn", {"feddyn_alpha": 0.0}, r"feddyn_alpha = 0.0.*> 0"),
    ("hafed_active", {"active_prob": 0.0}, r"active_prob = 0.0.*> 0"),
    ("scaffold", {"topology": "ring"}, r"topology sets mixing.*'none'.*FedProx"),
    ("fednova", {"topology": "ring"}, r"topology sets mixing.*'none'"),
    ("slowmo", {"local_lr": 0.0}, r"local_lr = 0.0.*> 0.*divides"),
    ("slowmo", {"local_lr": np.ones(10)}, r"shape \(10,\).*one number.*fedavgm"),
    ("feddyn", {"topology": "complete"}, r"topology sets mixing.*'none'"),
    ("afga", {"topology": "rign"}, r"topology = 'rign'.*did you mean 'ring'"),
    ("afga", {"topology": np.ones((10, 9))}, r"shape \(10, 9\).*square"),
    ("afga", {"topology": np.full((10, 10), np.nan)}, r"nan at \[0, 0\].*finite"),
    ("afga", {"topology": 2 * np.eye(10)}, r"sums to 2.*must be 1"),
    ("afga", {"topology": np.eye(10)}, r"disconnected.*10 parts"),
    ("afga", {"topology": topology.ring(9)}, r"9 clients.*has 10"),
    (
        "cafga",
        {"topology": np.eye(2), "num_clusters": 5, "active": 5},
        r"disconnected.*2 parts",
    ),
    ("afga", {"mix_every": 25}, r"mix_every = 25.*<= local_steps = 24"),
    ("afga", {"mix_every": 0}, r"mix_every = 0.*>= 1"),
    ("afga", {"mix_times": 0}, r"mix_times = 0.*>= 1"),
    ("afga", {"broadcast": "some"}, r"broadcast = 'some'"),
    ("dsgd", {"broadcast": "sampled"}, r"broadcast = 'sampled', but there is no serv"),
    ("scaffold", {"broadcast": "sampled"}, r"broadcast = 'sampled'.*take 'all'"),
    ("fednova", {"broadcast": "clusters"}, r"broadcast = 'clusters'.*aggregator"),
    (
        "afga",
        {"broadcast": "sampled", "compress_uploads": compressors.sign()},
        r"broadcast = 'sampled' not everybody has it",
    ),
    (
        "afga",
        {"mix_times": 2, "compress_gossip": compressors.sign()},
        r"mix_times = 2, but compressed gossip",
    ),
    ("epidemic", {"peers": 10}, r"peers = 10.*<= 9"),
    ("afga", {"adapted": "per_stop"}, r"did you mean 'per_step'"),
    ("afga_adapted", {"topology": "torus"}, r"topology = 'torus'.*leave topology out"),
    ("afga", {"mixing_order": "never"}, r"mixing_order = 'never'.*after, before"),
    ("afga", {"weighting": "sizes"}, r"did you mean 'size'"),
    ("afga", {"local_optimizer": "adm"}, r"did you mean 'adam'"),
    ("afga", {"local_optimizer": 3}, r"local_optimizer = 3.*optax.adam"),
    ("afga", {"lokal_lr": 0.1}, r"option 'lokal_lr' is not known; did you mean"),
    ("fedcluster", {"inner": "dsgd"}, r"inner = 'dsgd'.*with a server"),
    ("fedcluster", {"inner": "fedcluster"}, r"inner = 'fedcluster'"),
    ("fedcluster", {"inner": "fedawg"}, r"did you mean 'fedavg'"),
    ("pga", {"pga_period": 0}, r"pga_period = 0.*>= 1"),
    ("afga", {"local_steps": 2**17 + 1}, r"local_steps = 131073.*<= 131072"),
]


@pytest.mark.parametrize(("name", "options", "message"), BAD, ids=lambda x: str(x)[:40])
def test_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        afga_jax.build(name, TASK, **{"num_clients": 10, **options})


def test_no_clients():
    with pytest.raises(ValueError, match=r"num_clients = 0.*>= 1"):
        afga_jax.build("fedavg", TASK, num_clients=0)


def test_empty_client():
    data = toy.clients(4, sizes=(2, 0, 3, 1))
    algorithm = afga_jax.build("fedavg", TASK, num_clients=4, active=2)
    with pytest.raises(ValueError, match=r"client 1 has 0 samples.*>= 1"):
        afga_jax.fit(algorithm, data, key=jax.random.key(0), rounds=1)


def test_data_for_another_number_of_clients():
    algorithm = afga_jax.build("fedavg", TASK, num_clients=4, active=2)
    key = jax.random.key(0)
    with pytest.raises(ValueError, match=r"data has 5 clients.*num_clients = 4"):
        jax.jit(algorithm.round)(key, algorithm.init(key), toy.clients(5))


def test_unknown_number_at_init():
    algorithm = afga_jax.build("fedavg", TASK, num_clients=4, active=2)
    with pytest.raises(ValueError, match=r"'active' is not a number.*local_lr"):
        algorithm.init(jax.random.key(0), active=3)
    with pytest.raises(ValueError, match=r"eps = 0.0.*> 0"):
        algorithm.init(jax.random.key(0), eps=0.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: afga_jax.fedamsgrad(0.1, b1=1.0), r"b1 = 1.0.*< 1"),
        (lambda: afga_jax.fedamsgrad(0.1, b2=1.0), r"b2 = 1.0.*< 1"),
        (lambda: afga_jax.fedamsgrad(0.1, eps=0.0), r"eps = 0.0.*> 0"),
        (lambda: afga_jax.fedamsgrad(-0.1), r"learning_rate = -0.1.*>= 0"),
        (lambda: afga_jax.fedams(0.1, eps=0.0), r"eps = 0.0.*> 0"),
        (lambda: afga_jax.fedadam(0.1, eps=-1.0), r"eps = -1.0.*> 0"),
        (lambda: afga_jax.fedyogi(0.1, b1=2.0), r"b1 = 2.0.*< 1"),
        (lambda: afga_jax.fedadagrad(0.1, eps=0.0), r"eps = 0.0.*> 0"),
        (lambda: afga_jax.average(float("nan")), r"learning_rate = nan.*finite"),
    ],
)
def test_server_optimizers_refuse(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_injected_hyperparams_are_checked():
    injected = optax.inject_hyperparams(afga_jax.fedamsgrad)
    with pytest.raises(ValueError, match=r"eps = 0.0.*> 0"):
        injected(learning_rate=0.1, eps=0.0).init(np.zeros(2))


def test_time_varying_matrices_may_be_disconnected():
    varying = mixing.Varying(lambda round, step: np.eye(10))
    algorithm = afga_jax.build("afga", TASK, num_clients=10, topology=varying)
    assert algorithm.recipe.mixing is varying


def test_no_mixing_is_fine():
    algorithm = afga_jax.build("afga", TASK, num_clients=10, topology="none")
    assert algorithm.recipe.mixing.spectral_gap() == 1


def test_single_clients_need_no_graph():
    for name in kernels.KERNELS:
        algorithm = afga_jax.build(
            "cafga", TASK, num_clients=3, num_clusters=3, active=3, topology=name
        )
        assert algorithm.recipe.mixing.spectral_gap() == 0


def test_the_number_of_clients_comes_from_the_data():
    data, task = toy.clients(6), toy.logistic()
    built = afga_jax.build("fedavg", task, data=data, active=2)
    assert built.options.num_clients == 6
    with pytest.raises(ValueError, match=r"num_clients = 7, but data has 6 clients"):
        afga_jax.build("fedavg", task, num_clients=7, data=data)
    with pytest.raises(ValueError, match=r"num_clients is not given.*data"):
        afga_jax.build("fedavg", task)
