"""Parts of the papers' boxes: a model, local steps, server steps, mixing matrices.

Models are flat vectors, as in the papers.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Draws(NamedTuple):
    """What chance decides between one server model and the next.

    Attributes:
      cluster: The cluster that computes in this cycle; only FedCluster looks at it.
      active: Ids of the clients that compute, one set for each local step.
      upload: Ids of the clients that upload.
      inputs: Each client's batch at each step, `[steps, clients, samples, features]`.
      targets: The classes of these samples, `[steps, clients, samples]`.
      peers: To whom each client sends its model after each step, where that is drawn,
        `[steps][clients]`; () otherwise.
    """

    cluster: int
    active: list[set[int]]
    upload: set[int]
    inputs: np.ndarray
    targets: np.ndarray
    peers: Sequence[list[set[int]]] = ()

    @property
    def steps(self) -> int:
        """The number of local steps."""
        return len(self.active)

    def batch(self, step: int, client: int) -> tuple[np.ndarray, np.ndarray]:
        """A client's inputs and targets at a step."""
        return self.inputs[step, client], self.targets[step, client]

    def gradient(self, step: int, client: int, params: np.ndarray, stats: np.ndarray):
        """A client's loss and gradient at a step, and its new statistics.

        All boxes ask here, so a subclass brings another model, or other gradients.
        """
        return value_and_grad(params, stats, self.batch(step, client))

    def alone(self, client: int, x, s, step: Callable, losses: list, pull=0.0, shift=0):
        """A client's round without mixing: its model and statistics after all steps.

        Each step is along g + pull·(y − x) + shift, with y = x at the beginning.
        """
        y = x
        for t in range(self.steps):
            loss, g, s = self.gradient(t, client, y, s)
            y = y + step(g + pull * (y - x) + shift)
            losses.append(loss)
        return y, s


Rounds = list[list[Draws]]  # of each round, the draws of its cycles


class BoxStart(NamedTuple):
    """Where a run starts, and its population.

    Attributes:
      params: x₁: the weights `[features, classes]`, then the bias, as one vector.
      stats: The running mean of the inputs; empty without normalisation.
      sizes: The number of each client's samples.
      clusters: The sorted ids of each cluster's clients.
    """

    params: np.ndarray
    stats: np.ndarray
    sizes: np.ndarray
    clusters: list[list[int]]

    @property
    def num_clients(self) -> int:
        """N."""
        return len(self.sizes)

    def copies(self, *vectors: np.ndarray) -> list[np.ndarray]:
        """A row for each client of each vector, `[clients, d]`."""
        return [np.tile(vector, (self.num_clients, 1)) for vector in vectors]


class BoxResult(NamedTuple):
    """The server's model after a round, and what happened in it.

    Attributes:
      params: The model, as in `BoxStart`.
      stats: Statistics of the model, as in `BoxStart`.
      losses: The loss at each gradient that was computed.
      uploads: How many clients uploaded.
      needed: The losses of the gradients that reach an upload; None: of all.
      idle: How many uploads no gradient has reached; None: not counted.
    """

    params: np.ndarray
    stats: np.ndarray
    losses: list[float]
    uploads: int
    needed: list[float] | None = None
    idle: int | None = None


class Origins:
    """Which gradients, by number, have had a part in each client's model."""

    def __init__(self, clients):
        self.of = {i: frozenset() for i in clients}

    def add(self, client: int, number: int) -> None:
        """A client's model takes the gradient of this number."""
        self.of[client] |= {number}

    def join(self, gradients: dict[int, frozenset]) -> None:
        """Clients' models take the gradients of these numbers."""
        self.of |= {i: self.of[i] | numbers for i, numbers in gradients.items()}

    def mix(self, clients, matrix: np.ndarray) -> None:
        """Models are mixed; the matrix has a row for each of `clients`, in order."""
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


def value_and_grad(params: np.ndarray, stats: np.ndarray, batch: tuple):
    """Softmax regression's loss on a batch, its gradient, and the new statistics.

    With statistics, inputs are centred by the mean of the batch.
    """
    inputs, targets = batch
    if stats.size:
        mean = inputs.mean(0)
        inputs = inputs - mean
        stats = 0.9 * stats + 0.1 * mean
    samples, features = inputs.shape
    inputs = np.hstack([inputs, np.ones((samples, 1))])
    logits = inputs @ params.reshape(features + 1, -1)
    odds = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = odds / odds.sum(1, keepdims=True)
    loss = -np.log(probabilities[np.arange(samples), targets]).mean()
    one_hot = np.eye(logits.shape[1])[targets]
    gradient = inputs.T @ (probabilities - one_hot) / samples
    return loss, gradient.ravel(), stats


# Local optimizers: from a rate to a function from gradients to increments, with a state
# of its own. Each client gets a new one at the start of each round.


