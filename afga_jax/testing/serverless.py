"""The methods without a server; see `afga_jax.testing.boxes`.

Every client computes and mixes at each step; a round is a number of steps, and models
and moments are kept across rounds. What is evaluated is the mean of the models.
"""

from collections.abc import Iterator

import numpy as np

from afga_jax.testing.parts import BoxResult, BoxStart, Rounds, ring, within


def dsgd(
    problem: BoxStart,
    rounds: Rounds,
    *,
    local_lr,
    mixing_order="after",
    pga_period=None,
) -> Iterator[BoxResult]:
    """DSGD, and PGA where `pga_period` is given.

        x ← W(x − ηg), or with `mixing_order="before"` x ← Wx − ηg

    Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?",
    2017, has the second form. PGA averages exactly, W = 11ᵀ/N, at every H-th step,
    counted across rounds: Chen et al., "Accelerating Gossip SGD with Periodic Global
    Averaging", 2021, Algorithm 1.
    """
    everybody = range(problem.num_clients)
    gossip = within(problem.num_clients, problem.clusters)
    models, stats = problem.copies(problem.params, problem.stats)
    count = 0
    for (draws,) in rounds:
        losses: list[float] = []
        for t in range(draws.steps):
            increments, stat_increments = np.zeros_like(models), np.zeros_like(stats)
            for i in everybody:
                loss, g, new_stats = draws.gradient(t, i, models[i], stats[i])
                increments[i], stat_increments[i] = -local_lr * g, new_stats - stats[i]
                losses.append(loss)
            count += 1
            matrix = gossip
            if pga_period and count % pga_period == 0:
                matrix = np.full_like(gossip, 1 / problem.num_clients)
            if mixing_order == "after":
                models = matrix @ (models + increments)
                stats = matrix @ (stats + stat_increments)
            else:
                models = matrix @ models + increments
                stats = matrix @ stats + stat_increments
        yield BoxResult(models.mean(0), stats.mean(0), losses, 0)


def dadam(
    problem: BoxStart, rounds: Rounds, *, local_lr, b1=0.9, b2=0.99, b3=0.0, eps=1e-8
) -> Iterator[BoxResult]:
    """DAdam: every client's own Adam between mixings.

        m = β₁m + (1−β₁)g, v = β₂v + (1−β₂)g²
        v̂ = β₃v̂ + (1−β₃)max(v̂, v), x ← Wx − η m/√v̂, v̂₀ = ε

    Nazari et al., "DADAM: A Consensus-Based Distributed Adaptive Gradient Method for
    Online Optimization", 2019; β₃ = 0 is AMSGrad.
    """
    (models,) = problem.copies(problem.params)
    m, v = np.zeros_like(models), np.zeros_like(models)
    largest = np.full_like(models, eps)
    for (draws,) in rounds:
        losses: list[float] = []
        for t in range(draws.steps):
            g = _gradients(problem, models, draws, t, losses)
            m = b1 * m + (1 - b1) * g
            v = b2 * v + (1 - b2) * g**2
            largest = b3 * largest + (1 - b3) * np.maximum(largest, v)
            models = ring(len(models)) @ models - local_lr * m / np.sqrt(largest)
        yield BoxResult(models.mean(0), problem.stats, losses, 0)


