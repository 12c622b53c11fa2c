"""The round explorer: what a round does, from its plan alone.

Who computes, mixes and uploads is known before any gradient is (`algorithm.plan`), and
mixing is linear. With W_s the mixing after step s, a gradient of client i at step t is
part of client j's model after step s with the share (W_s … W_t)ⱼᵢ, and of Δ with the
*weight* Σⱼ pⱼ·(W_{T−1} … W_t)ⱼᵢ, where pⱼ is the weight of j's upload; without a server
pⱼ = 1/N, the mean of all models. (Where clients mix before they step, x ← Wx + step,
W_t is left out.) Per step the page shows how unequal the weights are if the round ended
there, as the effective share (Σw)²/(n·Σw²) of the n gradients so far; and, for every
client, how far its model would be from the mean of all if the gradients' increments
were orthogonal and of length one: Σ over gradients of (share − mean share)².

The shares of one gradient on its way are not listed: gradients × steps × clients are
too many numbers for a page. The page has each W and multiplies by it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax
import numpy as np
import scipy  # `scipy.sparse` is imported where it is used first

from afga_jax import checks
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.keys import typed
from afga_jax.population.sampling import Plan
from afga_jax.rounds.client_step import is_stateful
from afga_jax.rounds.cycle import Cycle
from afga_jax.rounds.execution import Execution
from afga_jax.rounds.server_step import upload_weights
from afga_jax.rounds.span.dependencies import Finder
from afga_jax.runs.pages.graphs import Graph, Graphs
from afga_jax.runs.pages.labels import label_shares
from afga_jax.runs.pages.page import Page, fill, rounded
from afga_jax.training import ledger
from afga_jax.training.ledger import Links
from afga_jax.training.planner import quick_to_compile
from afga_jax.typing import Array, ClientData

#: Clients that are shown; of more, a neighbourhood is.
MOST_CLIENTS = 500

# Numbers of W, and of shares, that are worth waiting for.
_MOST_ENTRIES = 50_000_000
_MOST_SHARES = 20_000_000
# Numbers of a page that stays below two megabytes.
_MOST_DISTANCES = 60_000


@dataclass(frozen=True)
class CycleView:
    """A cycle; clients are numbered as they are shown, gradients by step.

    Attributes:
      clusters: Clusters that take part.
      holders: Clients that hold a model.
      active: Clients that compute, for each step.
      weight: Weight in Δ of each of these gradients.
      needed: Whether it is computed: whether it enters Δ or a gradient that does.
      reaches: Number of clients, shown or not, whose models it is part of in the end.
      uploads: Clients that upload.
      upload_weight: The weight of each upload in Δ.
      mixing: Number of the graph of each step; −1: nobody mixes.
      gradients: Number of gradients so far, shown or not, after each step.
      arrived: Share of these that would enter Δ if the round ended there.
      effective: Their effective share.
      distance: Distance of each client from the mean after each step, as the module
        says; None: too many to list.
    """

    clusters: list[int]
    holders: list[int]
    active: list[list[int]]
    weight: list[list[float]]
    needed: list[list[bool]]
    reaches: list[list[int]]
    uploads: list[int]
    upload_weight: list[float]
    mixing: list[int]
    gradients: list[int]
    arrived: list[float]
    effective: list[float]
    distance: list[list[float]] | None


@dataclass(frozen=True)
class RoundView:
    """All that the explorer shows of a round.

    Attributes:
      name: What is explored, for the title.
      facts: Names and values for the page's head.
      notes: What a reader should know, a line each.
      round: Number of the round, from 0.
      num_clients: N.
      clients: Ids of the clients that are shown.
      cluster: The cluster of each.
      labels: Share of each class in each client's samples; None: not known.
      label_names: Names of the classes.
      served: Whether there is a server.
      mix_first: Whether clients mix before they step.
      cycles: The cycles, one after another.
      graphs: Who mixes with whom; steps that mix alike share one.
      ledger: What was sent by each moment (`ledger.timeline`).
      measured: What a run recorded, by metric, with its `round`; None: no run.
    """

    name: str
    facts: list[tuple[str, Any]]
    notes: list[str]
    round: int
    num_clients: int
    clients: list[int]
    cluster: list[int]
    labels: list[list[float]] | None
    label_names: list[str]
    served: bool
    mix_first: bool
    cycles: list[CycleView]
    graphs: list[Graph]
    ledger: list[dict[str, Any]]
    measured: dict[str, list[Any]] | None


def explore(
    algorithm: FederatedAlgorithm,
    *,
    round: int = 0,
    key: Array | None = None,
    data: ClientData | None = None,
    name: str = "round",
    label_names: tuple[str, ...] = (),
    links: Links | None = None,
    measured: dict[str, list[Any]] | None = None,
) -> Page:
    """A page on which one can look into a round; nothing is trained or compiled.

    Args:
      algorithm: From `afga_jax.build`.
      round: Number of the round, from 0.
      key: The run's key; None: `jax.random.key(0)`.
      data: The clients' data, for the colours of their labels and where uploads are
        weighted by size; None: colours are the clusters'.
      name: What is explored, for the title.
      label_names: A name for each class; empty: they are named by their number.
      links: What a message costs, for the simulated time.
      measured: Lists of what a run recorded, by metric, with its `round` and
        `consensus`.

    Returns:
      The page: a notebook shows it, `save(path)` writes it.
    """
    checks.integer("round", round, at_least=0)
    key = jax.random.key(0) if key is None else typed(key)
    view = look(algorithm, key, round, data, links)
    given = {"name": name, "label_names": list(label_names), "measured": measured}
    return fill("explorer", {**vars(view), **given})


def look(
    algorithm: FederatedAlgorithm,
    key: Array,
    round: int,
    data: ClientData | None = None,
    links: Links | None = None,
) -> RoundView:
    """What `explore` shows, as plain values."""
    recipe = algorithm.recipe
    num_clients = recipe.clustering.num_clients
    entries = recipe.mixing.matrix_entries(num_clients)
    if entries > _MOST_ENTRIES:
        raise ValueError(
            f"num_clients = {num_clients:,}, but the explorer looks at W, which has "
            f"{entries:,} numbers here, and at most {_MOST_ENTRIES:,} are looked at: "
            "take fewer clients, or more clusters."
        )
    if data is None and recipe.weighting == "size":
        raise ValueError(
            "data = None, but uploads are weighted by the size of the clients' data: "
            "give the data."
        )
    draw = jax.jit(algorithm.plan, compiler_options=quick_to_compile())
    plan = jax.tree.map(np.asarray, draw(key, round))
    numbers = range(len(plan.clusters))
    cycles = [_matrices(algorithm, plan, number) for number in numbers]
    shown = _shown(plan, cycles, num_clients)
    graphs = Graphs(shown)
    state = jax.eval_shape(algorithm.init, key)
    views = [_cycle(algorithm, state, plan, data, c, shown, graphs) for c in cycles]
    costs = ledger.costs(algorithm, state, links)
    return RoundView(
        name="round",
        facts=_facts(algorithm, plan),
        notes=_notes(recipe, num_clients, len(shown)),
        round=round,
        num_clients=num_clients,
        clients=shown.tolist(),
        cluster=recipe.clustering.labels()[shown].tolist(),
        labels=None if data is None else label_shares(data, shown),
        label_names=[],
        served=recipe.server is not None,
        mix_first=recipe.mix_first,
        cycles=views,
        graphs=graphs.views,
        ledger=ledger.timeline(algorithm, costs, plan),
        measured=None,
    )


class _Matrices(NamedTuple):
    """Who computes in a cycle, and its mixing matrices among those involved.

    Attributes:
      number: Number of the cycle in the round.
      ids: Ids of the clients that are involved, sorted.
      steps: W after each step, by the position in `ids`; None: nobody mixes.
      active: Ids of the clients that compute at each step.
    """

    number: int
    ids: np.ndarray
    steps: "list[scipy.sparse.csr_array | None]"
    active: list[np.ndarray]


def _matrices(algorithm: FederatedAlgorithm, plan: Plan, cycle: int) -> _Matrices:
    mixing, part = algorithm.recipe.mixing, plan.cycle(cycle)
    num_clients = algorithm.recipe.clustering.num_clients
    taking_part = np.concatenate([part.active.reshape(-1), part.upload.reshape(-1)])
    involved = mixing.involved(plan, cycle, taking_part)
    everybody = np.arange(num_clients)
    ids = everybody if involved is None else np.intersect1d(everybody, involved)
    steps = mixing.sparse_steps(plan, len(part.active), cycle, ids)
    rows = part.active.reshape(len(part.active), -1)
    return _Matrices(cycle, ids, steps, [row[row < num_clients] for row in rows])


def _cycle(
    algorithm: FederatedAlgorithm,
    state: Any,
    plan: Plan,
    data: ClientData | None,
    matrices: _Matrices,
    shown: np.ndarray,
    graphs: Graphs,
) -> CycleView:
    recipe, number, ids = algorithm.recipe, matrices.number, matrices.ids
    num_clients, active = recipe.clustering.num_clients, matrices.active
    uploads, upload_weight = _uploads(algorithm, plan, data, number)
    final = np.zeros(num_clients)
    final[uploads] = upload_weight
    after = _weights(recipe, matrices, final[ids])
    needed = _needed(algorithm, state, plan, matrices)
    reaches, distance = _spread(recipe, matrices, shown, num_clients)
    whole = [np.concatenate(weights) for weights in after]
    here = [np.isin(row, shown) for row in active]
    of_shown = lambda row: np.atleast_1d(np.searchsorted(shown, row)).tolist()  # noqa: E731
    kept = lambda rows: [row[k].tolist() for row, k in zip(rows, here, strict=True)]  # noqa: E731
    uploaded = np.isin(uploads, shown)
    return CycleView(
        clusters=plan.clusters[number].tolist(),
        holders=of_shown(ids[np.isin(ids, shown)]),
        active=[of_shown(row[k]) for row, k in zip(active, here, strict=True)],
        weight=[rounded(row, 7) for row in kept(after[-1])],
        needed=kept(needed),
        reaches=kept(reaches),
        uploads=of_shown(uploads[uploaded]),
        upload_weight=rounded(upload_weight[uploaded], 7),
        mixing=[graphs.number(ids, matrix) for matrix in matrices.steps],
        gradients=np.cumsum([len(row) for row in active]).tolist(),
        arrived=[float((w > 0).mean()) if len(w) else 0.0 for w in whole],
        effective=[_effective(w) for w in whole],
        distance=distance,
    )


def _uploads(
    algorithm: FederatedAlgorithm, plan: Plan, data: ClientData | None, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Who uploads, and with which weight; without a server all, to the mean."""
    recipe, everybody = algorithm.recipe, algorithm.recipe.clustering.num_clients
    if recipe.server is None:
        return np.arange(everybody), np.full(everybody, 1 / everybody)
    # Of a cycle, weights depend on the recipe, the plan and the sizes alone.
    nothing: Any = None
    parts = (recipe, algorithm.recipe_at, algorithm.task)
    cycle = Cycle(*parts, nothing, nothing, cast(Any, data), plan, number, Execution())
    ids = np.asarray(plan.cycle(number).upload).reshape(-1)
    real = ids < everybody
    return ids[real], np.asarray(upload_weights(cycle), float)[real]


