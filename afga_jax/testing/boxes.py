"""The papers' algorithms with a server, in plain NumPy, line by line.

Loops over rounds, steps and clients, in the order of the algorithm boxes; written from
the papers, not from the package. Each algorithm is a generator of one `BoxResult` per
round. Who is sampled and what a client sees is given (`Draws`); the rest is done here.
Comments with a number are the line of the box that the docstring names.
`afga_jax.testing.serverless` has the methods without a server.

Arguments that boxes share: `problem`, where the run starts; `rounds`, the draws of each
round's cycles; `local_lr`, η_l, and `server_lr`, η, numbers or schedules of the round;
`server` and `local`, optimizers of `parts`; `by_size`, a client's delta counts by its
samples; `by_members`, a cluster's counts by its clients.
"""

from collections.abc import Callable, Iterator

import numpy as np

from afga_jax.testing.parts import (
    BoxResult,
    BoxStart,
    Draws,
    Origins,
    Rounds,
    average,
    fedamsgrad,
    ring,
    sgd,
    upload_weights,
    within,
)


def afga(
    problem: BoxStart,
    rounds: Rounds,
    *,
    local_lr,
    server_lr,
    server=fedamsgrad,
    local=sgd,
    topology=ring,
    adapted=None,
    by_size=False,
    by_members=False,
) -> Iterator[BoxResult]:
    """AFGA, and CAFGA where there are several clusters.

    With S_{r,t} the clients that compute at step t, S_r^k those of cluster k that
    upload, and W the mixing matrix inside each cluster:

        x^i_{r,t'} = x^i_{r,t} − η_l g^i_{r,t} for i ∈ S_{r,t}, otherwise x^i_{r,t}
        x^i_{r,t+1} = Σ_j W_ij x^j_{r,t'}
        Δ_r = 1/K Σ_k 1/|S_r^k| Σ_{i ∈ S_r^k} (x^i_{r,𝓘} − x_r)
        m_r = β₁m_{r−1} + (1−β₁)Δ_r, v_r = β₂v_{r−1} + (1−β₂)Δ_r²
        v̂_r = max(v̂_{r−1}, v_r), x_{r+1} = x_r + η m_r/√(v̂_r + ε)

    Wang and Chen, "On the Data Heterogeneity in Adaptive Federated Learning"
    (https://openreview.net/forum?id=hv7iXsiBZE): Algorithm 1, Algorithm 2, and §5 with
    footnote 4 for `adapted`.

    Args:
      problem: See the module, as for all that is not said here.
      rounds: One cycle each, but for FedCluster of AFGA.
      local_lr: η_l.
      server_lr: η.
      server: The server's optimizer.
      local: The clients' optimizer.
      topology: From a number of clients to their mixing matrix.
      adapted: None: everybody mixes. `per_step`: a new ring over the clients that
        compute at the step; `per_round`: over those that upload.
      by_size: See the module.
      by_members: See the module.
    """
    x, s, everybody = problem.params, problem.stats, range(problem.num_clients)
    server = server()  # 1
    for r, cycles in enumerate(rounds):  # 2
        losses: list[float] = []
        needed, uploads = [], 0
        for draws in cycles:  # 3: S_r is draws.upload; one cycle but for FedCluster
            begun, origins = len(losses), Origins(everybody)
            models, stats = problem.copies(x, s)  # 4
            steps = [local(_at(local_lr, r)) for _ in everybody]
            for t, selected in enumerate(draws.active):  # 5, 6: S_{r,t}
                for i in everybody:  # 7
                    if i in selected:  # 8
                        # 9
                        loss, g, stats[i] = draws.gradient(t, i, models[i], stats[i])
                        models[i] += steps[i](g)  # 10
                        origins.add(i, len(losses) - begun)
                        losses.append(loss)
                matrix = mixing_matrix(problem, draws, t, topology, adapted)
                models, stats = matrix @ models, matrix @ stats  # 14
                origins.mix(everybody, matrix)
            weights = upload_weights(problem, draws.upload, by_size, by_members)
            delta = sum(weights[i] * (models[i] - x) for i in draws.upload)  # 17, 18
            x = x + _at(server_lr, r) * server(delta)  # 19-22
            s = weights @ stats
            uploads += len(draws.upload)
            needed += origins.among(losses[begun:], draws.upload)
        yield BoxResult(x, s, losses, uploads, needed)


