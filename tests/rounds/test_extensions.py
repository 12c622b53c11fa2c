"""What people put into the round: the guide's parts against plain NumPy loops."""

import re
from functools import partial
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax.gossip.mixing import RandomMixing
from afga_jax.keys import Purpose, place_key
from afga_jax.population import sampling
from afga_jax.testing import parts
from cases import marked
from reference_cases import SIZES, UNEQUAL, Case, check

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "extend-the-round.md"
KEY, CLIENTS = jax.random.key(3), 9
AVERAGE = {"local_lr": 0.3, "server_lr": 0.7}

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture(scope="module")
def guide():
    """The names that the guide's first blocks define."""
    pattern = r"^```python\n(.*?)^```"
    blocks = re.findall(pattern, GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    names = {}
    for block in blocks[:-1]:
        assert len(block.splitlines()) <= 35
        exec(compile(block, GUIDE.name, "exec"), names)
    return names


def averaging(problem, rounds, *, local_lr, server_lr, aggregate):
    """FedAvg with SGD, with another aggregation than the mean; rates by client."""
    x, s = problem.params, problem.stats
    rates = np.broadcast_to(local_lr, problem.num_clients)
    for (draws,) in rounds:
        losses, deltas, stats = [], {}, []
        for i in sorted(draws.upload):
            y, s_i = x, s
            for t in range(draws.steps):
                loss, g, s_i = parts.value_and_grad(y, s_i, draws.batch(t, i))
                y = y - rates[i] * g
                losses.append(loss)
            deltas[i] = y - x
            stats.append(s_i)
        x, s = x + server_lr * aggregate(deltas), np.mean(stats, 0)
        yield parts.BoxResult(x, s, losses, len(deltas))


def mean_of(deltas):
    return np.mean(list(deltas.values()), 0)


def trimmed(deltas, share):
    cut = int(share * len(deltas))
    ordered = np.sort(list(deltas.values()), 0)
    return ordered[cut : len(deltas) - cut].mean(0)


class TopK:
    """Sends the largest numbers of Δᵢ + eᵢ."""

    def __init__(self, share):
        self.share, self.errors = share, {}

    def __call__(self, deltas):
        total = 0.0
        for i, delta in deltas.items():
            wanted = delta + self.errors.get(i, 0.0)
            count = max(1, round(self.share * len(wanted)))
            sent = np.zeros_like(wanted)
            largest = np.argsort(-np.abs(wanted))[:count]
            sent[largest] = wanted[largest]
            self.errors[i] = wanted - sent
            total = total + sent
        return total / len(deltas)


def test_trimmed_mean(guide):
    box = partial(averaging, aggregate=partial(trimmed, share=0.3))
    options = {"active": 7, "aggregator": guide["trimmed_mean"](0.3)}
    check(Case("fedavg", box, AVERAGE, options, norm=True))


def test_top_k_with_error_feedback(guide):
    box = partial(averaging, aggregate=TopK(0.3))
    options = {"active": 4, "aggregator": guide["top_k"](0.3)}
    check(Case("fedavg", box, AVERAGE, options, norm=True))


def test_the_ledger_counts_compressed_uploads(guide):
    task = toy.logistic(norm=True)
    size = lambda **more: costs_of(task, **more).upload_size  # noqa: E731
    params, stats = 8, 3  # a bias and three weights for two classes; a running mean
    width = 8  # bytes of a double
    assert size() == width * (params + stats)
    assert size(aggregator=guide["top_k"](0.25)) == 8 * 2 + width * stats


def costs_of(task, **options):
    algorithm = afga_jax.build("fedavg", task, num_clients=9, active=4, **options)
    state = jax.eval_shape(algorithm.init, KEY)
    return afga_jax.ledger.costs(algorithm, state)


def test_rates_of_each_client():
    rates = np.geomspace(0.1, 0.8, CLIENTS)
    numbers = {"local_lr": rates, "server_lr": 0.7}
    check(Case("fedavg", partial(averaging, aggregate=mean_of), numbers, {"active": 4}))


def dropping(clustering, chosen, steps):
    """Clients that drop out in the middle of a round; some uploads are lost."""

    def draw(key, round, ids, number):
        key = place_key(key, Purpose.MIXING, round)
        chance = jax.random.uniform(jax.random.fold_in(key, number), (CLIENTS + 1,))
        return chance[ids]

    return sampling.thinned(
        sampling.resampled(clustering, chosen, steps),
        CLIENTS,
        computes=lambda key, round, cycle, step, ids: (
            step < 4 * draw(key, round, ids, 0)
        ),
        uploads=lambda key, round, cycle, ids: draw(key, round, ids, 1) < 0.5,
    )


def with_dropouts(options):
    clusters = options.clusters()
    chosen = options.chosen(clusters)
    return afga_jax.compose(
        options,
        compute=dropping(clusters, chosen, options.local_steps),
        topology="ring",
        server=afga_jax.fedamsgrad(options.server_lr),
    )


def remembering(options):
    """Momentum that persists, with re-sampling: idle gradients matter later."""
    return afga_jax.compose(
        options,
        compute="resampled",
        topology=options.topology or "ring",
        server=afga_jax.fedamsgrad(options.server_lr),
        keep_optimizer=True,
    )


def drawn_mixing(key):
    """A random matching: each pair takes its mean."""
    order = jax.random.permutation(key, CLIENTS)
    partner = jnp.arange(CLIENTS).at[order[:-1:2]].set(order[1::2])
    partner = partner.at[order[1::2]].set(order[:-1:2])
    eye = jnp.eye(CLIENTS)
    return (eye + eye[partner]) / 2


ENGINES = {
    "trimmed": ("afga", lambda g: {"active": 5, "aggregator": g["trimmed_mean"](0.3)}),
    "top-k": ("cafga", lambda g: {"aggregator": g["top_k"](0.3)}),
    "own rates": ("afga", lambda g: {"local_lr": np.geomspace(0.1, 0.9, CLIENTS)}),
    "dropouts": (with_dropouts, lambda g: {"active": 5}),
    "dropouts in clusters": (with_dropouts, lambda g: {}),
    "remembered": (remembering, lambda g: {"local_optimizer": "momentum"}),
    "remembered, star": (
        remembering,
        lambda g: {"local_optimizer": "momentum", "topology": "star"},
    ),
    "remembered, alone": (
        remembering,
        lambda g: {"local_optimizer": "momentum", "topology": "none"},
    ),
    "random matchings": ("afga", lambda g: {"topology": RandomMixing(drawn_mixing)}),
}


QUICK = ("remembered", "dropouts in clusters")


@pytest.mark.parametrize("name", marked(ENGINES, QUICK))
def test_both_engines_agree(name, guide):
    algorithm, options = ENGINES[name]
    options = {"num_clients": CLIENTS, "local_steps": 4, **options(guide)}
    if "active" not in options:
        options["participation"] = 0.6
    if "clusters" in name or name == "top-k":
        options["clustering"] = UNEQUAL
    built = afga_jax.build(algorithm, toy.logistic(norm=True), **options)
    data, after = toy.clients(CLIENTS, sizes=SIZES), {}
    for engine in ("dense", "span"):
        trainer = afga_jax.Trainer(built, afga_jax.Execution(engine), capacity=4)
        state, infos = trainer.run(KEY, trainer.init(KEY), data, 4)
        assert trainer.choice.engine == engine
        after[engine] = (state, infos)
    chex.assert_trees_all_close(after["span"], after["dense"], rtol=0, atol=1e-10)


def test_what_is_drawn_for_mixing_differs_between_seeds_rounds_and_steps():
    options = {
        "num_clients": CLIENTS,
        "active": 3,
        "topology": RandomMixing(drawn_mixing),
    }
    algorithm = afga_jax.build("afga", toy.logistic(), **options)
    matrices = [
        np.asarray(algorithm.recipe.mixing.at(plan, step).matrix())
        for seed in (0, 1)
        for plan in map(partial(algorithm.plan, jax.random.key(seed)), (0, 1))
        for step in (0, 1)
    ]
    assert len({matrix.tobytes() for matrix in matrices}) == len(matrices)
    for matrix in matrices:
        np.testing.assert_allclose(matrix.sum(0), 1, rtol=0, atol=1e-15)


def losing(uploads):
    """FedAMSGrad in which only some clients' uploads arrive."""

    def made(options):
        clusters = options.clusters()
        fixed = sampling.fixed(clusters, options.chosen(clusters), options.local_steps)
        arrives = lambda key, round, cycle, ids: jnp.isin(ids, jnp.array(uploads))  # noqa: E731
        return afga_jax.compose(
            options,
            compute=sampling.thinned(fixed, CLIENTS, uploads=arrives),
            server=afga_jax.fedamsgrad(options.server_lr),
        )

    return made


def one_round(algorithm, **options):
    built = afga_jax.build(
        algorithm,
        toy.logistic(norm=True),
        num_clients=CLIENTS,
        local_steps=3,
        **options,
    )
    start = built.init(KEY)
    data = toy.clients(CLIENTS, sizes=SIZES)
    return start, *jax.jit(built.round)(KEY, start, data)


def test_a_round_in_which_nobody_uploads_leaves_the_server_alone():
    start, state, info = one_round(losing([CLIENTS + 1]), active=4)
    assert int(info.uploads) == 0
    assert int(state.round) == 1
    for name in ("params", "stats", "server"):
        chex.assert_trees_all_equal(getattr(state, name), getattr(start, name))


def test_a_cluster_in_which_nobody_uploads_is_left_out():
    """The model is that of the other clusters, each of which counts as much."""
    labels = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    everybody = {"participation": 1.0}
    _, state, info = one_round(
        losing([0, 1, 2, 3]), clustering=labels, **everybody, server_lr=0.1
    )
    assert int(info.uploads) == 4
    weights = np.array([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    chosen = jnp.array([0, 1, 2, 3])

    def apply(key, deltas, weights_, state, ids):
        return weights @ deltas[chosen], state, {}

    only = afga_jax.Aggregator(lambda params: afga_jax.AggregatorState(), apply)
    _, expected, _ = one_round(
        "fedamsgrad", **everybody, server_lr=0.1, aggregator=only, local_lr=0.1
    )
    chex.assert_trees_all_close(state.params, expected.params, rtol=0, atol=1e-12)


BAD = [
    ({"compute": "fxied"}, r"compute = 'fxied'.*did you mean 'fixed'"),
    ({"upload": "all"}, r"upload = 'all'.*sample, one, everyone"),
    ({"server": "adam"}, r"server = 'adam'.*optax\.adam"),
]


@pytest.mark.parametrize(("choices", "message"), BAD, ids=range(len(BAD)))
def test_wrong_parts_are_refused_when_built(choices, message):
    def made(options):
        server = afga_jax.average(1.0)
        return afga_jax.compose(
            options, **{"compute": "fixed", "server": server, **choices}
        )

    with pytest.raises(ValueError, match=message):
        afga_jax.build(made, toy.logistic(), num_clients=4, active=2)


def test_an_aggregator_needs_a_server(guide):
    with pytest.raises(ValueError, match="without a server nobody uploads"):
        afga_jax.build(
            "dsgd",
            toy.logistic(),
            num_clients=4,
            aggregator=guide["trimmed_mean"](0.1),
        )
