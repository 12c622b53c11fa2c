"""The span engine: its graph, its schedule, and the numbers of the dense engine."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import both_engines
import new_kinds
import toy
from afga_jax import trees
from afga_jax.gossip.mixing import NoMixing
from afga_jax.rounds import client_step, needed, update_rows
from afga_jax.rounds.execution import Execution
from afga_jax.rounds.span import dependencies, engine, schedule
from afga_jax.training import engine_choice
from cases import marked

KEY = jax.random.key(1)
BEFORE = {"mixing_order": "before"}

# Name, number of clients, options. All mixings, orders and kinds of local state.
CASES = {
    "ring": ("afga", 20, {"active": 3, "local_steps": 6}),
    "long ring": ("afga", 100, {"active": 5, "local_steps": 12}),
    "every third": ("afga", 30, {"active": 4, "local_steps": 9, "mix_every": 3}),
    "three times": (
        "afga",
        30,
        {"active": 4, "local_steps": 4, "mix_every": 2, "mix_times": 3},
    ),
    "twice, by matrices": (
        "cafga",
        12,
        {
            "active": 4,
            "local_steps": 4,
            "num_clusters": 2,
            "topology": "star",
            "mix_times": 2,
        },
    ),
    "torus": ("afga", 60, {"active": 5, "local_steps": 4, "topology": "torus"}),
    "small torus": ("afga", 12, {"active": 3, "local_steps": 6, "topology": "torus"}),
    "exponential": (
        "afga",
        40,
        {"active": 3, "local_steps": 3, "topology": "exponential"},
    ),
    "random": ("afga", 12, {"active": 3, "local_steps": 4, "topology": "random"}),
    "mix first": (
        "afga",
        30,
        {"active": 3, "local_steps": 7, "mixing_order": "before"},
    ),
    "star, mix first": (
        "afga",
        12,
        {"active": 3, "local_steps": 4, "topology": "star"} | BEFORE,
    ),
    "no re-sampling": ("afga", 20, {"active": 3, "local_steps": 4, "resample": False}),
    "fewer steps": (
        "afga",
        20,
        {"active": 3, "local_steps": 6, "client_steps": [2, 6, 4, 5] * 5},
    ),
    "clusters": ("cafga", 24, {"active": 4, "local_steps": 5, "num_clusters": 2}),
    "unequal clusters": (
        "cafga",
        17,
        {
            "participation": 0.25,
            "local_steps": 4,
            "clustering": [0] * 4 + [1] * 9 + [2] * 4,
        },
    ),
    "adapted": ("afga_adapted", 12, {"active": 4, "local_steps": 5}),
    "adapted clusters": (
        "cafga_adapted",
        12,
        {"active": 6, "local_steps": 4, "num_clusters": 2},
    ),
    "some of all": (
        "hafed_active",
        12,
        {"num_clusters": 2, "active": 4, "local_steps": 4, "mix_every": 2},
    ),
    "no mixing": ("fedamsgrad", 12, {"active": 3, "local_steps": 3}),
    "no mixing, re-sampled": (
        "afga",
        12,
        {"active": 3, "local_steps": 4, "topology": "none"},
    ),
    "cycles": (
        "fedcluster",
        12,
        {"participation": 0.5, "local_steps": 3, "num_clusters": 2},
    ),
    "adam": ("afga", 12, {"active": 3, "local_steps": 5, "local_optimizer": "adam"}),
    "scaffold": ("scaffold", 12, {"active": 3, "local_steps": 3}),
    "scaffold, re-sampled": (
        "scaffold",
        12,
        {"active": 4, "local_steps": 4, "resample": True},
    ),
    "feddyn": ("feddyn", 12, {"active": 3, "local_steps": 3}),
    **new_kinds.CASES,
}


def built(name):
    algorithm, clients, options = CASES[name]
    task = toy.logistic(norm=True)
    return afga_jax.build(algorithm, task, num_clients=clients, local_lr=0.5, **options)


# Several tests look at the same graph.
@functools.cache
def graph_of(name):
    with jax.enable_x64(True):
        algorithm = built(name)
        state = jax.eval_shape(algorithm.init, KEY)
        stateful = client_step.is_stateful(algorithm.recipe, state.params)
        plan = jax.tree.map(np.asarray, jax.jit(algorithm.plan)(KEY, 3))
        finder = dependencies.Finder(algorithm.recipe, stateful=stateful)
        return plan, finder.graph(plan, 0), stateful


# By their matrices and their kinds of local state; the slow tests have the others.
FIRST = (
    *("ring", "torus", "mix first", "fewer steps", "unequal clusters", "adapted"),
    *("some of all", "no mixing", "cycles", "adam", "new mixing"),
    *("three times", "twice, by matrices"),
)


@pytest.mark.parametrize("name", marked(CASES, FIRST))
def test_reads_are_products_of_the_mixing_matrices(name, x64):
    algorithm = built(name)
    plan, graph, stateful = graph_of(name)
    tasks, reads = expected_reads(algorithm, plan, stateful)
    assert list(zip(graph.step, graph.client, strict=True)) == tasks
    got = {
        (reader, int(graph.task[at])): graph.weight[at]
        for reader in range(len(graph.first) - 1)
        for at in range(graph.first[reader], graph.first[reader + 1])
    }
    if isinstance(algorithm.recipe.mixing, NoMixing):
        # A row holds all that its client did before: what it read is read with it.
        for reader, task in sorted(got):
            got |= {(reader, b): 1.0 for a, b in list(got) if a == task}
    assert got.keys() == reads.keys()
    for pair, weight in reads.items():
        np.testing.assert_allclose(got[pair], weight, rtol=0, atol=1e-14)
    assert graph.planned == (np.asarray(plan.cycles.active[0]) < built_n(name)).sum()


def built_n(name):
    return CASES[name][1]


def expected_reads(algorithm, plan, stateful):
    """By the definition, with dense matrices and a closure over all readers."""
    count, part = algorithm.options.num_clients, plan.cycle(0)
    matrices = [matrix_of(algorithm, plan, t, count) for t in range(len(part.active))]
    ids, _ = part.flat_active(count)
    tasks = [(t, int(i)) for t, row in enumerate(ids) for i in sorted(row) if i < count]
    tasks.sort(key=lambda task: (task[0], list(ids[task[0]]).index(task[1])))
    readers = tasks + [(len(matrices), int(i)) for i in part.upload.ravel()]
    reads, before, products = {}, set(), {}
    for s in range(len(matrices)):
        products[s, s + 1] = np.eye(count)
        if not algorithm.recipe.mix_first:
            products[s, s + 1] = matrices[s]
        for t in range(s + 1, len(matrices)):
            products[s, t + 1] = matrices[t] @ products[s, t]
    for a, (t, i) in enumerate(readers):
        for b, (s, j) in enumerate(tasks):
            if s >= t or i >= count:
                continue
            if stateful and i == j and a < len(tasks):
                before.add((a, b))
            if products[s, t][i, j] > 0:
                reads[a, b] = products[s, t][i, j]
    needed = {b for a, b in reads if a >= len(tasks)}
    while more := {b for a, b in reads.keys() | before if a in needed} - needed:
        needed |= more
    number = {task: n for n, task in enumerate(sorted(needed))}
    number |= {len(tasks) + u: len(needed) + u for u in range(len(readers))}
    kept = {(number[a], number[b]): w for (a, b), w in reads.items() if a in number}
    return [tasks[k] for k in sorted(needed)], kept


def matrix_of(algorithm, plan, step, count):
    mixing = algorithm.recipe.mixing
    matrix = np.asarray(mixing.at(plan, step).matrix())
    holders = mixing.rows(plan)
    if holders is None:
        return matrix
    holders, full = np.asarray(holders), np.eye(count)
    real = np.flatnonzero(holders < count)
    full[np.ix_(holders[real], holders[real])] = matrix[np.ix_(real, real)]
    return full


# How many are needed is compared in every case, by both engines' diagnostics.
@pytest.mark.parametrize(
    "name",
    ["long ring", "star, mix first", "adapted", "no mixing, re-sampled", "cycles"],
)
def test_reach_agrees_with_the_graph(name):
    algorithm = built(name)
    plan, graph, stateful = graph_of(name)
    matters = needed.mask(
        algorithm.recipe, jax.tree.map(jnp.asarray, plan), stateful=stateful
    )
    ids, _ = plan.cycle(0).flat_active(built_n(name))
    if matters is None:
        matters = ids < built_n(name)
    step, column = np.nonzero(np.asarray(matters))
    expected = {(int(t), int(ids[t, k])) for t, k in zip(step, column, strict=True)}
    assert set(zip(graph.step.tolist(), graph.client.tolist(), strict=True)) == expected


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize(
    "name", ["long ring", "torus", "clusters", "adapted", "cycles"]
)
def test_every_task_runs_once_after_all_it_reads(name, width):
    _, graph, _ = graph_of(name)
    table = schedule.timetable(graph, width)
    tasks = len(graph.step)
    places = set(zip(table.slot.tolist(), table.lane.tolist(), strict=True))
    assert len(places) == tasks
    assert table.lane.max() < width
    assert table.sizes.slots >= -(-tasks // width)
    for reader in range(len(graph.first) - 1):
        read = graph.task[graph.first[reader] : graph.first[reader + 1]]
        if not len(read):
            continue
        when = table.slot[read].max()
        if reader < tasks:
            assert when < table.slot[reader]
        else:
            assert when == table.done[reader - tasks]


@pytest.mark.parametrize("width", [1, 3])
def test_a_row_is_kept_until_its_last_reader(width):
    _, graph, _ = graph_of("long ring")
    table = schedule.timetable(graph, width)
    tasks = len(graph.step)
    assert table.sizes.rows < tasks
    owner = {}
    order = np.lexsort((table.lane, table.slot))
    for slot in range(table.sizes.slots):
        here = [task for task in order if table.slot[task] == slot]
        for task in here:
            for read in graph.task[graph.first[task] : graph.first[task + 1]]:
                assert owner[table.row[read]] == read
        for task in here:
            owner[table.row[task]] = task
        for upload in np.flatnonzero(table.done == slot):
            reader = tasks + upload
            for read in graph.task[graph.first[reader] : graph.first[reader + 1]]:
                assert owner[table.row[read]] == read


# Special graphs are in `test_boxes`. Others here have these in them, and so has the
# generated family of `tests/properties`, with both engines against the plain round.
ELSEWHERE = ("small torus", "random", "no re-sampling", "fewer steps", "clusters")
ELSEWHERE += ("adapted", "cycles", "adam")
QUICK = ("unequal clusters", "new mixing")


@pytest.mark.parametrize(
    "name", marked([name for name in CASES if name not in ELSEWHERE], QUICK)
)
def test_same_numbers_as_the_dense_engine(name, x64):
    """Different order of summation only: rounding, amplified by the adaptive step."""
    width = 1 if name == "ring" else 2
    algorithm, data = built(name), toy.clients(built_n(name))
    start = jax.jit(algorithm.init)(KEY)
    _, expected, spanned = both_engines.rounds(algorithm, start, data, KEY, width)
    chex.assert_trees_all_close(spanned, expected, rtol=0, atol=1e-10)
    assert sum(info.needed for _, info in spanned) > 0


def test_same_numbers_as_accelerators_run_it(x64, monkeypatch):
    """All lanes of a slot at once, whose increments are joined in pieces."""
    name = "unequal clusters"
    algorithm, data = built(name), toy.clients(built_n(name))
    start = jax.jit(algorithm.init)(KEY)
    monkeypatch.setattr(engine, "on_cpu", lambda: False)
    monkeypatch.setattr(update_rows, "on_cpu", lambda: False)
    monkeypatch.setattr(trees, "AT_ONCE", 2)
    _, expected, spanned = both_engines.rounds(algorithm, start, data, KEY)
    chex.assert_trees_all_close(spanned, expected, rtol=0, atol=1e-10)


def test_seeds_share_a_program():
    _, make = engine_choice.choose(built("ring"), KEY, Execution("span"))
    keys = jnp.stack([KEY, jax.random.key(2)])
    together = make(keys, range(8))
    alone = make(KEY, range(8))
    chex.assert_trees_all_equal(jax.tree.map(lambda x: x[:, 0], together), alone)


def test_a_ring_of_few_active_holds_less():
    task = toy.logistic()
    ring = afga_jax.build("afga", task, num_clients=200, active=2, local_steps=8)
    choice, _ = engine_choice.choose(ring, KEY)
    assert choice.engine == "span"
    assert choice.run.models < choice.other.models


def test_no_array_of_a_structured_round_has_the_size_of_the_population():
    clients = 1_000_000
    algorithm = afga_jax.build("afga", toy.logistic(), num_clients=clients, active=50)
    choice, make = engine_choice.choose(algorithm, KEY, Execution("span"))
    shapes = [x[0].size for x in jax.tree.leaves(make(KEY, range(8)))]
    assert max(shapes) < 10_000
    assert choice.run.models < choice.other.models / 1000


@pytest.mark.parametrize("name", ["dsgd", "damsgrad"])
def test_without_a_common_start_it_is_refused(name):
    algorithm = afga_jax.build(name, toy.logistic(), num_clients=4)
    with pytest.raises(ValueError, match=r"engine = 'span', but .* no common start"):
        afga_jax.Trainer(algorithm, Execution("span"))
