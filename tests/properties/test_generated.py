"""What holds for any options: one family of generated cases, in double precision."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from generated import SEEDS, assert_every_value, generated, saying

import afga_jax
import both_engines
import toy
from afga_jax.gossip import topology
from afga_jax.rounds.cycle import Cycle
from afga_jax.rounds.server_step import upload_weights
from afga_jax.testing import draws_of
from cases import marked

pytestmark = [
    pytest.mark.usefixtures("x64"),
    # One selected client has nobody to mix with, which is a case like any other.
    pytest.mark.filterwarnings("ignore:one client is selected per cluster"),
]


@pytest.mark.parametrize("seed", marked(SEEDS, SEEDS[:2]))
def test_both_engines_are_the_plain_round(seed):
    case = generated(seed)
    with saying(case):
        both_engines.compare(case.build(), case.data, case.key, **case.numbers)


@pytest.mark.parametrize("seed", marked(SEEDS, SEEDS[:2]))
def test_mixing_keeps_the_mean_and_weights_sum_to_one(seed):
    case = generated(seed)
    algorithm, data = case.build(), case.data
    plan = jax.jit(algorithm.plan)(case.key, 1)
    rng = np.random.default_rng(seed)
    tree = {"w": rng.normal(size=(len(case.labels), 3, 2)), "b": case.labels * 1.0}
    with saying(case):
        for number, draws in enumerate(draws_of(plan, data, case.key)):
            cycle = Cycle(
                recipe=algorithm.recipe,
                recipe_at=algorithm.recipe_at,
                task=toy.logistic(),
                key=case.key,
                state=None,
                data=data,
                plan=plan,
                number=number,
                execution=afga_jax.Execution(),
            )
            weights = upload_weights(cycle)
            np.testing.assert_allclose(weights.sum(), 1, rtol=0, atol=1e-14)
            for step in range(draws.steps):
                mixed = afga_jax.gossip(case.matrix_at(draws, step), tree)
                means = (jax.tree.map(lambda x: x.mean(0), x) for x in (tree, mixed))
                chex.assert_trees_all_close(*means, rtol=0, atol=1e-14)


# Whose graphs may be written as matrices, one for each cluster.
RELABELLED = (1, 11, 2, 31, 47, 25, 17)


def test_every_value_is_drawn():
    assert_every_value(SEEDS)
    assert_every_value(RELABELLED, lambda case: "adapted" not in case.options)


@pytest.mark.parametrize("seed", marked(RELABELLED, RELABELLED[:1]))
def test_relabelling_clients_changes_nothing(seed):
    case = generated(seed)
    if case.options["topology"] != "none":
        graph = getattr(topology, case.options["topology"])
        case.options["topology"] = [graph(n) for n in np.bincount(case.labels)]
    case.options["full_batch"] = True  # whose batches no key draws
    to = np.random.default_rng(seed).permutation(len(case.labels))
    with saying(case):
        assert_same_relabelled(case.build(), case.build(**relabelled(case, to)), to)


@pytest.mark.parametrize("name", marked(["dsgd", "damsgrad"], ["damsgrad"]))
def test_relabelling_clients_changes_nothing_without_a_server(name):
    to, graph = np.random.default_rng(0).permutation(10), topology.random(10, seed=3)
    moved = np.zeros_like(graph)
    moved[np.ix_(to, to)] = graph
    options = {"num_clients": 10, "local_steps": 4, "full_batch": True}
    algorithms = (
        afga_jax.build(name, toy.logistic(), topology=matrix, **options)
        for matrix in (graph, moved)
    )
    assert_same_relabelled(*algorithms, to)


def relabelled(case, to):
    """A case's options after client i became client to[i]."""
    options = {"clustering": scattered(case.labels, to).tolist()}
    if "client_steps" in case.options:
        steps = np.asarray(case.options["client_steps"])
        options["client_steps"] = scattered(steps, to).tolist()
    if case.options["topology"] != "none":
        options["topology"] = []
        for cluster, matrix in enumerate(case.options["topology"]):
            # A cluster's clients are in the order of their ids.
            ids = to[np.flatnonzero(case.labels == cluster)]
            order = np.argsort(ids)
            options["topology"].append(matrix[np.ix_(order, order)])
    return options


def assert_same_relabelled(first, second, to):
    """Two rounds with the same clients, sampled under their old and new names."""
    num_clients, key = len(to), jax.random.key(7)
    data = toy.clients(num_clients, sizes=np.arange(num_clients) % 4 + 2)
    moved = jax.tree.map(lambda x: scattered(x, to), data)
    names = jnp.append(jnp.asarray(to), num_clients)  # padding stays padding
    state, other = first.init(key), second.init(key)
    step, other_step = jax.jit(first.round), jax.jit(second.round)
    for number in range(2):
        plan = first.plan(key, number)
        cycles = plan.cycles._replace(
            **{
                name: None if ids is None else names[ids]
                for name in ("active", "upload", "members")
                for ids in [getattr(plan.cycles, name)]
            }
        )
        state, info = step(key, state, data, plan)
        plan = plan._replace(cycles=cycles)
        other, other_info = other_step(key, other, moved, plan)
        found, expected = (other.params, other_info), (state.params, info)
        chex.assert_trees_all_close(found, expected, rtol=0, atol=1e-10)


def scattered(rows, to):
    """Row i becomes row to[i]."""
    return jnp.zeros_like(rows).at[to].set(rows)
