"""Both engines against one plain loop over the boxes, where structure is exploited.

`tests/algorithms/test_reference.py` has every algorithm of the papers; here are graphs,
orders and samplings for which an engine takes a short cut. The loop keeps everybody's
model, mixes by a matrix, and follows which gradients each model comes from.
"""

import itertools

import jax
import networkx
import numpy as np
import pytest

import afga_jax
import both_engines
import toy
from afga_jax.gossip import kernels, topology
from afga_jax.testing import parts
from cases import marked

KEY = jax.random.key(5)
RATES = {"local_lr": 0.5, "server_lr": 0.1}

pytestmark = pytest.mark.usefixtures("x64")


def shifts(n, *offsets):
    """A grid of one axis: row i takes rows i − offset with equal weights."""
    matrix = shifts_matrix(n, offsets)
    return kernels.Shifts((n,), tuple((o,) for o in offsets), lambda _: matrix)


def shifts_matrix(n, offsets):
    matrix = np.zeros((n, n))
    for i in range(n):
        for offset in offsets:
            matrix[i, (i - offset) % n] += 1 / len(offsets)
    return matrix


def compare(name, matrix_at, num_clients, *, local=parts.sgd, **options):
    """Runs both engines and the loop, and compares models and diagnostics.

    Args:
      name: Of an algorithm with a server.
      matrix_at: `(step, selected) -> W` on all clients, for the loop.
      num_clients: N.
      local: The local optimizer of the loop.
      **options: Of `build`.
    """
    algorithm = afga_jax.build(
        name, toy.logistic(), num_clients=num_clients, **RATES, **options
    )
    return both_engines.compare(
        algorithm,
        toy.clients(num_clients),
        KEY,
        matrix_at=lambda draws, step: matrix_at(step, draws.active[step]),
        local=local,
        mixing_order=options.get("mixing_order", "after"),
        **RATES,
    )


# Where the window that increments can cross is narrower than the grid, an offset past
# the half of it is a step backwards.
@pytest.mark.parametrize(
    ("num_clients", "steps", "offsets"),
    marked(
        [
            (13, 1, (0, 1, 2, 4, 8)),
            (50, 1, (0, 1, 2, 4, 8, 16, 32)),
            (20, 3, (0, 1, 19)),
            (20, 2, (0, 21, -22)),
        ],
        [(13, 1, (0, 1, 2, 4, 8))],
    ),
)
def test_far_offsets_wrap_around(num_clients, steps, offsets):
    graph = shifts(num_clients, *offsets) if len(offsets) == 3 else "exponential"
    matrix = shifts_matrix(num_clients, offsets)
    compare(
        "afga",
        lambda step, selected: matrix,
        num_clients,
        active=num_clients // 3,
        local_steps=steps,
        topology=graph,
    )


# A model that keeps nothing of its client's own: what reached the client is not in what
# it uploads, but for the state of its optimizer, or a step beside the mixing.
@pytest.mark.parametrize(
    ("local", "order"),
    marked(
        itertools.product(["sgd", "momentum"], ["after", "before"]),
        [("sgd", "after"), ("momentum", "before")],
    ),
)
def test_nobody_keeps_a_share_of_its_own_model(local, order):
    matrix = shifts_matrix(30, (-1, 2))
    compare(
        "afga",
        lambda step, selected: matrix,
        30,
        local=getattr(parts, local),
        local_optimizer=local,
        mixing_order=order,
        active=10,
        local_steps=4,
        topology=shifts(30, -1, 2),
    )


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param([0, 1] * 6, marks=pytest.mark.slow),
        [0] * 3 + [1] * 7 + [2] * 2,
    ],
)
def test_each_cluster_has_a_ring_of_its_selected(labels):
    clusters = [np.flatnonzero(np.equal(labels, k)) for k in set(labels)]

    def matrix_at(step, selected):
        if (step + 1) % 2:
            return np.eye(12)
        groups = [[i for i in k if i in selected] for k in clusters]
        return parts.within(12, groups)

    compare(
        "hafed_active",
        matrix_at,
        12,
        adapted="per_step",
        clustering=labels,
        participation=0.5,
        active_prob=0.6,
        mix_every=2,
        local_steps=6,
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("afga", {"active": 4, "local_optimizer": "momentum"}),
        ("hafed_active", {"num_clusters": 3, "active": 6, "mix_every": 1}),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("afga", {"active": 4}),
                ("hafed_partial", {"num_clusters": 3, "active": 6}),
                ("hafed", {"num_clusters": 3}),
            )
        ),
    ],
)
def test_without_mixing_only_who_uploads_computes(name, options):
    expected = compare(
        name,
        lambda step, selected: np.eye(12),
        12,
        local=getattr(parts, options.get("local_optimizer", "sgd")),
        topology="none",
        local_steps=4,
        **options,
    )
    planned = {"afga": 16, "hafed_active": 48, "hafed_partial": 48, "hafed": 48}[name]
    assert all((len(right.needed) < planned) == (name != "hafed") for right in expected)


# Parts of a number do not always add up to it again, so a mixed model that no gradient
# has reached is not the one that it was.
@pytest.mark.parametrize(
    ("clusters", "order"),
    marked(itertools.product([1, 2], ["after", "before"]), [(2, "after")]),
)
def test_an_upload_is_idle_where_no_gradient_has_reached(clusters, order):
    members = [list(range(k, 40, clusters)) for k in range(clusters)]
    size = 40 // clusters
    path = topology.from_graph(networkx.path_graph(size))
    path = 0.3 * np.eye(size) + 0.7 * path
    matrix = parts.within(40, members, lambda n: path)
    expected = compare(
        "cafga",
        lambda step, selected: matrix,
        40,
        clustering=(np.arange(40) % clusters).tolist(),
        topology=path,
        mixing_order=order,
        active=4,
        local_steps=2,
    )
    assert sum(right.idle for right in expected) > 0
