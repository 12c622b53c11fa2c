"""Which gradients of a round read which: known before any of them is computed.

Everybody starts a round at x_r, and mixing is linear, so a client's model is x_r plus
increments that have reached it. A *task* is one gradient, (step t, client i); it reads
the task (s, j), s < t, with the weight that j's increment has in i's model by then,
(W_{t−1} … W_s)ᵢⱼ. An upload reads likewise, at the end. A task that no upload reads,
directly or through others, is not needed and is left out.

All of this is NumPy on the host. For shifts (ring, torus, exponential) the weights are
powers of one stencil and readers find their tasks by sorted search, so the cost
follows the number of reads, not the number of clients; any other mixing is propagated
backwards as sparse rows.
"""

import itertools
from typing import NamedTuple

import numpy as np
import scipy.sparse

from afga_jax.clustering import Clustering
from afga_jax.kernels import Shifts
from afga_jax.mixing import AmongSelected, Every, Mixing, NoMixing, WithinClusters
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
        self._stencil = None
        self._static: scipy.sparse.csr_array | None = None

    def graph(self, plan: Plan, cycle: int = 0) -> Graph:
        """The graph of a cycle; the plan's arrays are NumPy's."""
        part = plan.cycle(cycle)
        num_clients = self._recipe.clustering.num_clients
        step, client = _tasks(part.active, num_clients)
        uploads = np.asarray(part.upload).reshape(-1)
        grid = _grid_of(self._recipe, len(part.active))
        if grid is not None:
            if self._stencil is None:
                self._stencil = _Stencil(grid, self._recipe.mix_first)
            found = self._stencil.reads(step, client, uploads, num_clients)
        else:
            found = self._by_matrices(plan, cycle, step, client, uploads)
        kept, reader, task, weight, place = found
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
        static = isinstance(mixing, WithinClusters) and len(plan.clusters) == 1
        if static and self._static is not None:
            return self._static
        holders = mixing.rows(plan, cycle)
        matrix = np.asarray(mixing.at(plan, step, cycle).matrix(), np.float64)
        if holders is not None:
            order = np.argsort(np.asarray(holders), kind="stable")[: len(ids)]
            matrix = matrix[np.ix_(order, order)]
        matrix = scipy.sparse.csr_array(matrix)
        if static:
            self._static = matrix
        return matrix