def sgd(rate: float) -> Callable:
    """−η_l g."""
    return lambda gradient: -rate * gradient


def momentum(rate: float, decay: float = 0.5) -> Callable:
    """M ← decay·m + g, step −η_l m."""
    trace = 0.0

    def step(gradient):
        nonlocal trace
        trace = decay * trace + gradient
        return -rate * trace

    return step


def nesterov(rate: float, decay: float = 0.9) -> Callable:
    """M ← decay·m + g, step −η_l (g + decay·m)."""
    own = momentum(rate, decay)
    return lambda gradient: -rate * gradient + decay * own(gradient)


def adamw(rate: float, weight_decay: float = 0.1) -> Callable:
    """AdamW (Loshchilov and Hutter 2019); its step is also given the parameters."""
    own = adam(rate)
    return lambda gradient, x: own(gradient) - rate * weight_decay * x


def adam(rate: float, b1=0.9, b2=0.999, eps=1e-8) -> Callable:
    """Adam (Kingma and Ba 2015), with the bias correction."""
    count, m, v = 0, 0.0, 0.0

    def step(gradient):
        nonlocal count, m, v
        count += 1
        m = b1 * m + (1 - b1) * gradient
        v = b2 * v + (1 - b2) * gradient**2
        return -rate * (m / (1 - b1**count)) / (np.sqrt(v / (1 - b2**count)) + eps)

    return step


# Server optimizers: from Δ_r to the increment that η multiplies, with their own state.


def average() -> Callable:
    """FedAvg: Δ_r itself."""
    return lambda delta: delta


def heavy_ball(b1=0.9) -> Callable:
    """Hsu et al. 2019, FedAvgM: v ← β v + Δ."""
    return momentum(-1.0, b1)


def fedamsgrad(b1=0.9, b2=0.99, eps=1e-8, *, eps_inside=True) -> Callable:
    """AFGA Alg. 1, lines 1 and 19-22: m/√(v̂+ε), m₀ = v₀ = v̂₀ = 0.

    With `eps_inside=False` m/(√v̂+ε), as HA-Fed's eq. 3.2 prints it.
    """
    m = v = largest = 0.0

    def step(delta):
        nonlocal m, v, largest
        m = b1 * m + (1 - b1) * delta
        v = b2 * v + (1 - b2) * delta**2
        largest = np.maximum(largest, v)
        if eps_inside:
            return m / np.sqrt(largest + eps)
        return m / (np.sqrt(largest) + eps)

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
    """Reddi et al. 2020: v ← β₂v + (1−β₂)Δ²."""
    return _reddi(lambda v, d: b2 * v + (1 - b2) * d**2, b1, eps)


def fedyogi(b1=0.9, b2=0.99, eps=1e-8) -> Callable:
    """Reddi et al. 2020: v ← v − (1−β₂)Δ² sign(v − Δ²)."""
    return _reddi(lambda v, d: v - (1 - b2) * d**2 * np.sign(v - d**2), b1, eps)


def fedadagrad(b1=0.0, eps=1e-8) -> Callable:
    """Reddi et al. 2020: v ← v + Δ²."""
    return _reddi(lambda v, d: v + d**2, b1, eps)


def ring(clients: int) -> np.ndarray:
    """1/3 for a client and each neighbour; 1/2 each for two, which is our choice."""
    if clients <= 2:
        return np.full((clients, clients), 1 / clients)
    matrix = np.zeros((clients, clients))
    for i in range(clients):
        for j in (i - 1, i, i + 1):
            matrix[i, j % clients] += 1 / 3
    return matrix


def within(num_clients: int, groups: list[list[int]], make=ring) -> np.ndarray:
    """W of all clients: `make(n)` inside each group, the others keep their models."""
    matrix = np.eye(num_clients)
    for group in groups:
        if group:
            matrix[np.ix_(group, group)] = make(len(group))
    return matrix


def upload_weights(
    problem: BoxStart, upload: set[int], by_size=False, by_members=False
):
    """The weight of each client in Δ_r: means in the clusters, then over clusters.

    AFGA Alg. 2, line 20: Δ_r = 1/K Σ_k 1/|S_r^k| Σ_i Δ_r^i; with the flags, a client
    counts by its samples and a cluster by its clients.
    """
    weights = np.zeros(problem.num_clients)
    uploading = [k for k in problem.clusters if upload & set(k)]
    total = sum(len(k) if by_members else 1 for k in uploading)
    for cluster in uploading:
        sampled = [i for i in cluster if i in upload]
        samples = [problem.sizes[i] if by_size else 1 for i in sampled]
        of_cluster = (len(cluster) if by_members else 1) / total
        for i, count in zip(sampled, samples, strict=True):
            weights[i] = of_cluster * count / sum(samples)
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
