"""Compressed uploads and gossip in plain NumPy, line by line.

Arguments that boxes share, beside those of `boxes`: `compress`, C from a vector to what
is sent of it; `step_size`, γ of CHOCO.
"""

from collections.abc import Callable, Iterator

import numpy as np

from afga_jax.testing.parts import (
    BoxResult,
    BoxStart,
    Rounds,
    fedams,
    fedamsgrad,
    ring,
    sgd,
    upload_weights,
    within,
)


def top_k(vector: np.ndarray, ratio: float) -> np.ndarray:
    """The largest numbers, so many of them as `ratio` of all."""
    largest = np.argsort(-np.abs(vector))[: max(1, round(ratio * len(vector)))]
    sent = np.zeros_like(vector)
    sent[largest] = vector[largest]
    return sent


def sign(vector: np.ndarray) -> np.ndarray:
    """‖x‖₁/d·sign(x)."""
    return np.abs(vector).mean() * np.where(vector < 0, -1, 1)


def fedcams(
    problem: BoxStart,
    rounds: Rounds,
    *,
    local_lr: float,
    server_lr: float,
    compress: Callable,
    server=fedams,
) -> Iterator[BoxResult]:
    """FedCAMS: FedAMS with compressed uploads and error feedback.

        Δ̂ᵢ = C(Δᵢ + eᵢ), eᵢ ← Δᵢ + eᵢ − Δ̂ᵢ for who uploads; the others keep eᵢ

    Wang, Lin and Chen, Communication-efficient adaptive federated learning, 2022.
    """
    x, s, server = problem.params, problem.stats, server()
    errors = np.zeros((problem.num_clients, len(x)))
    for (draws,) in rounds:
        losses: list[float] = []
        total, stats = 0.0, []
        for i in sorted(draws.upload):
            y, s_i = draws.alone(i, x, s, sgd(local_lr), losses)
            wanted = y - x + errors[i]
            sent = compress(wanted)
            errors[i] = wanted - sent
            total = total + sent
            stats.append(s_i)
        x = x + server_lr * server(total / len(draws.upload))
        s = np.mean(stats, 0)
        yield BoxResult(x, s, losses, len(draws.upload))


def choco_sgd(
    problem: BoxStart,
    rounds: Rounds,
    *,
    local_lr: float,
    compress: Callable,
    step_size: float,
    topology=ring,
) -> Iterator[BoxResult]:
    """CHOCO-SGD, without a server; the mean of the models is evaluated."""
    everybody = range(problem.num_clients)
    models, stats = problem.copies(problem.params, problem.stats)
    public = np.hstack([models, stats])
    for (draws,) in rounds:
        losses: list[float] = []
        for t in range(draws.steps):
            for i in everybody:
                loss, g, stats[i] = draws.gradient(t, i, models[i], stats[i])
                models[i] -= local_lr * g
                losses.append(loss)
            matrix = within(problem.num_clients, problem.clusters, topology)
            models, stats, public = choco(
                matrix, models, stats, public, compress, step_size
            )
        yield BoxResult(models.mean(0), stats.mean(0), losses, 0)


def choco_afga(
    problem: BoxStart,
    rounds: Rounds,
    *,
    local_lr: float,
    server_lr: float,
    compress: Callable,
    step_size: float,
    topology=ring,
    server=fedamsgrad,
) -> Iterator[BoxResult]:
    """AFGA and CAFGA with CHOCO in the place of gossip; x̂ᵢ = x_r in each round."""
    x, s, server = problem.params, problem.stats, server()
    for (draws,) in rounds:
        losses: list[float] = []
        models, stats = problem.copies(x, s)
        public = np.hstack([models, stats])
        for t, selected in enumerate(draws.active):
            for i in sorted(selected):
                loss, g, stats[i] = draws.gradient(t, i, models[i], stats[i])
                models[i] -= local_lr * g
                losses.append(loss)
            matrix = within(problem.num_clients, problem.clusters, topology)
            models, stats, public = choco(
                matrix, models, stats, public, compress, step_size
            )
        weights = upload_weights(problem, draws.upload)
        x = x + server_lr * server(weights @ (models - x))
        s = weights @ stats
        yield BoxResult(x, s, losses, len(draws.upload))


def choco(matrix, models, stats, public, compress, step_size):
    """One step of CHOCO-Gossip: qᵢ = C(xᵢ − x̂ᵢ), x̂ᵢ += qᵢ, xᵢ += γΣⱼ Wᵢⱼ(x̂ⱼ − x̂ᵢ).

    Koloskova, Stich and Jaggi, Decentralized stochastic optimization and gossip
    algorithms with compressed communication, 2019.

    Args:
      matrix: W, `[n, n]`.
      models: Parameters, `[n, d]`.
      stats: Statistics, `[n, s]`, which are sent as part of the same vector.
      public: x̂, `[n, d + s]`.
      compress: C.
      step_size: γ.
    """
    x = np.hstack([models, stats])
    public = public + np.array([compress(row) for row in x - public])
    mixed = x.copy()
    for i, j in np.ndindex(matrix.shape):
        mixed[i] += step_size * matrix[i, j] * (public[j] - public[i])
    parameters = models.shape[1]
    return mixed[:, :parameters], mixed[:, parameters:], public
