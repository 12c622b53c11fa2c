"""Test vectors: small runs with all that went in and what has to come out.

A file `NAME.npz` holds a few server updates of one algorithm: the start, who computes
and who uploads, every client's batches, where each gradient is taken and what it is,
and the expected model after each update. It is made by the papers' boxes in NumPy
(`afga_jax.testing.boxes`) in double precision, without any of the package's engines,
and needs nothing but NumPy to read:

>>> from afga_jax.testing import vectors
>>> afga = vectors.load("afga")
>>> afga["expected"].shape  # updates, parameters
(4, 6)
>>> [int(i) for i in afga["active"][0, 0].nonzero()[0]]  # S_{r,t} of the first step
[0, 2, 3, 7, 8]

docs/test-vectors.md says what each array is. `python -m afga_jax.testing.vectors OUT`
writes all files.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from afga_jax.testing import boxes, parts, serverless
from afga_jax.testing.parts import BoxStart, Draws

UPDATES, STEPS, CLIENTS = 4, 3, 9
SAMPLES, FEATURES, CLASSES = 2, 2, 2
SIZES = np.array([2, 5, 3, 7, 4, 6, 2, 5, 3], np.int64)
TOGETHER = np.zeros(CLIENTS, np.int64)
# Of five and of four clients, so that a mean of means is no mean of all.
CLUSTERED = np.arange(CLIENTS, dtype=np.int64) % 2
PARTICIPATION = 0.6  # of each cluster, rounded


def load(name: str) -> dict[str, np.ndarray]:
    """A test vector: its arrays by name.

    Args:
      name: One of `NAMES`.
    """
    if name not in CASES:
        raise ValueError(f"name = {name!r}, but it must be one of {', '.join(NAMES)}.")
    with np.load(Path(__file__).parent / f"{name}.npz") as file:
        return dict(file)


def write(folder: str | Path) -> list[Path]:
    """Makes all test vectors anew, and writes `NAME.npz` for each.

    Args:
      folder: Folder of the files; it is made if it is not there.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.npz" for name in NAMES]
    for name, path in zip(NAMES, paths, strict=True):
        arrays: dict[str, Any] = {**make(name)}
        np.savez_compressed(path, **arrays)
    return paths


def make(name: str) -> dict[str, np.ndarray]:
    """The arrays of a test vector, computed by its box.

    Args:
      name: One of `NAMES`.
    """
    case = CASES[name]
    # The one generator whose numbers NumPy promises never to change.
    random = np.random.RandomState(0)
    # Halves and quarters are exact in every precision, and files stay small.
    start = random.randint(-4, 5, size=(FEATURES + 1) * CLASSES) / 4
    shape = (UPDATES, STEPS, CLIENTS, SAMPLES)
    inputs = random.randint(-8, 9, size=(*shape, FEATURES)) / 4
    targets = random.randint(CLASSES, size=shape).astype(np.int64)
    clusters = [np.flatnonzero(case.labels == k).tolist() for k in set(case.labels)]
    problem = BoxStart(start, np.zeros(0), SIZES, clusters)
    plans = case.draw(random, clusters)
    rounds = [
        _Recorded(*plan, inputs[r], targets[r])
        for r, plan in zip(range(UPDATES), plans, strict=False)
    ]
    results = case.box(problem, [[draws] for draws in rounds], **case.numbers)
    expected = np.array([result.params for result in results])
    return {
        "start": start,
        "expected": expected,
        "inputs": inputs,
        "targets": targets,
        "clusters": case.labels,
        "sizes": SIZES,
        "active": np.array([[_mask(ids) for ids in draws.active] for draws in rounds]),
        "upload": np.array([_mask(draws.upload) for draws in rounds]),
        "weights": np.array(
            [parts.upload_weights(problem, x.upload, case.by_size) for x in rounds]
        ),
        "mixing": np.array(
            [[case.matrix(problem, draws, t) for t in range(STEPS)] for draws in rounds]
        ),
        "points": np.array([draws.points for draws in rounds]),
        "gradients": np.array([draws.gradients for draws in rounds]),
        **{name: np.asarray(x) for name, x in {**case.numbers, **case.moments}.items()},
    }


class _Recorded(Draws):
    """Draws that keep where gradients are taken, NaN or 0 where nobody takes draws."""

    def __init__(self, *_: Any):
        shape = (STEPS, CLIENTS, (FEATURES + 1) * CLASSES)
        self.points, self.gradients = np.full(shape, np.nan), np.zeros(shape)

    def gradient(self, step, client, params, stats):
        loss, gradient, stats = super().gradient(step, client, params, stats)
        self.points[step, client], self.gradients[step, client] = params, gradient
        return loss, gradient, stats


def _mask(ids: set[int]) -> np.ndarray:
    return np.isin(np.arange(CLIENTS), list(ids))


# Who computes and who uploads, update after update: the cluster whose turn it is, the
# clients of each step, and those that upload.

