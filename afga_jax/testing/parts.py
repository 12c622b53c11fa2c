"""Plain NumPy parts of the reference: model, local steps, server steps, matrices.

Nothing here knows the package. Models are flat vectors, as in the papers.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Draws(NamedTuple):
    """What chance decides between one server model and the next.

    Attributes:
      cluster: Whose turn it is, for FedCluster.
      active: Who computes at each local step, a set of client ids per step.
      upload: Who uploads, a set of client ids.
      inputs: `[steps, clients, samples, features]`.
      targets: `[steps, clients, samples]`.
    """

    cluster: int
    active: list[set[int]]
    upload: set[int]
    inputs: np.ndarray
    targets: np.ndarray

    @property
    def steps(self) -> int:
        return len(self.active)

    def batch(self, step: int, client: int) -> tuple[np.ndarray, np.ndarray]:
        return self.inputs[step, client], self.targets[step, client]


class Problem(NamedTuple):
    """The start of a run and who is there.

    Attributes:
      params: x₁, weights and bias, flat.
      stats: The running mean of the inputs; empty without normalisation.
      sizes: Samples of each client.
      clusters: The sorted ids of each cluster's clients.
    """

    params: np.ndarray
    stats: np.ndarray
    sizes: np.ndarray
    clusters: list[list[int]]

    @property
    def num_clients(self) -> int:
        return len(self.sizes)


class Result(NamedTuple):
    """The server's model after a round, and what happened in it."""

    params: np.ndarray
    stats: np.ndarray
    losses: list[float]
    uploads: int
    needed: list[float] | None = None  # Losses of gradients that reach an upload.


class Origins:
    """Which gradients, by number, have had a part in each client's model."""

    def __init__(self, clients):
        self.of = {i: frozenset() for i in clients}

    def add(self, client: int, number: int) -> None:
        self.of[client] |= {number}

    def mix(self, clients, matrix: np.ndarray) -> None:
        """`matrix` has a row for each of `clients`, in that order."""
        self.of |= {
            i: frozenset().union(
                *(self.of[j] for j, w in zip(clients, row, strict=True) if w)
            )
            for i, row in zip(clients, matrix, strict=True)
        }

    def among(self, losses: list[float], clients) -> list[float]:
        """Losses of the gradients that had a part in any of these clients' models."""
        return [
            losses[k] for k in sorted(frozenset().union(*map(self.of.get, clients)))
        ]


def learn(params: np.ndarray, stats: np.ndarray, batch: tuple):
    """Loss, its gradient, and the new statistics of softmax regression on a batch."""
    inputs, targets = batch
    if stats.size:
        seen = inputs.mean(0)
        inputs = inputs - seen
        stats = 0.9 * stats + 0.1 * seen
    samples, features = inputs.shape
    inputs = np.hstack([inputs, np.ones((samples, 1))])
    logits = inputs @ params.reshape(features + 1, -1)
    odds = np.exp(logits - logits.max(1, keepdims=True))
    chances = odds / odds.sum(1, keepdims=True)
    loss = -np.log(chances[np.arange(samples), targets]).mean()
    wanted = np.eye(logits.shape[1])[targets]
    gradient = inputs.T @ (chances - wanted) / samples
    return loss, gradient.ravel(), stats


# Local steps: a function from a rate to a function from gradients to increments, with a
# state of its own. One is made for each client at the start of each round.


def sgd(rate: float) -> Callable:
    return lambda gradient: -rate * gradient


def momentum(rate: float, decay: float = 0.5) -> Callable:
    trace = 0.0

    def step(gradient):
        nonlocal trace
        trace = decay * trace + gradient
        return -rate * trace

    return step


def adam(rate: float, b1=0.9, b2=0.999, eps=1e-8) -> Callable:
    count, m, v = 0, 0.0, 0.0

    def step(gradient):
        nonlocal count, m, v
        count += 1
        m = b1 * m + (1 - b1) * gradient
        v = b2 * v + (1 - b2) * gradient**2
        return -rate * (m / (1 - b1**count)) / (np.sqrt(v / (1 - b2**count)) + eps)

    return step