def _weights(
    recipe: Any, matrices: _Matrices, final: np.ndarray
) -> list[list[np.ndarray]]:
    """Weights of all gradients so far if the round ended after each step.

    Args:
      recipe: The algorithm.
      matrices: The cycle's mixing.
      final: Weight of each involved client's upload.
    """
    at = [np.searchsorted(matrices.ids, row) for row in matrices.active]
    transposed = {
        id(w): scipy.sparse.csr_array(w.T) for w in matrices.steps if w is not None
    }
    after = []
    for end in range(len(at)):
        weight, weights = final, []
        for step in range(end, -1, -1):
            matrix = matrices.steps[step]
            mixed = weight if matrix is None else transposed[id(matrix)] @ weight
            weights.append((weight if recipe.mix_first else mixed)[at[step]])
            weight = mixed
        after.append(weights[::-1])
    return after


def _needed(
    algorithm: FederatedAlgorithm, state: Any, plan: Plan, matrices: _Matrices
) -> list[np.ndarray]:
    """Whether each gradient is computed for the server's good."""
    recipe, active = algorithm.recipe, matrices.active
    if recipe.models_persist or not recipe.mixing.linear:
        return [np.ones(len(row), bool) for row in active]
    finder = Finder(recipe, stateful=is_stateful(recipe, state.params))
    graph = finder.graph(plan, matrices.number)
    return [np.isin(row, graph.client[graph.step == t]) for t, row in enumerate(active)]


