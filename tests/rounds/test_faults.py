"""Clients, links and uploads that fail: both engines against a plain NumPy loop."""

import chex
import jax
import numpy as np
import pytest

import afga_jax
import faulty
import toy
from afga_jax.gossip import topology
from afga_jax.testing import draws_of, parts

KEY, CLIENTS, STEPS, ROUNDS = jax.random.key(3), 9, 4, 4
ALL = afga_jax.Faults(0.3, 0.3, 0.4, 0.3)
OPTIONS = {"num_clients": CLIENTS, "active": 4, "local_steps": STEPS}
OPTIONS |= {"local_lr": 0.5, "server_lr": 0.1}

pytestmark = pytest.mark.usefixtures("x64")


def built(algorithm="afga", faults=ALL, **options):
    return afga_jax.build(
        algorithm, toy.logistic(norm=True), faults=faults, **{**OPTIONS, **options}
    )


def trained(algorithm, engine, rounds=ROUNDS):
    """Each round's state and info."""
    trainer = afga_jax.Trainer(
        algorithm, afga_jax.Execution(engine), observe=lambda *seen: seen
    )
    _, seen = trainer.run(KEY, trainer.init(KEY), toy.clients(CLIENTS), rounds)
    assert trainer.choice.engine == engine
    return [jax.tree.map(lambda x: x[number], seen) for number in range(rounds)]  # noqa: B023


def loop(x, s, rounds, faults, *, local_lr, server_lr, whole=None):
    """AFGA's box over links and clients that fail; None for W: over a ring."""
    server = parts.fedamsgrad()
    whole = parts.ring(CLIENTS) if whole is None else whole
    for number, (draws,) in enumerate(rounds):
        world = faulty.World(KEY, faults, CLIENTS, draws.steps, number)
        models, stats = np.array([x] * CLIENTS), np.array([s] * CLIENTS)
        gradients = 0
        for t in range(draws.steps):
            for i in sorted(draws.active[t]):
                if t < min(world.until[i], world.computes[i]):
                    _, g, stats[i] = draws.gradient(t, i, models[i], stats[i])
                    models[i] -= local_lr * g
                    gradients += 1
            matrix = world.matrix(whole, t)
            models, stats = matrix @ models, matrix @ stats
        sent = [i for i in draws.upload if world.until[i] == draws.steps]
        arrived = [i for i in sent if not world.lost[i]]
        if arrived:
            x = x + server_lr * server(np.mean(models[arrived] - x, 0))
            s = np.mean(stats[arrived], 0)
        yield x, s, gradients, len(sent), len(arrived)


@pytest.fixture(scope="module")
def draws():
    """Who would take part if nothing failed, and everybody's batches."""
    with jax.enable_x64(True):
        plan, data = jax.jit(built(faults=None).plan), toy.clients(CLIENTS)
        return [draws_of(plan(KEY, number), data, KEY) for number in range(ROUNDS)]


@pytest.mark.parametrize("engine", ["dense", "span"])
def test_a_plain_loop(engine, draws):
    seen = trained(built(), engine)
    start = toy.flat(jax.jit(built().init)(KEY))
    expected = loop(*start, draws, ALL, local_lr=0.5, server_lr=0.1)
    taken = []
    for (state, info), (x, s, *counts) in zip(seen, expected, strict=True):
        np.testing.assert_allclose(toy.flat(state)[0], x, rtol=0, atol=1e-10)
        np.testing.assert_allclose(toy.flat(state)[1], s, rtol=0, atol=1e-10)
        sent = int(info.uploads) + int(info.faults["lost"])
        taken.append(counts)
        assert [int(info.gradients), sent, int(info.uploads)] == counts
    # Something of everything has failed, and not all of it.
    gradients, sent, arrived = np.sum(taken, 0)
    assert 0 < gradients < ROUNDS * STEPS * 4
    assert 0 < arrived < sent < ROUNDS * 4


GRAPHS = {
    "clusters": {"clustering": [0, 1, 0, 2, 1, 0, 1, 0, 0], "active": None},
    "own": {"topology": afga_jax.mixing.Varying(lambda r, t: topology.ring(CLIENTS))},
}
# Graphs by name, adapted rings, HA-Fed and FedCluster are generated, with any faults:
# `tests/properties/test_generated_faults.py`.
OTHERS = {
    **{name: ("afga", options) for name, options in GRAPHS.items()},
    "fedamsgrad": ("fedamsgrad", {}),
    "scaffold": ("scaffold", {}),
}
QUICK = ("clusters",)


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in OTHERS],
)
def test_both_engines_agree(name):
    algorithm, options = OTHERS[name]
    if name == "clusters":
        options = {**options, "participation": 0.6}
    made = built(algorithm, **options)
    dense, span = (trained(made, engine, 3) for engine in ("dense", "span"))
    chex.assert_trees_all_close(span, dense, rtol=0, atol=1e-10)


def test_a_round_in_which_nothing_arrives_leaves_the_model_unchanged():
    for faults in (
        afga_jax.Faults(upload_loss=1.0),
        afga_jax.Faults(client_dropout=1.0),
        afga_jax.Faults(availability=np.zeros((CLIENTS, 1))),
    ):
        made = built("fedamsgrad", faults)
        start = made.init(KEY)
        state, info = jax.jit(made.round)(KEY, start, toy.clients(CLIENTS))
        assert int(info.uploads) == 0
        for name in ("params", "stats", "server"):
            chex.assert_trees_all_equal(getattr(state, name), getattr(start, name))


