"""Every algorithm and its variants, and what the papers' boxes say of them."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

import afga_jax
import toy
from afga_jax.testing import (
    BoxStart,
    boxes,
    draws_of,
    parts,
    relatives,
    serverless,
)

CLIENTS, STEPS, ROUNDS = 9, 4, 4
SIZES = [2, 5, 3, 7, 4, 6, 2, 5, 3]

close = partial(np.testing.assert_allclose, rtol=0, atol=1e-10)

TRIPLES = [0, 1, 2, 0, 1, 2, 0, 1, 2]  # three clusters of three
UNEQUAL = [0, 1, 0, 2, 1, 0, 1, 0, 0]  # of five, three and one
ADAPTIVE = {"local_lr": 0.5, "server_lr": 0.1}
OWN_STEPS = [4, 1, 2, 3, 4, 2, 1, 3, 4]  # τᵢ


class Case(NamedTuple):
    """An algorithm of the package, the reference for it, and what both are told.

    Attributes:
      algorithm: Its name.
      expected: A generator of the reference.
      numbers: Given to both.
      options: Given to the package only.
      labels: The cluster of each client; None: one cluster.
      norm: With normalisation statistics.
    """

    algorithm: str
    expected: Any
    numbers: dict
    options: Mapping = MappingProxyType({})
    labels: list[int] | None = None
    norm: bool = False


# Doubly stochastic, not symmetric: W and Wᵀ differ.
SKEWED = 0.5 * np.eye(9) + 0.3 * np.eye(9)[[*range(1, 9), 0]] + 0.2 / 9

CASES = {
    "afga": Case("afga", boxes.afga, ADAPTIVE, {"active": 3}),
    "afga other numbers": Case(
        "afga",
        partial(
            boxes.afga,
            server=partial(parts.fedamsgrad, b1=0.5, b2=0.7, eps=1e-4),
            topology=lambda n: SKEWED,
            by_size=True,
        ),
        ADAPTIVE,
        {
            "active": 4,
            "b1": 0.5,
            "b2": 0.7,
            "eps": 1e-4,
            "topology": SKEWED,
            "weighting": "size",
        },
    ),
    "afga without re-sampling": Case(
        "afga", boxes.afga, ADAPTIVE, {"active": 3, "resample": False}
    ),
    "afga schedules": Case(
        "afga",
        boxes.afga,
        {
            "local_lr": lambda round: 0.5 * 0.9**round,
            "server_lr": lambda round: 0.1 / (1 + round),
        },
        {"active": 3},
    ),
    "afga momentum": Case(
        "afga",
        partial(boxes.afga, local=parts.momentum),
        ADAPTIVE,
        {"active": 5, "local_optimizer": "momentum"},
    ),
    "afga adam": Case(
        "afga",
        partial(boxes.afga, local=parts.adam),
        {"local_lr": 0.05, "server_lr": 0.1},
        {"active": 5, "local_optimizer": "adam"},
    ),
    "afga norm": Case("afga", boxes.afga, ADAPTIVE, {"active": 3}, norm=True),
    "cafga": Case("cafga", boxes.afga, ADAPTIVE, {"active": 6}, TRIPLES, True),
    "cafga unequal": Case(
        "cafga", boxes.afga, ADAPTIVE, {"participation": 0.6}, UNEQUAL
    ),
    "cafga unequal by size": Case(
        "cafga",
        partial(boxes.afga, by_size=True, by_members=True),
        ADAPTIVE,
        {"participation": 0.6, "weighting": "size", "cluster_weighting": "size"},
        UNEQUAL,
        True,
    ),
    "afga(a) per step": Case(
        "afga_adapted",
        partial(boxes.afga, adapted="per_step"),
        ADAPTIVE,
        {"active": 5},
        norm=True,
    ),
    "afga(a) per round": Case(
        "afga_adapted",
        partial(boxes.afga, adapted="per_round"),
        ADAPTIVE,
        {"active": 5, "adapted": "per_round"},
    ),
    "cafga(a) per step": Case(
        "cafga_adapted",
        partial(boxes.afga, adapted="per_step"),
        ADAPTIVE,
        {"active": 6},
        TRIPLES,
    ),
    "cafga(a) per step unequal": Case(
        "cafga_adapted",
        partial(boxes.afga, adapted="per_step"),
        ADAPTIVE,
        {"participation": 0.6},
        UNEQUAL,
    ),
    "cafga(a) per round": Case(
        "cafga_adapted",
        partial(boxes.afga, adapted="per_round"),
        ADAPTIVE,
        {"active": 6, "adapted": "per_round"},
        TRIPLES,
    ),
    "cafga(a) per round unequal": Case(
        "cafga_adapted",
        partial(boxes.afga, adapted="per_round"),
        ADAPTIVE,
        {"participation": 0.6, "adapted": "per_round"},
        UNEQUAL,
    ),
    "hafed full": Case("hafed", partial(boxes.hafed, full=True), ADAPTIVE, {}, TRIPLES),
    "hafed full unequal": Case(
        "hafed", partial(boxes.hafed, full=True), ADAPTIVE, {}, UNEQUAL
    ),
    "hafed partial": Case(
        "hafed_partial", boxes.hafed, ADAPTIVE, {"active": 3}, TRIPLES, True
    ),
    "hafed partial unequal": Case(
        "hafed_partial", boxes.hafed, ADAPTIVE, {"participation": 0.6}, UNEQUAL
    ),
    "hafed partial-active": Case(
        "hafed_active",
        partial(boxes.hafed, active=True),
        {**ADAPTIVE, "mix_every": 2},
        {"active": 3, "active_prob": 0.6},
        TRIPLES,
    ),
    "hafed partial-active unequal": Case(
        "hafed_active",
        partial(boxes.hafed, active=True),
        {**ADAPTIVE, "mix_every": 3},
        {"participation": 0.6, "active_prob": 0.4},
        UNEQUAL,
        True,
    ),
    "fedcluster": Case(
        "fedcluster", boxes.fedcluster, {"local_lr": 0.3}, {"active": 6}, TRIPLES
    ),
    "fedcluster fixed order": Case(
        "fedcluster",
        boxes.fedcluster,
        {"local_lr": 0.3, "shuffle": False},
        {"active": 6},
        TRIPLES,
        True,
    ),
    "fedcluster unequal": Case(
        "fedcluster",
        boxes.fedcluster,
        {"local_lr": 0.3},
        {"participation": 0.6},
        UNEQUAL,
    ),
    "fedcluster of fedprox": Case(
        "fedcluster",
        partial(boxes.fedcluster, local=parts.momentum, by_size=False),
        {"local_lr": 0.3, "mu": 0.4},
        {
            "active": 6,
            "inner": "fedprox",
            "local_optimizer": "momentum",
            "weighting": "uniform",
        },
        TRIPLES,
    ),
    "fedcluster of fedamsgrad": Case(
        "fedcluster",
        partial(boxes.fedcluster, server=parts.fedamsgrad),
        ADAPTIVE,
        {"active": 6, "inner": "fedamsgrad"},
        TRIPLES,
    ),
    "fedcluster of afga": Case(
        "fedcluster",
        partial(boxes.afga, by_size=True),
        ADAPTIVE,
        {"active": 6, "inner": "afga"},
        TRIPLES,
        True,
    ),
    "fedavg": Case("fedavg", boxes.fedopt, {"local_lr": 0.3}, {"active": 4}, norm=True),
    "fedavg by size": Case(
        "fedavg",
        partial(boxes.fedopt, by_size=True),
        {"local_lr": 0.3, "server_lr": 0.7},
        {"active": 4, "weighting": "size"},
        norm=True,
    ),
    "fedavg momentum": Case(
        "fedavg",
        partial(boxes.fedopt, local=parts.momentum),
        {"local_lr": 0.3},
        {"active": 4, "local_optimizer": "momentum"},
    ),
    "fedavg adam": Case(
        "fedavg",
        partial(boxes.fedopt, local=parts.adam),
        {"local_lr": 0.05},
        {"active": 4, "local_optimizer": "adam"},
    ),
    "fedavgm": Case(
        "fedavgm",
        partial(boxes.fedopt, server=partial(parts.heavy_ball, b1=0.8)),
        {"local_lr": 0.3, "server_lr": 0.7},
        {"active": 4, "b1": 0.8},
        norm=True,
    ),
    "fednova": Case(
        "fednova",
        relatives.fednova,
        {"local_lr": 0.3, "server_lr": 0.7, "client_steps": OWN_STEPS},
        {"participation": 0.6},
        norm=True,
    ),
    "fednova unequal": Case(
        "fednova",
        relatives.fednova,
        {"local_lr": 0.3, "server_lr": 0.7, "client_steps": OWN_STEPS},
        {"participation": 0.6},
        UNEQUAL,
        norm=True,
    ),
    "fednova momentum": Case(
        "fednova",
        partial(relatives.fednova, decay=0.6),
        {"local_lr": 0.3, "client_steps": OWN_STEPS},
        {"active": 5, "local_optimizer": "momentum", "momentum": 0.6},
    ),
    "slowmo": Case(
        "slowmo",
        relatives.slowmo,
        {"local_lr": lambda round: 0.1 * 0.7**round, "server_lr": 0.8},
        norm=True,
    ),
    "diloco": Case(
        "diloco", relatives.diloco, {"local_lr": 0.05, "weight_decay": 0.2}, norm=True
    ),
    "tthf": Case(
        "tthf", relatives.tthf, {"local_lr": 0.3, "mix_every": 2}, labels=TRIPLES
    ),
    "tthf unequal": Case(
        "tthf",
        relatives.tthf,
        {"local_lr": 0.3, "mix_times": 2},
        labels=UNEQUAL,
        norm=True,
    ),
    "tthf to the sampled": Case(
        "tthf",
        relatives.semi_decentralised,
        {"local_lr": 0.3, "mix_times": 2, "broadcast": "sampled"},
        labels=TRIPLES,
        norm=True,
    ),
    "afga to the sampled": Case(
        "afga",
        partial(relatives.semi_decentralised, server=parts.fedamsgrad),
        {**ADAPTIVE, "broadcast": "sampled"},
        {"active": 3},
    ),
    "cafga to clusters": Case(
        "cafga",
        partial(relatives.semi_decentralised, server=parts.fedamsgrad),
        {**ADAPTIVE, "broadcast": "clusters"},
        {"participation": 0.6},
        UNEQUAL,
    ),
    "fedavg to the sampled": Case(
        "fedavg",
        partial(relatives.semi_decentralised, topology=np.eye),
        {"local_lr": 0.3, "broadcast": "sampled"},
        {"active": 4},
        norm=True,
    ),
    "fedcluster to clusters": Case(
        "fedcluster",
        partial(relatives.semi_decentralised, topology=np.eye),
        {"local_lr": 0.3, "broadcast": "clusters"},
        {"active": 6, "weighting": "uniform"},
        TRIPLES,
        True,
    ),
    "fedcluster of afga to the sampled": Case(
        "fedcluster",
        partial(relatives.semi_decentralised, server=parts.fedamsgrad),
        {**ADAPTIVE, "broadcast": "sampled"},
        {"active": 6, "inner": "afga", "weighting": "uniform"},
        TRIPLES,
    ),
    "fedamsgrad": Case(
        "fedamsgrad",
        partial(boxes.fedopt, server=parts.fedamsgrad),
        ADAPTIVE,
        {"active": 4},
        norm=True,
    ),
    "fedams": Case(
        "fedams",
        partial(boxes.fedopt, server=partial(parts.fedams, eps=1e-3)),
        ADAPTIVE,
        {"active": 4, "eps": 1e-3},
    ),
    "fedadam": Case(
        "fedadam",
        partial(boxes.fedopt, server=partial(parts.fedadam, eps=1e-3)),
        ADAPTIVE,
        {"active": 4, "eps": 1e-3},
    ),
    "fedyogi": Case(
        "fedyogi",
        partial(boxes.fedopt, server=partial(parts.fedyogi, eps=0.3)),
        ADAPTIVE,
        {"active": 4, "eps": 0.3},  # so large that v both rises and falls
    ),
    "fedadagrad": Case(
        "fedadagrad",
        partial(boxes.fedopt, server=partial(parts.fedadagrad, eps=1e-3)),
        ADAPTIVE,
        {"active": 4, "eps": 1e-3},
    ),
    "fedprox": Case(
        "fedprox", boxes.fedopt, {"local_lr": 0.3, "mu": 0.4}, {"active": 4}
    ),
    "scaffold": Case(
        "scaffold",
        boxes.scaffold,
        {"local_lr": 0.3, "server_lr": 0.8},
        {"active": 4},
    ),
    "feddyn": Case(
        "feddyn",
        boxes.feddyn,
        {"local_lr": 0.3, "feddyn_alpha": 0.2},
        {"active": 4},
    ),
    "dsgd": Case("dsgd", serverless.dsgd, {"local_lr": 0.3}, norm=True),
    "dsgd mixing before": Case(
        "dsgd",
        serverless.dsgd,
        {"local_lr": 0.3, "mixing_order": "before"},
        norm=True,
    ),
    "pga": Case("pga", serverless.dsgd, {"local_lr": 0.3, "pga_period": 3}),
    "pga unequal": Case(
        "pga",
        serverless.dsgd,
        {"local_lr": 0.3, "pga_period": 3},
        labels=UNEQUAL,
        norm=True,
    ),
    "dfedavgm": Case(
        "dfedavgm", serverless.dfedavgm, {"local_lr": 0.1, "momentum": 0.8}, norm=True
    ),
    "dfedavgm unequal": Case(
        "dfedavgm", serverless.dfedavgm, {"local_lr": 0.1}, labels=UNEQUAL
    ),
    "epidemic": Case("epidemic", serverless.epidemic, {"local_lr": 0.3}, norm=True),
    "epidemic unequal": Case(
        "epidemic",
        serverless.epidemic,
        {"local_lr": 0.3},
        {"peers": 3},
        UNEQUAL,
        norm=True,
    ),
    "dadam": Case("dadam", serverless.dadam, {"local_lr": 0.02, "eps": 1e-6}),
    "dadam b3": Case(
        "dadam", serverless.dadam, {"local_lr": 0.02, "eps": 1e-6, "b3": 0.6}
    ),
    "damsgrad": Case("damsgrad", serverless.damsgrad, {"local_lr": 0.02, "eps": 1e-2}),
}


def check(case: Case) -> None:
    """Asserts that every round of an algorithm is the box's, in double precision."""
    start, rounds = run(case)
    for state, info, expected in rounds:
        params, stats = toy.flat(state)
        close(params, expected.params)
        close(stats, expected.stats)
        needed = expected.losses if expected.needed is None else expected.needed
        close(info.loss, np.mean(needed))
        assert info.needed == len(needed)
        assert info.gradients == len(expected.losses)
        assert info.uploads == expected.uploads
    assert np.abs(params - start).max() > 0.01


def run(case: Case):
    """The start, and each round's state and info beside what the reference says."""
    labels = case.labels or [0] * CLIENTS
    algorithm = afga_jax.build(
        case.algorithm,
        toy.logistic(norm=case.norm),
        num_clients=CLIENTS,
        local_steps=STEPS,
        clustering=labels,
        **case.numbers,
        **case.options,
    )
    data, key = toy.clients(CLIENTS, sizes=SIZES), jax.random.key(3)

    @jax.jit
    def advance(state):
        plan = algorithm.plan(key, state.round)
        return plan, *algorithm.round(key, state, data, plan)

    state = algorithm.init(key)
    clusters = [
        np.flatnonzero(np.equal(labels, k)).tolist() for k in sorted(set(labels))
    ]
    problem = BoxStart(*toy.flat(state), np.array(SIZES), clusters)
    drawn = algorithm.recipe.mixing if case.algorithm == "epidemic" else None
    plans, states, infos = [], [], []
    for _ in range(ROUNDS):
        plan, state, info = advance(state)
        plans.append(draws_of(plan, data, key, drawn))
        states.append(state)
        infos.append(info)
    expected = case.expected(problem, plans, **case.numbers)
    return problem.params, zip(states, infos, expected, strict=True)