def _tasks(active: np.ndarray, num_clients: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.asarray(active).reshape(len(active), -1)
    step, place = np.nonzero(ids < num_clients)
    return step, ids[step, place]


class _Grid(NamedTuple):
    """Clients on grids that wrap around, all mixed by the same shifts."""

    clustering: Clustering
    shape: tuple[int, ...]
    offsets: tuple[tuple[int, ...], ...]
    mixes_before: np.ndarray


def _grid_of(recipe: Recipe, steps: int) -> _Grid | None:
    """What `_Stencil` needs, where the mixing has that structure."""
    mixing, period = recipe.mixing, 1
    if isinstance(mixing, Every):
        mixing, period = mixing.mixing, mixing.period
    if not isinstance(mixing, WithinClusters):
        return None
    kernel = mixing.kernels[0]
    same = all(other is kernel for other in mixing.kernels)
    if not (same and isinstance(kernel, Shifts)):
        return None
    mixes = (np.arange(1, steps + 1) % period == 0).cumsum()
    grid = _Grid(mixing.clustering, kernel.shape, kernel.offsets, np.append(0, mixes))
    # Long rounds on wide grids would need a large table of powers.
    size = np.prod([float(n) for n in _window(grid)]) * (mixes[-1] + 1)
    return grid if size <= 2**25 else None


def _window(grid: _Grid) -> list[int]:
    """How far apart, along each axis, a reader and what it reads can be."""
    widths = []
    for axis, size in enumerate(grid.shape):
        moves = [min(o[axis] % size, -o[axis] % size) for o in grid.offsets]
        widths.append(min(size, 2 * int(grid.mixes_before[-1]) * max(moves) + 1))
    return widths


class _Stencil:
    """Reads on grids: weights are powers of the stencil, at the readers' distance."""

    def __init__(self, grid: _Grid, mix_first: bool):
        self._grid = grid
        self._window = _window(grid)
        self._half = [(width - 1) // 2 for width in self._window]
        self._mix_first = mix_first
        self._powers = self._make_powers()
        clustering = grid.clustering
        self._places = None
        if clustering.members is not None:
            # Position of each client, cluster after cluster.
            self._places = np.argsort(clustering.members.reshape(-1))

    def reads(self, step, client, uploads, num_clients):
        """The needed tasks' numbers, then reader, task and weight of all reads."""
        real = np.flatnonzero(uploads < num_clients)
        end = np.full(len(real), len(self._grid.mixes_before) - 1)
        place, at = self._place(client), self._place(uploads[real])
        reader, task, weight = self._pairs(end, at, step, place)
        # Where an increment reaches a task that reaches an upload, it reaches the
        # upload itself: all weights are positive and everybody keeps a share.
        kept = np.unique(task)
        number = np.full(len(step), -1)
        number[kept] = np.arange(len(kept))
        uploads_read = (len(kept) + real[reader], number[task], weight)
        step, place = step[kept], place[kept]
        between = self._pairs(step, place, step, place)
        joined = (np.concatenate(pair) for pair in zip(between, uploads_read, strict=True))
        return kept, *joined, place

    def _place(self, client: np.ndarray) -> np.ndarray:
        return client if self._places is None else self._places[client]

    def _make_powers(self) -> np.ndarray:
        power = np.zeros(self._window)
        power[tuple(self._half)] = 1.0
        powers = [power]
        axes = tuple(range(power.ndim))
        for _ in range(int(self._grid.mixes_before[-1])):
            shifted = [
                np.roll(powers[-1], tuple(-o for o in offset), axes)
                for offset in self._grid.offsets
            ]
            powers.append(sum(shifted) / len(shifted))
        return np.stack(powers)

    def _pairs(self, reader_step, reader_place, task_step, task_place):
        """All (reader, task, weight) with a positive weight."""
        reader, task = self._near(reader_place, task_place)
        mixes = self._grid.mixes_before
        made = task_step[task] + self._mix_first
        earlier = task_step[task] < reader_step[reader]
        reader, task, made = reader[earlier], task[earlier], made[earlier]
        power = mixes[reader_step[reader]] - mixes[made]
        index, inside = [power], np.ones(len(power), bool)
        shape = self._grid.shape
        size = int(np.prod(shape))
        there = np.unravel_index(task_place[task] % size, shape)
        here = np.unravel_index(reader_place[reader] % size, shape)
        for axis, width in enumerate(self._window):
            apart = (there[axis] - here[axis] + self._half[axis]) % shape[axis]
            inside &= apart < width
            index.append(np.minimum(apart, width - 1))
        weight = np.where(inside, self._powers[tuple(index)], 0.0)
        positive = weight > 0
        return reader[positive], task[positive], weight[positive]

    def _near(self, reader_place, task_place):
        """Candidates: tasks within the window of a reader, by search in sorted order.

        A place is a number whose last digit is the coordinate on the last axis, so
        those within a window of it are contiguous, once for every position on the
        other axes.
        """
        *lead, size = self._grid.shape
        cells = int(np.prod(self._grid.shape))
        order = np.argsort(task_place, kind="stable")
        ordered = task_place[order]
        cluster = reader_place // cells
        here = np.unravel_index(reader_place % cells, self._grid.shape)
        starts, ends, readers = [], [], []
        spans = [
            range(-half, width - half)
            for half, width in zip(self._half[:-1], self._window[:-1], strict=True)
        ]
        for offset in itertools.product(*spans):
            row = cluster
            for axis, move in enumerate(offset):
                row = row * lead[axis] + (here[axis] + move) % lead[axis]
            for low, high in self._ranges(here[-1]):
                some = np.flatnonzero(low <= high)
                starts.append((row * size + low)[some])
                ends.append((row * size + high)[some])
                readers.append(some)
        start = np.searchsorted(ordered, np.concatenate(starts), "left")
        count = np.searchsorted(ordered, np.concatenate(ends), "right") - start
        reader = np.repeat(np.concatenate(readers), count)
        begin = np.repeat(start - np.cumsum(count) + count, count)
        return reader, order[begin + np.arange(count.sum())]

    def _ranges(self, last: np.ndarray):
        """The window around a coordinate of the last axis, cut where it wraps."""
        size, half, width = self._grid.shape[-1], self._half[-1], self._window[-1]
        nothing, end = np.zeros_like(last), np.full_like(last, size - 1)
        if width == size:
            return [(nothing, end)]
        low, high = last - half, last + half
        return [
            (np.maximum(low, 0), np.minimum(high, size - 1)),
            (low + size, np.where(low < 0, end, -1)),
            (nothing, high - size),
        ]


def _universe(mixing, plan, cycle, client, uploads, num_clients) -> np.ndarray:
    """The clients that matter, sorted; mixing does not lead out of them."""
    inner = mixing.mixing if isinstance(mixing, Every) else mixing
    if isinstance(inner, (AmongSelected, NoMixing)):
        ids = np.unique(np.concatenate([client, uploads]))
    else:
        holders = inner.rows(plan, cycle)
        ids = np.arange(num_clients) if holders is None else np.sort(holders)
    return ids[ids < num_clients]


def _units(columns: np.ndarray, width: int) -> scipy.sparse.csr_array:
    count = len(columns)
    ones = (np.ones(count), columns, np.arange(count + 1))
    return scipy.sparse.csr_array(ones, shape=(count, width))


def _rings(part, step: int, ids: np.ndarray, num_clients: int):
    """A ring over the selected of each group; everybody else keeps its model."""
    keeps = np.ones(len(ids))
    rows, columns, weights = [], [], []
    for group in np.asarray(part.active[step]):
        at = np.searchsorted(ids, group[group < num_clients])
        size = len(at)
        if size < 2:
            continue
        moves = (0, 1) if size == 2 else (-1, 0, 1)
        keeps[at] = 0
        for move in moves:
            rows.append(at)
            columns.append(np.roll(at, -move))
            weights.append(np.full(size, 1 / len(moves)))
    still = np.flatnonzero(keeps)
    entries = zip(*[(still, still, np.ones(len(still)))], strict=True)
    rows, columns, weights = (
        np.concatenate([*more, *first])
        for more, first in zip((rows, columns, weights), entries, strict=True)
    )
    matrix = (weights, (rows, columns))
    return scipy.sparse.csr_array(matrix, shape=(len(ids), len(ids)))


def is_linear(mixing: Mixing) -> bool:
    """Whether one step of the mixing is a matrix."""
    return hasattr(mixing, "at")