# Server steps: from Δ_r to the direction that η multiplies, with a state of their own.


def average() -> Callable:
    return lambda delta: delta


def fedamsgrad(b1=0.9, b2=0.99, eps=1e-8) -> Callable:
    """AFGA Alg. 1, lines 1 and 19-22: m/√(v̂+ε), m₀ = v₀ = v̂₀ = 0."""
    m = v = largest = 0.0

    def step(delta):
        nonlocal m, v, largest
        m = b1 * m + (1 - b1) * delta
        v = b2 * v + (1 - b2) * delta**2
        largest = np.maximum(largest, v)
        return m / np.sqrt(largest + eps)

    return step


def fedams(b1=0.9, b2=0.99, eps=1e-8) -> Callable:
    """Wang et al. 2022: v̂ = max(v̂, v, ε), m/√v̂."""
    m = v = largest = 0.0

    def step(delta):
        nonlocal m, v, largest
        m = b1 * m + (1 - b1) * delta
        v = b2 * v + (1 - b2) * delta**2
        largest = np.maximum(np.maximum(largest, v), eps)
        return m / np.sqrt(largest)

    return step


def fedadam(b1=0.9, b2=0.99, eps=1e-8) -> Callable:
    return _reddi(lambda v, d: b2 * v + (1 - b2) * d**2, b1, eps)


def fedyogi(b1=0.9, b2=0.99, eps=1e-8) -> Callable:
    return _reddi(lambda v, d: v - (1 - b2) * d**2 * np.sign(v - d**2), b1, eps)


def fedadagrad(b1=0.0, eps=1e-8) -> Callable:
    return _reddi(lambda v, d: v + d**2, b1, eps)


def ring(clients: int) -> np.ndarray:
    """1/3 for a client and each neighbour; of two, halves (SPEC §3: our choice)."""
    if clients <= 2:
        return np.full((clients, clients), 1 / clients)
    matrix = np.zeros((clients, clients))
    for i in range(clients):
        for j in (i - 1, i, i + 1):
            matrix[i, j % clients] += 1 / 3
    return matrix


def within(num_clients: int, groups: list[list[int]], make=ring) -> np.ndarray:
    """W on all clients: `make` inside each group, everybody else keeps its model."""
    matrix = np.eye(num_clients)
    for group in groups:
        if group:
            matrix[np.ix_(group, group)] = make(len(group))
    return matrix


def upload_weights(problem: Problem, upload: set[int], by_size=False, by_members=False):
    """The weight of each client in Δ_r: means in the clusters, then over clusters.

    AFGA Alg. 2, line 20: Δ_r = 1/K Σ_k 1/|S_r^k| Σ_i Δ_r^i; with the flags, a client
    counts by its samples and a cluster by its clients.
    """
    weights = np.zeros(problem.num_clients)
    uploading = [k for k in problem.clusters if upload & set(k)]
    total = sum(len(k) if by_members else 1 for k in uploading)
    for cluster in uploading:
        chosen = [i for i in cluster if i in upload]
        samples = [problem.sizes[i] if by_size else 1 for i in chosen]
        share = (len(cluster) if by_members else 1) / total
        for i, count in zip(chosen, samples, strict=True):
            weights[i] = share * count / sum(samples)
    return weights


def _reddi(second_moment: Callable, b1: float, tau: float) -> Callable:
    """Reddi et al. 2020, Alg. 2: m/(√v+τ) with v₀ = τ², no correction of the bias."""
    m, v = 0.0, tau**2

    def step(delta):
        nonlocal m, v
        m = b1 * m + (1 - b1) * delta
        v = second_moment(v, delta)
        return m / (np.sqrt(v) + tau)

    return step