def mixing_matrix(
    problem: BoxStart, draws: Draws, step: int, topology=ring, adapted=None
) -> np.ndarray:
    """W of all clients at a step of `afga`: inside each cluster, among those who mix.

    Args:
      problem: Says who is in which cluster.
      draws: Say who computes and who uploads.
      step: The local step, from 0.
      topology: From a number of clients to their mixing matrix.
      adapted: Who mixes, as in `afga`.
    """
    mixing = {
        None: set(range(problem.num_clients)),
        "per_step": draws.active[step],
        "per_round": draws.upload,
    }[adapted]
    groups = [[i for i in k if i in mixing] for k in problem.clusters]
    return within(problem.num_clients, groups, topology)


def by_matrices(
    problem: BoxStart,
    rounds: Rounds,
    *,
    matrix_at: Callable[[Draws, int], np.ndarray],
    local_lr,
    server_lr,
    server=fedamsgrad,
    local=sgd,
    mixing_order="after",
    by_size=False,
    by_members=False,
) -> Iterator[BoxResult]:
    """AFGA's box for any mixing, W(x + u) or Wx + u, and any local optimizer's step u.

    It also follows which gradients have reached which model, momentum included
    (`BoxResult.needed`, `BoxResult.idle`).

    Args:
      problem: Where the run starts.
      rounds: The draws of each round's cycles.
      matrix_at: `(draws, step) -> W`, of all clients, at a local step.
      local_lr: η_l, or a schedule.
      server_lr: η, or a schedule.
      server: A server optimizer of `parts`.
      local: A local optimizer of `parts`.
      mixing_order: `after` or `before`.
      by_size: A client counts by its samples.
      by_members: A cluster counts by its clients.
    """
    x, s, everybody = problem.params, problem.stats, range(problem.num_clients)
    server = server()
    for r, cycles in enumerate(rounds):
        losses: list[float] = []
        needed, uploads, idle = [], 0, 0
        for draws in cycles:
            begun, origins = len(losses), Origins(everybody)
            remembered = Origins(everybody).of  # by local optimizers
            models, stats = problem.copies(x, s)
            steps = [local(_at(local_lr, r)) for _ in everybody]
            for t, selected in enumerate(draws.active):
                matrix, behind = matrix_at(draws, t), {}
                increments, moved = np.zeros_like(models), np.zeros_like(stats)
                for i in sorted(selected):
                    loss, g, new_stats = draws.gradient(t, i, models[i], stats[i])
                    increments[i], moved[i] = steps[i](g), new_stats - stats[i]
                    behind[i] = origins.of[i] | remembered[i] | {len(losses) - begun}
                    losses.append(loss)
                if local is not sgd:
                    remembered |= behind
                if mixing_order == "before":
                    models = matrix @ models + increments
                    stats = matrix @ stats + moved
                    origins.mix(everybody, matrix)
                    origins.join(behind)
                else:
                    models = matrix @ (models + increments)
                    stats = matrix @ (stats + moved)
                    origins.join(behind)
                    origins.mix(everybody, matrix)
            weights = upload_weights(problem, draws.upload, by_size, by_members)
            x = x + _at(server_lr, r) * server(weights @ (models - x))
            s = weights @ stats
            uploads += len(draws.upload)
            idle += sum(not origins.of[i] for i in draws.upload)
            needed += origins.among(losses[begun:], draws.upload)
        yield BoxResult(x, s, losses, uploads, needed, idle)


