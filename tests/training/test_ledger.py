"""The ledger against counts from plans and matrices, and against AFGA's Table 7."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import afga_jax
import new_kinds
import toy
from afga_jax.gossip import kernels, mixing, topology
from afga_jax.runs import published
from afga_jax.training import ledger
from cases import marked


def info(uploads):
    """All that the ledger reads of a round's diagnostics."""
    return types.SimpleNamespace(uploads=uploads, faults={})


def prices(name, num_clients=12, links=None, task=None, **options):
    algorithm = afga_jax.build(
        name, task or toy.logistic(), num_clients=num_clients, **options
    )
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    return algorithm, ledger.costs(algorithm, state, links)


def counted(recipe, plan):
    """Messages by looking at a round's plan and matrices, one by one."""
    steps = plan.cycles.active.shape[1]
    total = recipe.clustering.num_clients
    served = recipe.server is not None and not recipe.pooled
    counts = dict.fromkeys(
        ("server_uploads", "server_downloads", "broadcasts", "gossip_messages"), 0
    )
    seconds = 0.0
    for cycle in range(len(plan.clusters)):
        part = plan.cycle(cycle)
        uploads = int((part.upload < total).sum())
        rows = recipe.mixing.rows(plan, cycle)
        holders = total if rows is None else int((rows < total).sum())
        local = not isinstance(recipe.mixing, mixing.NoMixing)
        if served:
            downloads = uploads if local else holders
            counts["server_uploads"] += uploads
            counts["server_downloads"] += downloads
            seconds += 18 * (uploads + downloads)
        if served and local:
            counts["broadcasts"] += holders - uploads
            per_group = np.asarray((part.upload < total).sum(1))
            waits = [
                -(-(int(recipe.clustering.sizes[k]) - m) // m)
                if rows is None or len(rows) > uploads
                else 0
                for k, m in zip(plan.clusters[cycle].tolist(), per_group, strict=True)
            ]
            seconds += 1.8 * max(waits)
        for step in range(steps):
            matrix = np.array(recipe.mixing.at(plan, step, cycle).matrix())
            np.fill_diagonal(matrix, 0)
            counts["gossip_messages"] += int((matrix != 0).sum())
            seconds += 1.8 * int((matrix != 0).sum(1).max())
    return {**counts, "hours": seconds / 3600}, counts["server_uploads"]


UNEVEN = [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
CASES = {
    "uneven clusters": ("cafga", {"clustering": UNEVEN, "participation": 0.4}),
    "adapted, several": ("afga_adapted", {"active": 4}),
    "adapted, a pair": ("cafga_adapted", {"active": 4, "num_clusters": 2}),
    "adapted per round": ("afga_adapted", {"active": 4, "adapted": "per_round"}),
    "adapted, uneven": (
        "cafga_adapted",
        {"clustering": UNEVEN, "participation": 0.5},
    ),
    "adapted, drawn": (
        "hafed_active",
        {"num_clusters": 3, "adapted": "per_step", "mix_every": 2},
    ),
    "every third": ("hafed_partial", {"num_clusters": 2, "mix_every": 3}),
    "pga off beat": ("pga", {"pga_period": 5}),
    "gossip, fixed": ("afga", {"resample": False, "active": 3}),
    "no gossip": ("afga", {"topology": "none", "active": 3}),
    "cycles that gossip": (
        "fedcluster",
        {"inner": "afga", "num_clusters": 3, "topology": "ring", "participation": 0.5},
    ),
    "one graph per cluster": (
        "cafga",
        {"num_clusters": 2, "active": 2, "topology": ["star", "exponential"]},
    ),
    "random graph": ("afga", {"topology": "random", "active": 2}),
    "torus": ("dsgd", {"topology": "torus"}),
    **{case: (name, options) for case, (name, _, options) in new_kinds.CASES.items()},
}
REGISTERED = {
    name: (name, {"num_clusters": 3} if "num_clusters" in make.defaults else {})
    for name, make in afga_jax.ALGORITHMS.items()
}
SMALL = {"local_steps": 4, "participation": 0.25}


# One of each kind of plan and of mixing.
QUICK = (
    *("hafed_active", "dsgd", "adapted, uneven", "every third", "pga off beat"),
    *("cycles that gossip", "one graph per cluster", *new_kinds.CASES),
)


@pytest.mark.filterwarnings("ignore:one client is selected")
@pytest.mark.parametrize("case", marked([*REGISTERED, *CASES], QUICK))
def test_messages_and_hours_are_those_of_plans_and_matrices(case):
    name, options = {**REGISTERED, **CASES}[case]
    algorithm, costs = prices(name, **{**SMALL, **options})
    draw = jax.jit(algorithm.plan)
    for round in (0, 1):
        plan = draw(jax.random.key(3), round)
        want, uploads = counted(algorithm.recipe, plan)
        got = costs.per_round(info(uploads), round, plan if costs.needs_plan else None)
        hours = want.pop("hours")
        assert {key: got[key] for key in want} == want
        assert got["hours"] == pytest.approx(hours, rel=1e-12)
        entries = ledger.timeline(algorithm, costs, jax.tree.map(np.asarray, plan))
        assert entries[-1] == got
        assert len(entries) == len(plan.clusters) * (SMALL["local_steps"] + 2)


def test_moments_of_a_round_with_faults_add_up():
    faults = afga_jax.Faults(client_dropout=0.4, upload_loss=0.4)
    algorithm, costs = prices("afga", **SMALL, faults=faults)
    plan = jax.tree.map(np.asarray, algorithm.plan(jax.random.key(3), 0))
    toll = plan.cycle(0).toll
    assert int(toll.lost) > 0
    arrived = int(plan.cycles.upload_count.sum())
    taken = {name: getattr(toll, name) for name in ("away", "invited", "lost")}
    found = types.SimpleNamespace(uploads=arrived, faults=taken)
    want = costs.per_round(found, 0, plan)
    assert ledger.timeline(algorithm, costs, plan)[-1] == want


@pytest.mark.parametrize(
    ("broadcast", "name", "downloads", "passed_on"),
    [
        ("all", "hafed_partial", 3, 9),
        ("clusters", "hafed_partial", 3, 9),
        ("sampled", "hafed_partial", 3, 0),
        ("sampled", "fedavg", 3, 0),
        ("clusters", "fedavg", 12, 0),
    ],
)
def test_who_is_sent_the_model(broadcast, name, downloads, passed_on):
    algorithm, costs = prices(name, broadcast=broadcast, num_clusters=3, **SMALL)
    plan = jax.tree.map(np.asarray, algorithm.plan(jax.random.key(3), 0))
    found = types.SimpleNamespace(uploads=3, faults={}, receivers=downloads + passed_on)
    got = costs.per_round(found, 0, plan)
    assert (got["server_downloads"], got["broadcasts"]) == (downloads, passed_on)
    first, *_, last = ledger.timeline(algorithm, costs, plan)
    assert last == got
    assert first["server_downloads"] == (downloads if broadcast == "all" else 0)


def test_mixing_several_times_is_sent_as_often():
    once, thrice = (prices("afga", **SMALL, mix_times=n)[1] for n in (1, 3))
    once, thrice = (costs.per_round(info(3), 0) for costs in (once, thrice))
    assert thrice["gossip_messages"] == 3 * once["gossip_messages"]


def test_only_what_is_drawn_needs_the_plan():
    assert not any(prices(name, **SMALL)[1].needs_plan for name in ("afga", "pga"))
    _, costs = prices("hafed_active", num_clusters=3, **SMALL, adapted="per_step")
    assert costs.needs_plan
    with pytest.raises(ValueError, match=r"plan=algorithm\.plan"):
        costs.per_round(info(3), 0)


@pytest.mark.parametrize("name", sorted(kernels.KERNELS))
def test_traffic_of_a_kernel_is_that_of_its_matrix(name):
    for n in (1, 2, 4, 8) if name == "hypercube" else (1, 2, 3, 4, 6, 9):
        kernel = kernels.KERNELS[name](n)
        matrix = np.array(kernel.matrix())
        np.fill_diagonal(matrix, 0)
        traffic = kernel.messages()
        sent = matrix != 0
        assert traffic.messages == sent.sum(), n
        assert traffic.serial == max(sent.sum(0).max(), sent.sum(1).max()), n


def test_a_graph_that_changes_is_counted_round_by_round():
    ring, complete = jnp.asarray(topology.ring(6)), jnp.asarray(topology.complete(6))
    changing = mixing.Varying(lambda r, t: jnp.where((r + t) % 2 == 0, ring, complete))
    _, costs = prices("dsgd", 6, topology=changing, local_steps=3)
    assert not costs.needs_plan
    assert costs.per_round(info(0), 0)["gossip_messages"] == 12 + 30 + 12
    assert costs.per_round(info(0), 1)["gossip_messages"] == 30 + 12 + 30


def test_a_drawn_graph_is_traced_once():
    """Drawing it operation by operation took ten times as long as the round."""
    traced = []

    def matrix_at(key):
        traced.append(key)
        partner = jax.random.permutation(key, 6).reshape(2, 3)
        edges = jnp.zeros((6, 6)).at[partner, partner[::-1]].set(1)
        return (jnp.eye(6) + edges) / 2

    algorithm, costs = prices(
        "dsgd", 6, topology=mixing.RandomMixing(matrix_at), local_steps=3
    )
    draw = jax.jit(algorithm.plan)
    traced.clear()
    for round in range(4):
        plan = draw(jax.random.key(1), round)
        assert costs.per_round(info(0), round, plan)["gossip_messages"] == 3 * 6
    assert len(traced) == 1


def test_mixing_of_an_unknown_kind_is_counted_by_its_matrices():
    class Wrapped:
        def __init__(self):
            self.inside = mixing.WithinClusters(
                afga_jax.clustering.single(6), [kernels.ring(6)]
            )
            self.rows, self.at = self.inside.rows, self.inside.at
            self.spectral_gap = self.inside.spectral_gap

    algorithm, costs = prices("afga", 6, topology=Wrapped(), active=2, local_steps=3)
    assert costs.needs_plan
    plan = algorithm.plan(jax.random.key(0), 0)
    assert costs.per_round(info(2), 0, plan)["gossip_messages"] == 3 * 12


WEIGHTS, STATS = 4 * (3 * 2 + 2), 4 * 3  # of toy.logistic(norm=True), float32


@pytest.mark.parametrize(
    ("name", "upload", "download", "gossip"),
    [
        ("fedavg", 1, 1, 1),
        ("fedprox", 1, 1, 1),
        ("scaffold", 2, 2, 1),
        ("feddyn", 1, 1, 1),
        ("afga", 1, 1, 1),
        ("damsgrad", 1, 1, 2),
        ("dadam", 1, 1, 1),
    ],
)
def test_vectors_in_a_message(name, upload, download, gossip):
    task = toy.logistic(norm=True)
    _, costs = prices(name, task=task, active=3, local_steps=2)
    assert costs.upload_size == upload * WEIGHTS + STATS
    assert costs.download_size == download * WEIGHTS + STATS
    assert costs.gossip_size == gossip * WEIGHTS + STATS


def test_bytes_are_messages_times_their_size():
    _, costs = prices("scaffold", active=3, local_steps=2)
    spent = costs.per_round(info(3), 0)
    assert spent["upload_bytes"] == spent["download_bytes"] == 3 * 2 * WEIGHTS
    assert spent["broadcast_bytes"] == spent["gossip_bytes"] == 0
    assert spent["bytes"] == 2 * 3 * 2 * WEIGHTS
    _, costs = prices("afga", active=3, local_steps=2)
    spent = costs.per_round(info(3), 0)
    assert spent["broadcast_bytes"] == (12 - 3) * WEIGHTS
    assert spent["gossip_bytes"] == 2 * 12 * 2 * WEIGHTS
    assert spent["bytes"] == (3 + 3 + 9 + 48) * WEIGHTS


def test_half_precision_counts_half():
    def halved(key):
        params, stats = toy.logistic().init(key)
        return jax.tree.map(lambda x: x.astype(jnp.bfloat16), params), stats

    task = toy.logistic()._replace(init=halved)
    _, costs = prices("afga", task=task, active=3)
    assert costs.gossip_size == WEIGHTS / 2


def test_a_correction_of_your_own_is_judged_by_what_it_reads():
    reads_mean = afga_jax.corrections.none()._replace(
        init=optax.tree.zeros_like,
        gradient=lambda g, x, start, control, mean: jax.tree.map(jnp.add, g, mean),
    )

    def mine(options):
        recipe = afga_jax.ALGORITHMS["fedavg"].recipe(options)
        return recipe._replace(correction=reads_mean)

    _, costs = prices(mine, active=3)
    assert costs.download_size == 2 * WEIGHTS
    assert costs.upload_size == WEIGHTS


TABLE = ledger.Links(18.0, 1.8, broadcast=False, factor=10.0)
SETTING_1 = {"num_clients": 100, "participation": 0.05, "local_steps": 24}


@pytest.mark.parametrize("name", ["fedamsgrad", "afga", "cafga"])
def test_table_7(name):
    clusters = {"num_clusters": 5} if name == "cafga" else {}
    _, costs = prices(name, **SETTING_1, **clusters, links=TABLE)
    hours = costs.per_round(info(5), 0)["hours"]
    for cell in published.HOURS[name]:
        assert round(cell.rounds * hours, 2) == cell.hours
    at_78 = {cell.accuracy: cell.rounds for cell in published.HOURS[name]}[78]
    assert at_78 == published.lookup(name, "cifar10", "1", "convmixer").rounds


def test_table_7_leaves_out_the_broadcast():
    _, without = prices("afga", **SETTING_1, links=TABLE)
    _, with_it = prices("afga", **SETTING_1, links=ledger.Links(factor=10.0))
    less, more = (c.per_round(info(5), 0) for c in (without, with_it))
    assert (less["broadcasts"], more["broadcasts"]) == (0, 95)
    # Each of the 5 that upload passes x_r on to 19 others.
    assert more["hours"] - less["hours"] == pytest.approx(10 * 19 * 1.8 / 3600)


def test_a_million_clients():
    _, costs = prices("afga", 1_000_000, active=10, topology="torus", local_steps=2)
    spent = costs.per_round(info(10), 0)
    assert spent["gossip_messages"] == 2 * 4_000_000
    assert spent["broadcasts"] == 999_990


def test_a_link_cannot_take_less_than_no_time():
    with pytest.raises(
        ValueError, match=r"client_seconds = -1\.0, but it must be >= 0"
    ):
        ledger.Links(client_seconds=-1.0)


def test_what_fails_is_not_sent_and_what_is_lost_was():
    faults = afga_jax.Faults(0.5, 0.4, upload_loss=0.4)
    options = {"active": 6, "local_steps": 3, "num_clusters": 2, "faults": faults}
    algorithm, costs = prices("cafga", **options)
    key, data = jax.random.key(5), toy.clients(12)
    plan = jax.jit(algorithm.plan)(key, 0)
    _, seen = jax.jit(algorithm.round)(key, algorithm.init(key), data, plan)
    spent = costs.per_round(seen, 0, plan)
    toll, part = plan.cycles.toll, plan.cycle(0)
    away, invited = int((toll.until[0] == 0).sum()), int(toll.invited[0])
    arrived, lost = int((part.upload < 12).sum()), int(toll.lost[0])
    assert spent["server_uploads"] == arrived + lost
    assert spent["server_downloads"] == invited
    assert spent["broadcasts"] == 12 - away - invited
    assert lost > 0
    assert arrived + lost < invited < 6
    matrices = (
        np.array(algorithm.recipe.mixing.at(plan, t).matrix()) for t in range(3)
    )
    sent = sum(int((matrix != 0).sum() - 12) for matrix in matrices)
    assert spent["gossip_messages"] == sent < 3 * 24
    alone, own = prices("fedamsgrad", active=6, local_steps=3, faults=faults)
    _, seen = jax.jit(alone.round)(key, alone.init(key), data)
    spent = own.per_round(seen, 0)
    assert spent["server_downloads"] == int(seen.faults["invited"])
    assert spent["gossip_messages"] == 0
