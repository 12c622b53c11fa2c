"""Which gradients of a round read which: known before any of them is computed.

Everybody starts a round at x_r, and mixing is linear, so a client's model is x_r plus
increments that have reached it. A *task* is one gradient, (step t, client i); it reads
the task (s, j), s < t, with the weight that j's increment has in i's model by then,
(W_{t−1} … W_s)ᵢⱼ. An upload reads likewise, at the end. A task that no upload reads,
directly or through others, is not needed and is left out, unless optimizers keep their
state for later rounds.

All of this is NumPy on the host. For shifts (ring, torus, exponential) see `stencil`:
the cost follows the number of reads, not the number of clients. Any other mixing is
propagated backwards as sparse rows.
"""

from typing import NamedTuple

import numpy as np
import scipy  # `scipy.sparse` is imported where it is used first

from afga_jax.gossip import stencil
from afga_jax.population.sampling import Plan
from afga_jax.recipe import Recipe


class Graph(NamedTuple):
    """The needed gradients of a cycle and what they and the uploads read.

    Readers are numbered: first the tasks, by step, then the uploads.

    Attributes:
      step: Local step of each task, `[tasks]`.
      client: Client id of each task, `[tasks]`.
      uploads: Ids of the clients that upload; the number of clients is padding,
        `[uploads]`.
      first: Number of the first read of each reader, `[readers + 1]`.
      task: Task that each read reads, `[reads]`.
      weight: Weight of that task's increment in the reader's model, `[reads]`.
      position: Position of each task's client among its neighbours, `[tasks]`: tasks
        that are close read each other.
      planned: Number of gradients that a deployment would compute.
    """

    step: np.ndarray
    client: np.ndarray
    uploads: np.ndarray
    first: np.ndarray
    task: np.ndarray
    weight: np.ndarray
    position: np.ndarray
    planned: int


class Finder:
    """Finds the graph of any plan of one recipe; what all plans share is kept.

    Args:
      recipe: An algorithm with a server and linear mixing.
      stateful: Whether the local optimizer has state: then a gradient also needs the
        client's gradients before it.
    """

    def __init__(self, recipe: Recipe, *, stateful: bool = False):
        self._recipe = recipe
        self._stateful = stateful
        self._stencil: stencil.Stencil | None = None

    def graph(self, plan: Plan, cycle: int = 0) -> Graph:
        """The graph of a cycle; the plan's arrays are NumPy's."""
        part = plan.cycle(cycle)
        num_clients = self._recipe.clustering.num_clients
        active = np.asarray(part.active).reshape(len(part.active), -1)
        step, column = np.nonzero(active < num_clients)
        client = active[step, column]
        uploads = np.asarray(part.upload).reshape(-1)
        before = _before(step, client) if self._stateful else None
        everything = self._recipe.keep_optimizer
        grid = self._recipe.mixing.grid(np.ones(len(part.active), bool))
        if not self._recipe.mixing.mixes:
            kept = np.isin(client, uploads) | everything
            reads = _chains(step, client, uploads, np.flatnonzero(kept))
        elif grid is not None:
            if self._stencil is None:
                self._stencil = stencil.Stencil(grid, self._recipe.mix_first)
            reads = self._stencil.reads(
                step, client, uploads, num_clients, before, everything=everything
            )
        else:
            reads = self._by_matrices(plan, cycle, step, client, uploads)
        kept, reader, task, weight, position = reads
        if self._stateful:
            reader, task, weight = _in_order(
                _before(step[kept], client[kept]), reader, task, weight
            )
        readers = len(kept) + len(uploads)
        first = np.zeros(readers + 1, np.int64)
        np.cumsum(np.bincount(reader, minlength=readers), out=first[1:])
        order = np.lexsort((task, reader))
        tasks, reads = (step[kept], client[kept]), (first, task[order], weight[order])
        return Graph(*tasks, uploads, *reads, position, planned=len(step))

    def _by_matrices(self, plan, cycle, step, client, uploads):
        """Backwards through the steps: sparse rows of what each reader still reads."""
        mixing, num_clients = self._recipe.mixing, self._recipe.clustering.num_clients
        steps = plan.cycles.active.shape[1]
        ids = mixing.involved(plan, cycle, np.concatenate([client, uploads]))
        ids = np.arange(num_clients) if ids is None else np.unique(ids)
        ids = ids[ids < num_clients]
        column = lambda of: np.searchsorted(ids, of)  # noqa: E731
        real = np.flatnonzero(uploads < num_clients)
        # Readers are known by their task's number; uploads come after all tasks.
        readers = len(step) + real
        rows = _units(column(uploads[real]), len(ids))
        matrices = mixing.sparse_steps(plan, steps, cycle, ids)
        reads, later = [], np.zeros(len(ids), bool)
        for t in range(steps - 1, -1, -1):
            here = np.flatnonzero(step == t)
            at = column(client[here])
            matrix = matrices[t]
            if not self._recipe.mix_first and matrix is not None:
                rows = rows @ matrix
            read = rows[:, at].tocoo()
            needed = np.full(len(here), self._recipe.keep_optimizer)
            needed[read.col] = True
            if self._stateful:
                needed |= later[at]
            later[at[needed]] = True
            reads.append((readers[read.row], here[read.col], read.data))
            if self._recipe.mix_first and matrix is not None:
                rows = rows @ matrix
            rows = scipy.sparse.vstack([rows, _units(at[needed], len(ids))], "csr")
            readers = np.concatenate([readers, here[needed]])
        reader, task, weight = map(np.concatenate, zip(*reads, strict=True))
        kept = np.sort(readers[readers < len(step)])
        number = np.full(len(step) + len(uploads), -1)
        number[kept] = np.arange(len(kept))
        number[len(step) :] = len(kept) + np.arange(len(uploads))
        # Without neighbours on a line, tasks are taken step by step.
        position = mixing.neighbourhood(client[kept])
        return kept, number[reader], number[task], weight, position


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


def _chains(
    step: np.ndarray, client: np.ndarray, uploads: np.ndarray, kept: np.ndarray
):
    """Without mixing: a task reads its client's last one, an upload the very last.

    A model is then the client's own, so a task's row holds all that its client has done
    so far, and is read in place of one increment for each step.
    """
    step, client = step[kept], client[kept]
    before = _before(step, client)
    reader = np.flatnonzero(before >= 0)
    task = before[reader]
    last = np.ones(len(step), bool)
    last[task] = False
    ends = np.flatnonzero(last)
    ends = ends[np.argsort(client[ends])]
    at = np.searchsorted(client[ends], uploads)
    upload = np.flatnonzero(at < len(ends))
    upload = upload[client[ends[at[upload]]] == uploads[upload]]
    reader = np.concatenate([reader, len(step) + upload])
    task = np.concatenate([task, ends[at[upload]]])
    # Clients do not read each other, so all of a step before the next.
    position = np.zeros(len(step), np.int64)
    return kept, reader, task, np.ones(len(reader)), position


def _units(columns: np.ndarray, width: int) -> "scipy.sparse.csr_array":
    count = len(columns)
    ones = (np.ones(count), columns, np.arange(count + 1))
    return scipy.sparse.csr_array(ones, shape=(count, width))