Plans = Iterator[tuple[int, list[set[int]], set[int]]]


def _resampled(random, clusters) -> Plans:
    while True:
        active = [_sample(random, clusters) for _ in range(STEPS)]
        yield 0, active, _sample(random, clusters)


def _fixed(random, clusters) -> Plans:
    while True:
        upload = _sample(random, clusters)
        yield 0, [upload] * STEPS, upload


def _everyone(random, clusters) -> Plans:
    while True:
        yield 0, [set(range(CLIENTS))] * STEPS, _sample(random, clusters)


def _all_upload(random, clusters) -> Plans:
    while True:
        yield 0, [set(range(CLIENTS))] * STEPS, set(range(CLIENTS))


def _half(random, clusters) -> Plans:
    while True:
        heads = random.randint(2, size=(STEPS, CLIENTS))
        active = [set(np.flatnonzero(row).tolist()) for row in heads]
        yield 0, active, _sample(random, clusters)


def _in_turns(random, clusters) -> Plans:
    while True:
        for cluster in random.permutation(len(clusters)):
            upload = _sample(random, [clusters[cluster]])
            yield int(cluster), [upload] * STEPS, upload


def _sample(random, clusters: list[list[int]]) -> set[int]:
    chosen = [
        random.choice(k, round(PARTICIPATION * len(k)), replace=False) for k in clusters
    ]
    return set(np.concatenate(chosen).tolist())


# W of all clients at a step.


def _no_mixing(problem: BoxStart, draws: Draws, step: int) -> np.ndarray:
    return np.eye(problem.num_clients)


def _every_second(problem: BoxStart, draws: Draws, step: int) -> np.ndarray:
    mixes = (step + 1) % 2 == 0
    return (boxes.mixing_matrix if mixes else _no_mixing)(problem, draws, step)


class Case(NamedTuple):
    """How a test vector is made.

    Attributes:
      box: The algorithm, from problem and rounds to results.
      numbers: Hyper-parameters that the box is given; they are in the file.
      draw: Who computes and who uploads.
      matrix: `(problem, draws, step) -> W`.
      labels: The cluster of each client.
      moments: Hyper-parameters of the server's optimizer; they are in the file, too.
      by_size: Deltas count by the clients' samples.
    """

    box: Callable
    numbers: dict[str, Any]
    draw: Callable
    matrix: Callable = _no_mixing
    labels: np.ndarray = TOGETHER
    moments: Mapping[str, float] = MappingProxyType({})
    by_size: bool = False


# Such that every line shows: the maximum binds, and ε is of the size of v̂.
MOMENTS = {"b1": 0.9, "b2": 0.6, "eps": 1e-3}
RATES = {"local_lr": 0.5, "server_lr": 0.1}
SERVER = partial(parts.fedamsgrad, **MOMENTS)


def _gossip(labels, adapted=None) -> Case:
    box = partial(boxes.afga, server=SERVER, adapted=adapted)
    matrix = partial(boxes.mixing_matrix, adapted=adapted)
    draw = _fixed if adapted == "per_round" else _resampled
    return Case(box, RATES, draw, matrix, labels, MOMENTS)


def _hafed(draw, **settings) -> Case:
    box = partial(boxes.hafed, server=SERVER, **settings)
    return Case(box, RATES, draw, boxes.mixing_matrix, CLUSTERED, MOMENTS)


CASES = {
    "afga": _gossip(TOGETHER),
    "cafga": _gossip(CLUSTERED),
    "afga_adapted_per_step": _gossip(TOGETHER, "per_step"),
    "afga_adapted_per_round": _gossip(TOGETHER, "per_round"),
    "cafga_adapted_per_step": _gossip(CLUSTERED, "per_step"),
    "cafga_adapted_per_round": _gossip(CLUSTERED, "per_round"),
    "hafed": _hafed(_all_upload, full=True),
    "hafed_partial": _hafed(_everyone),
    "hafed_active": _hafed(_half, active=True)._replace(
        numbers={**RATES, "mix_every": 2}, matrix=_every_second
    ),
    "fedcluster": Case(
        boxes.fedcluster, {"local_lr": 0.5}, _in_turns, labels=CLUSTERED, by_size=True
    ),
    "fedamsgrad": Case(
        partial(boxes.fedopt, server=SERVER), RATES, _fixed, moments=MOMENTS
    ),
    "scaffold": Case(boxes.scaffold, {"local_lr": 0.5, "server_lr": 0.8}, _fixed),
    "feddyn": Case(boxes.feddyn, {"local_lr": 0.5, "feddyn_alpha": 0.2}, _fixed),
    "damsgrad": Case(
        serverless.damsgrad,
        {"local_lr": 0.05, "b1": 0.9, "b2": 0.6, "eps": 1e-2},
        _all_upload,
        boxes.mixing_matrix,
    ),
}
NAMES = tuple(CASES)