def damsgrad(
    problem: BoxStart, rounds: Rounds, *, local_lr, b1=0.9, b2=0.99, eps=1e-8
) -> Iterator[BoxResult]:
    """D-AMSGrad: the second moment tracks the mean of all clients' v̂.

        m = β₁m + (1−β₁)g, v = β₂v + (1−β₂)g², v̂_t = max(v̂_{t−1}, v)
        ũ ← Wũ, x ← Wx − η m/√max(ũ, ε), ũ ← ũ + v̂_t − v̂_{t−1}, ũ₀ = v̂₀ = ε

    Chen et al., "On the Convergence of Decentralized Adaptive Gradient Methods", 2021.
    """
    (models,) = problem.copies(problem.params)
    matrix = ring(len(models))
    m, v = np.zeros_like(models), np.zeros_like(models)
    largest, tracked = np.full_like(models, eps), np.full_like(models, eps)
    for (draws,) in rounds:
        losses: list[float] = []
        for t in range(draws.steps):
            g = _gradients(problem, models, draws, t, losses)
            m = b1 * m + (1 - b1) * g
            v = b2 * v + (1 - b2) * g**2
            before, largest = largest, np.maximum(largest, v)
            tracked = matrix @ tracked
            floor = np.maximum(tracked, eps)
            models = matrix @ models - local_lr * m / np.sqrt(floor)
            tracked = tracked - before + largest
        yield BoxResult(models.mean(0), problem.stats, losses, 0)


def dfedavgm(
    problem: BoxStart, rounds: Rounds, *, local_lr, momentum=0.9, topology=ring
) -> Iterator[BoxResult]:
    """DFedAvgM: K steps of momentum from where a client is, then one mixing.

        y^{k+1}(i) = y^k(i) − ηg + θ(y^k(i) − y^{k−1}(i)), y^{−1}(i) = y^0(i) = x^t(i)
        x^{t+1}(i) = Σ_l w_il y^K(l)

    Sun, Li and Wang, "Decentralized Federated Averaging", 2023, Algorithm 2.

    Args:
      problem: Where the run starts.
      rounds: The draws, one cycle each.
      local_lr: η.
      momentum: θ.
      topology: From a number of clients to their mixing matrix.
    """
    everybody = range(problem.num_clients)
    matrix = within(problem.num_clients, problem.clusters, topology)
    models, stats = problem.copies(problem.params, problem.stats)
    for (draws,) in rounds:
        losses: list[float] = []
        ends = np.empty_like(models)
        for i in everybody:
            y = before = models[i]
            for k in range(draws.steps):
                loss, g, stats[i] = draws.gradient(k, i, y, stats[i])
                y, before = y - local_lr * g + momentum * (y - before), y
                losses.append(loss)
            ends[i] = y
        models, stats = matrix @ ends, matrix @ stats
        yield BoxResult(models.mean(0), stats.mean(0), losses, 0)


def epidemic(problem: BoxStart, rounds: Rounds, *, local_lr) -> Iterator[BoxResult]:
    """Epidemic Learning, EL-Local: steps between which models go to random others.

        x_i ← x_i − ηg_i, sent to s others; x_i ← (x_i + Σ_{j ∈ R_i} x_j)/(|R_i| + 1)

    with R_i those from whom i received. De Vos et al., "Epidemic Learning: Boosting
    Decentralized Learning with Randomized Communication", 2023, Algorithm 1. To whom
    each sends is drawn (`Draws.peers`).
    """
    everybody = range(problem.num_clients)
    models = [problem.params for _ in everybody]
    stats = [problem.stats for _ in everybody]
    for (draws,) in rounds:
        losses: list[float] = []
        for t, sends in enumerate(draws.peers):
            received = []
            for i in everybody:
                loss, g, s = draws.gradient(t, i, models[i], stats[i])
                received.append([(models[i] - local_lr * g, s)])
                losses.append(loss)
            own = [mail[0] for mail in received]
            for i in everybody:
                for j in sends[i]:
                    received[j].append(own[i])
            models = [np.mean([x for x, _ in mail], 0) for mail in received]
            stats = [np.mean([s for _, s in mail], 0) for mail in received]
        yield BoxResult(np.mean(models, 0), np.mean(stats, 0), losses, 0)


def _gradients(problem, models, draws, step, losses) -> np.ndarray:
    rows = []
    for i, x in enumerate(models):
        loss, g, _ = draws.gradient(step, i, x, problem.stats)
        rows.append(g)
        losses.append(loss)
    return np.array(rows)