def test_without_a_server_who_is_away_keeps_its_model():
    away = np.ones((CLIENTS, 2))
    away[4, 0] = 0
    made = built("pga", afga_jax.Faults(availability=away, link_failure=0.2))
    start = made.init(KEY)
    state, _ = jax.jit(made.round)(KEY, start, toy.clients(CLIENTS))
    (models, _), (before, _) = state.clients, start.clients
    moved = np.abs(models.params["w"] - before.params["w"]).max((1, 2))
    assert moved[4] == 0
    assert (np.delete(moved, 4) > 0).all()


def test_the_same_seed_fails_the_same_clients_and_links():
    """For AFGA, CAFGA and FedAMSGrad, and for whatever engine: plans say who fails."""
    clusters = {"clustering": [0] * 4 + [1] * 5}
    made = {"afga": built(), "cafga": built("cafga", **clusters)}
    made["fedamsgrad"] = built("fedamsgrad")
    plans = {name: jax.jit(x.plan)(KEY, 1) for name, x in made.items()}
    until = [np.asarray(plan.cycles.toll.until[0]) for plan in plans.values()]
    assert (until[0] < STEPS).any()
    np.testing.assert_array_equal(until[1], until[0])
    np.testing.assert_array_equal(until[2], until[0])
    down = 0
    for step in range(STEPS):
        rings = [faulty.by_id(made[n], plans[n], step) for n in ("afga", "cafga")]
        for i, j in [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7), (7, 8)]:
            up = [ring[i, j] > 0 for ring in rings]
            assert up[0] == up[1]
            down += not up[0]
    assert 0 < down < 7 * STEPS
    # The clients whom both sample are slow alike, and lose the same uploads.
    world = faulty.World(KEY, ALL, CLIENTS, STEPS, 1)
    for name in ("afga", "fedamsgrad"):
        plain = jax.jit(built(name, None).plan)(KEY, 1)
        stays = {
            int(i)
            for i in np.ravel(plain.cycles.upload)
            if world.until[i] == STEPS and not world.lost[i]
        }
        arrived = {int(i) for i in np.ravel(plans[name].cycles.upload)}
        assert arrived - {CLIENTS} == stays


def test_another_seed_round_or_step_fails_others():
    made = built(faults=afga_jax.Faults(link_failure=0.5))
    plan = jax.jit(made.plan)
    matrices = [
        faulty.by_id(made, plan(jax.random.key(seed), number), step).tobytes()
        for seed in (0, 1)
        for number in (0, 1)
        for step in (0, 1)
    ]
    assert len(set(matrices)) == len(matrices)


def test_faults_that_are_off_change_nothing():
    made, plain = built(faults=afga_jax.Faults()), built(faults=None)
    assert made.recipe.mixing.__class__ is plain.recipe.mixing.__class__
    assert jax.eval_shape(made.plan, KEY, 0).cycles.toll is None


@pytest.mark.parametrize("name", ["afga", "fedamsgrad"])
def test_with_everything_off_the_program_is_the_same(name):
    """As text, also for what is given and does nothing."""
    nothing = {"attack": None, "contain": False, "gossip_defence": None}
    nothing |= {"compress_uploads": None, "compress_gossip": None}
    nothing["aggregator"] = afga_jax.aggregators.mean()
    found = [
        jax.jit(made.round).lower(KEY, made.init(KEY), toy.clients(CLIENTS)).as_text()
        for made in (built(name, None), built(name, afga_jax.Faults(), **nothing))
    ]
    assert found[0] == found[1]


BAD = [
    ("afga", {"topology": "exponential"}, ALL, r"not symmetric.*\(W \+ W\.T\) / 2"),
    ("afga", {"local_steps": 1}, ALL, r"straggler = 0\.4.*raise local_steps"),
    ("afga", {}, {"link_failure": 0.1}, r"must be a Faults or None"),
    (
        "afga",
        {},
        afga_jax.Faults(availability=np.ones((4, 2))),
        r"availability has 4 rows, but num_clients = 9",
    ),
]


@pytest.mark.parametrize(("name", "options", "faults", "message"), BAD)
def test_what_cannot_be_is_said_when_built(name, options, faults, message):
    with pytest.raises(ValueError, match=message):
        built(name, faults, **options)


@pytest.mark.parametrize("name", ["client_dropout", "straggler", "upload_loss"])
def test_rates_are_probabilities(name):
    with pytest.raises(ValueError, match=f"{name} = -0.1, but it must be >= 0"):
        afga_jax.Faults(**{name: -0.1})
    with pytest.raises(ValueError, match=f"{name} = .*one number"):
        afga_jax.Faults(**{name: np.ones(3)})


def test_nothing_of_all_can_fail_where_one_client_holds_all():
    made = afga_jax.build("sgd", toy.logistic(), num_clients=5, faults=ALL)
    assert jax.eval_shape(made.plan, KEY, 0).cycles.toll is None