def hafed(
    problem: BoxStart,
    rounds: Rounds,
    *,
    local_lr,
    server_lr,
    server=fedamsgrad,
    full=False,
    active=False,
    mix_every=1,
) -> Iterator[BoxResult]:
    """HA-Fed: everybody computes and mixes inside its cluster; m of each upload.

        x^i_{t,s+1} = Σ_{j ∈ N_k^i} (W_k)_ij (x^j_{t,s} − η_l g^j_{t,s})
        Δ_t = 1/K Σ_k 1/m Σ_{i ∈ S_t^k} (x^i_{t,τ} − x_t), then AFGA's server step

    "Accelerating Adaptive Federated Optimization with Local Gossip Communications":
    Algorithm 2, Algorithm 1 and App. F.3.

    Args:
      problem: See the module, as for all that is not said here.
      rounds: One cycle each.
      local_lr: η_l.
      server_lr: η.
      server: The server's optimizer.
      full: Everybody uploads, Algorithm 1.
      active: Only the clients of `Draws.active` compute, App. F.3.
      mix_every: q: clients mix after every q-th step only, App. F.3.
    """
    x, s, server = problem.params, problem.stats, server()  # 1
    for (draws,) in rounds:  # 2
        losses: list[float] = []
        deltas, stats_of, uploads = [], [], 0
        origins = Origins(range(problem.num_clients))
        for members in problem.clusters:  # 3
            models = dict.fromkeys(members, x)  # 5-8
            stats = dict.fromkeys(members, s)
            for t in range(draws.steps):  # 10
                for i in members:  # 9
                    if active and i not in draws.active[t]:
                        continue
                    loss, g, stats[i] = draws.gradient(t, i, models[i], stats[i])
                    models[i] = models[i] - local_lr * g  # 11, 12
                    origins.add(i, len(losses))
                    losses.append(loss)
                if (t + 1) % mix_every == 0:
                    models = _gossip(members, models)  # 13
                    stats = _gossip(members, stats)
                    origins.mix(members, ring(len(members)))
            sampled = [i for i in members if full or i in draws.upload]  # 4
            deltas.append(np.mean([models[i] - x for i in sampled], 0))  # 15
            stats_of.append(np.mean([stats[i] for i in sampled], 0))
            uploads += len(sampled)
        x = x + server_lr * server(np.mean(deltas, 0))  # 18-22
        s = np.mean(stats_of, 0)
        uploading = range(problem.num_clients) if full else draws.upload
        yield BoxResult(x, s, losses, uploads, origins.among(losses, uploading))


def fedopt(
    problem: BoxStart,
    rounds: Rounds,
    *,
    local_lr,
    server_lr=1.0,
    server=average,
    local=sgd,
    mu=0.0,
    by_size=False,
) -> Iterator[BoxResult]:
    """FedOpt: the sampled clients train alone, and the server steps along their mean.

        y_i ← y_i − η_l (g_i + μ(y_i − x)), 𝓘 times from y_i = x
        Δ = Σ_{i ∈ S} p_i (y_i − x) / Σ_{i ∈ S} p_i, x ← x + η·server(Δ)

    Reddi et al., "Adaptive Federated Optimization", 2020, Algorithm 1. FedAvg
    (McMahan et al. 2017) by `average`, FedAMSGrad (Tong et al. 2020; Wang et al. 2022)
    by `fedamsgrad`, FedProx (Li et al. 2020) by `mu`.
    """
    x, s, server = problem.params, problem.stats, server()
    for r, (draws,) in enumerate(rounds):
        losses: list[float] = []
        deltas, stats, counts = [], [], []
        for i in draws.upload:
            step = local(_at(local_lr, r))
            y, s_i = draws.alone(i, x, s, step, losses, pull=mu)
            deltas.append(y - x)
            stats.append(s_i)
            counts.append(problem.sizes[i] if by_size else 1)
        delta = np.average(deltas, 0, counts)
        x = x + _at(server_lr, r) * server(delta)
        s = np.average(stats, 0, counts)
        yield BoxResult(x, s, losses, len(deltas))