def _spread(
    recipe: Any, matrices: _Matrices, shown: np.ndarray, num_clients: int
) -> tuple[list[np.ndarray], list[list[float]] | None]:
    """How many clients each gradient reaches, and how far clients are from the mean."""
    ids, active = matrices.ids, matrices.active
    counts = [len(row) for row in active]
    tasks = sum(counts)
    if len(ids) * max(tasks, 1) > _MOST_SHARES:
        return [np.full(count, -1) for count in counts], None
    shares = np.zeros((len(ids), tasks))
    far = np.zeros((len(active), num_clients))
    first = np.append(0, np.cumsum(counts))
    for step, row in enumerate(active):
        matrix = matrices.steps[step]
        new = (np.searchsorted(ids, row), first[step] + np.arange(len(row)))
        if not recipe.mix_first:
            shares[new] = 1
        if matrix is not None:
            done = slice(0, first[step + 1])
            dense = matrix.nnz > 0.1 * len(ids) ** 2
            shares[:, done] = (matrix.toarray() if dense else matrix) @ shares[:, done]
        if recipe.mix_first:
            shares[new] = 1
        mean = shares.sum(0) / num_clients
        # Clients that hold no model of the cycle are at its start.
        far[step] = (mean**2).sum()
        far[step, ids] = ((shares - mean) ** 2).sum(1)
    reaches = np.split((shares > 0).sum(0), first[1:-1])
    if len(active) * len(shown) > _MOST_DISTANCES:
        return reaches, None
    return reaches, rounded(far[:, shown], 4)


