"""Which gradients of a round read which: known before any of them is computed.

Everybody starts a round at x_r, and mixing is linear, so a client's model is x_r plus
increments that have reached it. A *task* is one gradient, (step t, client i); it reads
the task (s, j), s < t, with the weight that j's increment has in i's model by then,
(W_{t−1} … W_s)ᵢⱼ. An upload reads likewise, at the end. A task that no upload reads,
directly or through others, is not needed and is left out.

All of this is NumPy on the host. For shifts (ring, torus, exponential) see `stencil`:
the cost follows the number of reads, not the number of clients. Any other mixing is
propagated backwards as sparse rows.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse

from afga_jax import stencil
from afga_jax.mixing import AmongSelected, Every, NoMixing, WithinClusters
from afga_jax.participation import Plan
from afga_jax.recipe import Recipe


class Graph(NamedTuple):
    """The needed gradients of a cycle and what they and the uploads read.

    Readers are numbered: first the tasks, by step, then the uploads.

    Attributes:
      step: Of each task, `[tasks]`.
      client: Of each task, `[tasks]`.
      uploads: Client ids, `[uploads]`; the number of clients is padding.
      first: Where a reader's reads begin, `[readers + 1]`.
      task: What is read, `[reads]`.
      weight: With which weight, `[reads]`.
      place: Where a task's client stands among its neighbours, `[tasks]`: tasks that
        are close read each other.
      planned: Gradients that a deployment would compute.
    """

    step: np.ndarray
    client: np.ndarray
    uploads: np.ndarray
    first: np.ndarray
    task: np.ndarray
    weight: np.ndarray
    place: np.ndarray
    planned: int


class Finder:
    """Finds the graph of any plan of one recipe; what all plans share is kept.

    Args:
      recipe: Any with a server and linear mixing.
      stateful: The local optimizer has state, so a gradient also needs the client's
        gradients before it.
    """

    def __init__(self, recipe: Recipe, *, stateful: bool = False):
        self._recipe = recipe
        self._stateful = stateful
        self._stencil: stencil.Stencil | None = None
        self._static: scipy.sparse.csr_array | None = None

    @property
    def cumulative(self) -> bool:
        """Whether a task's row holds all that its client has done so far.

        Without mixing a model is the client's own, so it is read as one row in place of
        one increment for each step.
        """
        return isinstance(self._recipe.mixing, NoMixing)

    def graph(self, plan: Plan, cycle: int = 0) -> Graph:
        """The graph of a cycle; the plan's arrays are NumPy's."""
        part = plan.cycle(cycle)
        num_clients = self._recipe.clustering.num_clients
        step, client = _tasks(np.asarray(part.active), num_clients)
        uploads = np.asarray(part.upload).reshape(-1)
        before = _before(step, client) if self._stateful else None
        grid = stencil.grid_of(self._recipe.mixing, len(part.active))
        if self.cumulative:
            found = _chains(step, client, uploads)
        elif grid is not None:
            if self._stencil is None:
                self._stencil = stencil.Stencil(grid, self._recipe.mix_first)
            found = self._stencil.reads(step, client, uploads, num_clients, before)
        else:
            found = self._by_matrices(plan, cycle, step, client, uploads)
        kept, reader, task, weight, place = found
        if self._stateful:
            reader, task, weight = _in_order(
                _before(step[kept], client[kept]), reader, task, weight
            )
        readers = len(kept) + len(uploads)
        first = np.zeros(readers + 1, np.int64)
        np.cumsum(np.bincount(reader, minlength=readers), out=first[1:])
        order = np.lexsort((task, reader))
        return Graph(
            step[kept],
            client[kept],
            uploads,
            first,
            task[order],
            weight[order],
            place,
            len(step),
        )

    def _by_matrices(self, plan, cycle, step, client, uploads):
        """Backwards through the steps: sparse rows of what each reader still reads."""
        mixing, num_clients = self._recipe.mixing, self._recipe.clustering.num_clients
        steps = plan.cycles.active.shape[1]
        ids = _universe(mixing, plan, cycle, client, uploads, num_clients)
        column = lambda of: np.searchsorted(ids, of)  # noqa: E731
        real = np.flatnonzero(uploads < num_clients)
        # Readers are known by their task's number; uploads come after all tasks.
        readers = len(step) + real
        rows = _units(column(uploads[real]), len(ids))
        found, later = [], np.zeros(len(ids), bool)
        for t in range(steps - 1, -1, -1):
            here = np.flatnonzero(step == t)
            at = column(client[here])
            matrix = self._matrix(plan, t, cycle, ids)
            if not self._recipe.mix_first and matrix is not None:
                rows = rows @ matrix
            read = rows[:, at].tocoo()
            needed = np.zeros(len(here), bool)
            needed[read.col] = True
            if self._stateful:
                needed |= later[at]
            later[at[needed]] = True
            found.append((readers[read.row], here[read.col], read.data))
            if self._recipe.mix_first and matrix is not None:
                rows = rows @ matrix
            rows = scipy.sparse.vstack([rows, _units(at[needed], len(ids))], "csr")
            readers = np.concatenate([readers, here[needed]])
        reader, task, weight = map(np.concatenate, zip(*found, strict=True))
        kept = np.sort(readers[readers < len(step)])
        number = np.full(len(step) + len(uploads), -1)
        number[kept] = np.arange(len(kept))
        number[len(step) :] = len(kept) + np.arange(len(uploads))
        # Without neighbours on a line, tasks are taken step by step.
        return kept, number[reader], number[task], weight, np.zeros(len(kept), np.int64)

    def _matrix(self, plan, step, cycle, ids) -> scipy.sparse.csr_array | None:
        mixing = self._recipe.mixing
        if isinstance(mixing, Every):
            if (step + 1) % mixing.period:
                return None
            mixing = mixing.mixing
        if isinstance(mixing, NoMixing):
            return None
        if isinstance(mixing, AmongSelected):
            return _rings(plan.cycle(cycle), step, ids, mixing.num_clients)
        if isinstance(mixing, WithinClusters) and len(plan.clusters) == 1:
            if self._static is None:
                self._static = _within(mixing)
            return self._static
        matrix = np.asarray(mixing.at(plan, step, cycle).matrix(), np.float64)
        holders = mixing.rows(plan, cycle)
        if holders is not None:
            order = np.argsort(np.asarray(holders), kind="stable")[: len(ids)]
            matrix = matrix[np.ix_(order, order)]
        return scipy.sparse.csr_array(matrix)


def _before(step: np.ndarray, client: np.ndarray) -> np.ndarray:
    """The task of the same client before each task; −1: it is the client's first."""
    order = np.lexsort((step, client))
    same = client[order][1:] == client[order][:-1]
    before = np.full(len(step), -1)
    before[order[1:][same]] = order[:-1][same]
    return before


