"""Relatives with a server, in plain NumPy, line by line; see `afga_jax.testing.boxes`.

FedNova, whose clients take different numbers of steps; SlowMo and DiLoCo, with one
optimizer inside and one outside; TT-HF, whose clusters gossip, and what becomes of it
where the server's model does not go to everybody. FedAvgM is
`boxes.fedopt` with the server `parts.heavy_ball`.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from afga_jax.testing.parts import (
    BoxResult,
    BoxStart,
    Origins,
    Rounds,
    adamw,
    average,
    momentum,
    nesterov,
    ring,
    sgd,
    upload_weights,
    within,
)


def fednova(
    problem: BoxStart,
    rounds: Rounds,
    *,
    client_steps: Sequence[int],
    local_lr,
    server_lr=1.0,
    decay=None,
) -> Iterator[BoxResult]:
    """FedNova: deltas are divided by how far their client's steps would go.

        x ← x − τ_eff Σ_i p_i η d_i, d_i = G_i a_i/‖a_i‖₁, τ_eff = Σ_i p_i ‖a_i‖₁

    G_i has client i's gradients as columns, and a_i their weights: ones for SGD, and
    with momentum ρ [a_i]_k = (1 − ρ^{τ_i − k})/(1 − ρ), k = 0, …, τ_i − 1. Wang et al.,
    "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
    Optimization", 2020, eq. 8 and §4.

    Args:
      problem: Where the run starts.
      rounds: The draws, one cycle each.
      client_steps: τ_i of every client.
      local_lr: η.
      server_lr: A factor of the server's step, 1 in the paper.
      decay: ρ; None: SGD.
    """
    x, s = problem.params, problem.stats
    for (draws,) in rounds:
        losses: list[float] = []
        direction, stats, effective = np.zeros_like(x), np.zeros_like(s), 0.0
        weights = upload_weights(problem, draws.upload, by_size=True)
        for i in draws.upload:
            steps = client_steps[i]
            y, s_i, gradients = x, s, []
            step = sgd(local_lr) if decay is None else momentum(local_lr, decay)
            for t in range(steps):
                loss, g, s_i = draws.gradient(t, i, y, s_i)
                y = y + step(g)
                gradients.append(g)
                losses.append(loss)
            ahead = steps - np.arange(steps)
            a = np.ones(steps) if decay is None else (1 - decay**ahead) / (1 - decay)
            direction += weights[i] * (a @ np.array(gradients)) / a.sum()
            effective += weights[i] * a.sum()
            stats += weights[i] * s_i
        x = x - server_lr * effective * local_lr * direction
        s = stats
        yield BoxResult(x, s, losses, len(draws.upload))


def slowmo(
    problem: BoxStart, rounds: Rounds, *, local_lr, server_lr=1.0, b1=0.7, decay=0.9
) -> Iterator[BoxResult]:
    """SlowMo around SGD with Nesterov's momentum, which begins anew in each round.

        u_{t+1} = βu_t + (x_{t,0} − x_{t,τ})/γ_t, x_{t+1,0} = x_{t,0} − αγ_t u_{t+1}

    with x_{t,τ} the mean of all workers' models. Wang et al., "SlowMo: Improving
    Communication-Efficient Distributed SGD with Slow Momentum", 2020, Algorithm 1.

    Args:
      problem: Where the run starts.
      rounds: The draws, one cycle each.
      local_lr: γ, a number or a schedule of the round.
      server_lr: α.
      b1: β.
      decay: The workers' momentum.
    """
    x, s = problem.params, problem.stats
    slow = np.zeros_like(x)
    for r, (draws,) in enumerate(rounds):
        losses: list[float] = []
        gamma = local_lr(r) if callable(local_lr) else local_lr
        ends = [  # 2-5
            draws.alone(i, x, s, nesterov(gamma, decay), losses)
            for i in range(problem.num_clients)
        ]
        models, stats = map(np.array, zip(*ends, strict=True))
        average = models.mean(0)  # 6
        slow = b1 * slow + (x - average) / gamma  # 7
        x, s = x - server_lr * gamma * slow, stats.mean(0)  # 8
        yield BoxResult(x, s, losses, len(models))


def diloco(
    problem: BoxStart,
    rounds: Rounds,
    *,
    local_lr,
    server_lr=0.7,
    b1=0.9,
    weight_decay=0.1,
) -> Iterator[BoxResult]:
    """DiLoCo: AdamW inside, whose state goes on, and Nesterov's momentum outside.

        Δ = mean_i(θ − θ_i), m ← β₁m + Δ, θ ← θ − η(Δ + β₁m)

    Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language
    Models", 2023, Algorithm 1.
    """
    x, s = problem.params, problem.stats
    m = np.zeros_like(x)
    inner = [adamw(local_lr, weight_decay) for _ in range(problem.num_clients)]
    for (draws,) in rounds:  # 1
        losses: list[float] = []
        models, stats = [], []
        for i in range(problem.num_clients):  # 2
            y, s_i = x, s  # 3
            for t in range(draws.steps):  # 4-8
                loss, g, s_i = draws.gradient(t, i, y, s_i)
                y = y + inner[i](g, y)
                losses.append(loss)
            models.append(y)
            stats.append(s_i)
        gradient = np.mean([x - y for y in models], 0)  # 12
        m = b1 * m + gradient
        x = x - server_lr * (gradient + b1 * m)  # 14
        s = np.mean(stats, 0)
        yield BoxResult(x, s, losses, len(models))


def tthf(
    problem: BoxStart,
    rounds: Rounds,
    *,
    local_lr,
    server_lr=1.0,
    topology: Callable[[int], np.ndarray] = ring,
    mix_every=1,
    mix_times=1,
    by_members=True,
) -> Iterator[BoxResult]:
    """TT-HF: everybody steps, clusters form a consensus, one of each is sampled.

        w̃_i^(t) = w_i^(t−1) − η g_i, w_c^(t) = V_c^Γ w̃_c^(t) in cluster c
        ŵ = Σ_c ϱ_c w_{n_c}, n_c drawn from cluster c, ϱ_c its share of the clients

    every τ steps, after which everybody has ŵ. Lin et al., "Semi-Decentralized
    Federated Learning With Cooperative D2D Local Model Aggregations", 2021,
    Algorithm 1.

    Args:
      problem: Where the run starts.
      rounds: The draws, one cycle each; who uploads is who was sampled.
      local_lr: η.
      server_lr: 1 in the paper: the share of the way to ŵ that the server goes.
      topology: From a number of clients to V.
      mix_every: Clients form a consensus after every so many steps.
      mix_times: Γ, the D2D rounds of each.
      by_members: Clusters count by their clients.
    """
    x, s, everybody = problem.params, problem.stats, range(problem.num_clients)
    matrix = within(problem.num_clients, problem.clusters, topology)
    for (draws,) in rounds:
        losses: list[float] = []
        origins = Origins(everybody)
        models, stats = problem.copies(x, s)
        for t in range(draws.steps):
            for i in everybody:
                loss, g, stats[i] = draws.gradient(t, i, models[i], stats[i])
                models[i] -= local_lr * g
                origins.add(i, len(losses))
                losses.append(loss)
            for _ in range(mix_times if (t + 1) % mix_every == 0 else 0):
                models, stats = matrix @ models, matrix @ stats
                origins.mix(everybody, matrix)
        weights = upload_weights(problem, draws.upload, by_members=by_members)
        x = x + server_lr * (weights @ models - x)
        s = weights @ stats
        needed = origins.among(losses, draws.upload)
        yield BoxResult(x, s, losses, len(draws.upload), needed)


def semi_decentralised(
    problem: BoxStart,
    rounds: Rounds,
    *,
    local_lr,
    server_lr=1.0,
    server: Callable = average,
    topology: Callable[[int], np.ndarray] = ring,
    mix_times=1,
    broadcast="sampled",
) -> Iterator[BoxResult]:
    """The server's model goes to some, the others keep theirs from round to round.

        x_i ← x_i − ηg_i for those that compute, x_i ← Σ_j (W^Q)_ij x_j, at every step
        x ← x + η_s·server(Δ), Δ the mean over the sampled of x_i − x
        x_i ← x for the sampled (S2S), or for all (S2A)

    Rodio, Neglia, Chen and Larsson, "A Unified Convergence Analysis for
    Semi-Decentralized Learning: Sampled-to-Sampled vs. Sampled-to-All Communication",
    2025, where everybody computes and x is the mean of the sampled models.

    Args:
      problem: Where the run starts.
      rounds: The draws of each round's cycles; who uploads is who was sampled.
      local_lr: η.
      server_lr: η_s.
      server: The server's optimizer.
      topology: From a number of clients to W, in each cluster.
      mix_times: Q.
      broadcast: `sampled`, `clusters` (those of the sampled) or `all`.
    """
    x, s, everybody = problem.params, problem.stats, range(problem.num_clients)
    models, stats = problem.copies(x, s)
    server = server()
    for cycles in rounds:
        losses: list[float] = []
        uploads = 0
        for draws in cycles:
            clusters = problem.clusters if len(cycles) == 1 else []
            clusters = clusters or [problem.clusters[draws.cluster]]
            matrix = within(problem.num_clients, clusters, topology)
            for t, active in enumerate(draws.active):
                for i in sorted(active):
                    loss, g, stats[i] = draws.gradient(t, i, models[i], stats[i])
                    models[i] -= local_lr * g
                    losses.append(loss)
                for _ in range(mix_times):
                    models, stats = matrix @ models, matrix @ stats
            weights = upload_weights(problem, draws.upload)
            x = x + server_lr * server(weights @ (models - x))
            s = weights @ stats
            heard = [k for k in problem.clusters if draws.upload & set(k)]
            gets = {
                "all": set(everybody),
                "clusters": {i for cluster in heard for i in cluster},
                "sampled": draws.upload,
            }[broadcast]
            models[sorted(gets)], stats[sorted(gets)] = x, s
            uploads += len(draws.upload)
        yield BoxResult(x, s, losses, uploads)