def _shown(plan: Plan, cycles: list[_Matrices], num_clients: int) -> np.ndarray:
    """Ids of the clients to show: all, or a neighbourhood of those who upload."""
    if num_clients <= MOST_CLIENTS:
        return np.arange(num_clients)
    first = cycles[0]
    uploads = plan.cycle(0).upload.reshape(-1)
    starts = [*uploads.tolist(), *np.union1d(uploads, first.ids).tolist()]
    mixed = [matrix for matrix in first.steps if matrix is not None]
    near = sum(mixed[1:], start=mixed[0]) if mixed else None
    chosen: dict[int, None] = {}
    for start in starts:
        queue = [start] if start < num_clients else []
        while queue and len(chosen) < MOST_CLIENTS:
            client = queue.pop(0)
            if client not in chosen and near is not None:
                place = np.searchsorted(first.ids, client)
                row = slice(near.indptr[place], near.indptr[place + 1])
                queue += first.ids[near.indices[row]].tolist()
            chosen[client] = None
    return np.sort(np.array(list(chosen)))


def _facts(algorithm: FederatedAlgorithm, plan: Plan) -> list[tuple[str, Any]]:
    recipe, options = algorithm.recipe, algorithm.options
    width = [int((step < options.num_clients).sum()) for step in plan.cycles.active[0]]
    compute = " to ".join(map(str, sorted({min(width), max(width)})))
    facts: list[tuple[str, Any]] = [
        ("clients", f"{options.num_clients:,}"),
        ("compute per step", compute),
        ("local steps", plan.cycles.active.shape[1]),
        ("clusters", recipe.clustering.num_clusters),
    ]
    if len(plan.clusters) > 1:
        facts.append(("cycles", len(plan.clusters)))
    if recipe.mixing.mixes:
        named = options.topology if isinstance(options.topology, str) else None
        rho = recipe.mixing.spectral_gap()
        facts += [("topology", named)] if named else []
        if rho is not None:
            near = f"1 − {1 - rho:.2g}" if 0.999 < rho < 1 else f"{rho:.3f}"
            facts.append(("ρ", near))
    return facts


def _notes(recipe: Any, num_clients: int, shown: int) -> list[str]:
    notes = []
    if shown < num_clients:
        notes.append(
            f"{shown} of {num_clients:,} clients are shown, a neighbourhood of some "
            "that upload. Totals, weights and shares of all gradients count all "
            "clients; the way of a gradient is followed among those shown."
        )
    if recipe.server is None:
        notes.append(
            "There is no server: models stay with their clients, and weights are those "
            "in the mean of all models."
        )
    if recipe.broadcast != "all":
        notes.append(
            "Not everybody gets the server's model: the others begin with their own, "
            "of which the shares shown here know this round's part."
        )
    if not recipe.mixing.linear:
        notes.append(
            "Clients take no weighted sum of models here: shares and weights are those "
            "of the matrix that their mixing starts from, and no gradient is left out."
        )
    if not recipe.aggregator.linear:
        notes.append(
            "Weights are those before the aggregator, which takes no weighted mean."
        )
    return notes


def _effective(weights: np.ndarray) -> float:
    squares = (weights**2).sum()
    return float(weights.sum() ** 2 / squares / len(weights)) if squares else 0.0