def _in_order(before: np.ndarray, reader, task, weight):
    """Reads, and with weight 0 those that a client's state asks for.

    Where a mixed model keeps nothing of the client's own, its earlier increments may
    not be in it; the optimizer's state is, and it takes the gradients in turn.
    """
    later = np.flatnonzero(before >= 0)
    pairs, number = later * len(before) + before[later], len(before)
    missing = later[~np.isin(pairs, reader * number + task)]
    return (
        np.concatenate([reader, missing]),
        np.concatenate([task, before[missing]]),
        np.concatenate([weight, np.zeros(len(missing))]),
    )


def _chains(step: np.ndarray, client: np.ndarray, uploads: np.ndarray):
    """Without mixing: a task reads its client's last one, an upload the very last."""
    kept = np.flatnonzero(np.isin(client, uploads))
    step, client = step[kept], client[kept]
    before = _before(step, client)
    reader = np.flatnonzero(before >= 0)
    task = before[reader]
    last = np.ones(len(step), bool)
    last[task] = False
    ends = np.flatnonzero(last)
    ends = ends[np.argsort(client[ends])]
    at = np.searchsorted(client[ends], uploads)
    found = np.flatnonzero(at < len(ends))
    found = found[client[ends[at[found]]] == uploads[found]]
    reader = np.concatenate([reader, len(step) + found])
    task = np.concatenate([task, ends[at[found]]])
    # Clients do not read each other, so all of a step before the next.
    place = np.zeros(len(step), np.int64)
    return kept, reader, task, np.ones(len(reader)), place


def _tasks(active: np.ndarray, num_clients: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.asarray(active).reshape(len(active), -1)
    step, place = np.nonzero(ids < num_clients)
    return step, ids[step, place]


def _universe(mixing, plan, cycle, client, uploads, num_clients) -> np.ndarray:
    """The clients that matter, sorted; mixing does not lead out of them."""
    inner = mixing.mixing if isinstance(mixing, Every) else mixing
    if isinstance(inner, (AmongSelected, NoMixing)):
        ids = np.unique(np.concatenate([client, uploads]))
    else:
        holders = inner.rows(plan, cycle)
        ids = np.arange(num_clients) if holders is None else np.sort(holders)
    return ids[ids < num_clients]


def _within(mixing: WithinClusters) -> scipy.sparse.csr_array:
    """All clusters' matrices as one, by client id."""
    blocks = [scipy.sparse.coo_array(kernel.matrix()) for kernel in mixing.kernels]
    matrix = scipy.sparse.block_diag(blocks, "coo")
    table = mixing.clustering.table()
    ids = np.concatenate(
        [row[:size] for row, size in zip(table, mixing.clustering.sizes, strict=True)]
    )
    entries = (matrix.data, (ids[matrix.row], ids[matrix.col]))
    return scipy.sparse.csr_array(entries, shape=matrix.shape)


def _units(columns: np.ndarray, width: int) -> scipy.sparse.csr_array:
    count = len(columns)
    ones = (np.ones(count), columns, np.arange(count + 1))
    return scipy.sparse.csr_array(ones, shape=(count, width))


def _rings(part, step: int, ids: np.ndarray, num_clients: int):
    """A ring over the selected of each group; everybody else keeps its model."""
    keeps = np.ones(len(ids), bool)
    entries = []
    for group in np.asarray(part.active[step]):
        at = np.searchsorted(ids, group[group < num_clients])
        if len(at) < 2:
            continue
        keeps[at] = False
        moves = (0, 1) if len(at) == 2 else (-1, 0, 1)
        share = np.full(len(at), 1 / len(moves))
        entries += [(at, np.roll(at, -move), share) for move in moves]
    still = np.flatnonzero(keeps)
    entries.append((still, still, np.ones(len(still))))
    rows, columns, weights = map(np.concatenate, zip(*entries, strict=True))
    shape = (len(ids), len(ids))
    return scipy.sparse.csr_array((weights, (rows, columns)), shape=shape)