def fedcluster(
    problem: BoxStart,
    rounds: Rounds,
    *,
    local_lr,
    server_lr=1.0,
    server=average,
    local=sgd,
    mu=0.0,
    shuffle=True,
    by_size=True,
) -> Iterator[BoxResult]:
    """FedCluster: clusters take turns, and each continues from the model of the last.

        W_{jM+K+1} = Σ_{k ∈ S} (p_k/q) w^{(k)}_{j,K,E}, q = Σ_{k ∈ S} p_k

    Chen et al., "FedCluster: Boosting the Convergence of Federated Learning via
    Cluster-Cycling", 2020, Algorithm 1; the mean is written as x + η·server(Δ), so that
    other servers fit. With `shuffle` the clusters come in the order of the draws,
    otherwise 0, 1, … as in the box.
    """
    x, s, server = problem.params, problem.stats, server()
    for cycles in rounds:  # j
        losses: list[float] = []
        uploads = 0
        for number, draws in enumerate(cycles):  # K
            members = problem.clusters[draws.cluster if shuffle else number]
            sampled = [i for i in members if i in draws.upload]
            samples = sum(problem.sizes[i] if by_size else 1 for i in sampled)
            delta, s_next = np.zeros_like(x), np.zeros_like(s)
            for i in sampled:
                w, s_i = draws.alone(i, x, s, local(local_lr), losses, pull=mu)
                weight = (problem.sizes[i] if by_size else 1) / samples  # p_k / q
                delta = delta + weight * (w - x)
                s_next = s_next + weight * s_i
            x = x + server_lr * server(delta)  # W_{jM+K+1}
            s = s_next
            uploads += len(sampled)
        yield BoxResult(x, s, losses, uploads)


def scaffold(
    problem: BoxStart, rounds: Rounds, *, local_lr, server_lr=1.0
) -> Iterator[BoxResult]:
    """SCAFFOLD: control variates take the clients' drift out of their gradients.

        y_i ← y_i − η_l (g_i(y_i) − c_i + c)
        c_i⁺ = c_i − c + (x − y_i)/(𝓘 η_l)
        x ← x + η mean(y_i − x), c ← c + |S|/N mean(c_i⁺ − c_i)

    Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated
    Learning", 2020, Algorithm 1 with option II.
    """
    x, s = problem.params, problem.stats
    c, controls = np.zeros_like(x), np.zeros((problem.num_clients, len(x)))
    for (draws,) in rounds:
        losses: list[float] = []
        deltas, control_deltas = [], []
        for i in draws.upload:
            shift = c - controls[i]
            y, _ = draws.alone(i, x, s, sgd(local_lr), losses, shift=shift)  # 10
            control = controls[i] - c + (x - y) / (draws.steps * local_lr)  # 12
            deltas.append(y - x)  # 13
            control_deltas.append(control - controls[i])
            controls[i] = control  # 14
        x = x + server_lr * np.mean(deltas, 0)  # 16, 17
        c = c + len(draws.upload) / problem.num_clients * np.mean(control_deltas, 0)
        yield BoxResult(x, s, losses, len(deltas))


def feddyn(
    problem: BoxStart, rounds: Rounds, *, local_lr, feddyn_alpha
) -> Iterator[BoxResult]:
    """FedDyn: each client's loss is regularised by what it learnt before.

        θ_i ← θ_i − η_l (g_i(θ_i) + α(θ_i − θ) − ∇_i), 𝓘 times from θ_i = θ
        ∇_i ← ∇_i − α(θ_i − θ), h ← h − α/N Σ_{i ∈ S} (θ_i − θ)
        θ ← mean θ_i − h/α

    Acar et al., "Federated Learning Based on Dynamic Regularization", 2021,
    Algorithm 1, with SGD for the local minimisation.
    """
    x, s, alpha = problem.params, problem.stats, feddyn_alpha
    h, duals = np.zeros_like(x), np.zeros((problem.num_clients, len(x)))
    for (draws,) in rounds:
        losses: list[float] = []
        models = []
        for i in draws.upload:
            step, shift = sgd(local_lr), -duals[i]
            y, _ = draws.alone(i, x, s, step, losses, pull=alpha, shift=shift)
            duals[i] = duals[i] - alpha * (y - x)
            models.append(y)
        h = h - alpha / problem.num_clients * sum(y - x for y in models)
        x = np.mean(models, 0) - h / alpha
        yield BoxResult(x, s, losses, len(models))


def _gossip(members: list[int], models: dict) -> dict:
    """x_i ← Σ_{j ∈ N_i} W_ij x_j, over the ring of the members."""
    matrix = ring(len(members))
    return {
        i: sum(matrix[a, b] * models[j] for b, j in enumerate(members))
        for a, i in enumerate(members)
    }


def _at(number: float | Callable, r: int) -> float:
    """A number, or a schedule's value in round r, counted from 0."""
    return number(r) if callable(number) else number
