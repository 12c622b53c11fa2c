"""Who reads whom where clients stand on grids that wrap around.

For a ring, a torus or an exponential graph W is a mean of shifts, the same everywhere,
so the weight of one client's increment in another's model is a power of one stencil at
their distance. Readers find the tasks within reach by search in sorted order: the cost
follows the number of reads, and no array has the size of the population (but for the
cells of a random clustering's clients, which are a table already).
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np

from afga_jax.population.clustering import Clustering


class WrappedGrid(NamedTuple):
    """Clients on grids that wrap around, one per cluster, all mixed by the same shifts.

    Attributes:
      clustering: Clusters, each of which is one grid.
      shape: Lengths of a grid's axes.
      offsets: Shift of each copy that the mixing takes the mean of.
      mixes_before: How often a cycle has mixed before each step, `[steps + 1]`.
    """

    clustering: Clustering
    shape: tuple[int, ...]
    offsets: tuple[tuple[int, ...], ...]
    mixes_before: np.ndarray

    @property
    def window(self) -> list[int]:
        """How far apart, along each axis, a reader and what it reads can be."""
        most = 2 * int(self.mixes_before[-1])
        far = np.abs([_shortest(offset, self.shape) for offset in self.offsets]).max(0)
        return [min(n, most * int(d) + 1) for n, d in zip(self.shape, far, strict=True)]

    @property
    def has_stencil(self) -> bool:
        """Whether its `Stencil` has no too large table: long rounds on wide grids."""
        size = np.prod([float(n) for n in self.window]) * (self.mixes_before[-1] + 1)
        return bool(size <= 2**25)


class Stencil:
    """Reads on grids: weights are powers of the stencil, at the readers' distance.

    A client's *cell* is its number in its cluster's grid, counted from cluster to
    cluster.

    Args:
      grid: Where the clients stand.
      mix_first: x ← Wx + step: an increment is not mixed at its own step.
    """

    def __init__(self, grid: WrappedGrid, mix_first: bool):
        self._grid = grid
        self._window = grid.window
        self._half = [(width - 1) // 2 for width in self._window]
        self._mix_first = mix_first
        self._powers = self._make_powers()
        clustering = grid.clustering
        self._cells = None
        if clustering.members is not None:
            self._cells = np.argsort(clustering.members.reshape(-1))

    def reads(
        self, step, client, uploads, num_clients, before=None, *, everything=False
    ):
        """The needed tasks' numbers, then reader, task and weight of all reads, cells.

        Args:
          step: Local step of each task.
          client: Client id of each task.
          uploads: Ids of the clients that upload; the number of clients is padding.
          num_clients: N.
          before: The task of the same client that each task needs too, −1 for none;
            None: no task needs one.
          everything: Whether all tasks are needed, whoever reads them.
        """
        real = np.flatnonzero(uploads < num_clients)
        end = np.full(len(real), len(self._grid.mixes_before) - 1)
        cell = self._cell(client)
        reader, task, weight = self._pairs(end, self._cell(uploads[real]), step, cell)
        kept = np.arange(len(step)) if everything else np.unique(task)
        # All weights are positive, so what reaches a task that reaches an upload goes
        # on to it with the model that it is in: if its client keeps a part of that,
        # or if no mixing lies between what a task reads and where its increment goes.
        indirect = self._mix_first or before is not None
        shape = self._grid.shape
        keeps_own = any(not any(_shortest(o, shape)) for o in self._grid.offsets)
        if indirect and not everything and not keeps_own:
            kept = self._all_needed(kept, step, cell, before)
        number = np.full(len(step), -1)
        number[kept] = np.arange(len(kept))
        uploads_read = (len(kept) + real[reader], number[task], weight)
        step, cell = step[kept], cell[kept]
        between = self._pairs(step, cell, step, cell)
        pairs = zip(between, uploads_read, strict=True)
        return kept, *(np.concatenate(pair) for pair in pairs), cell

    def _all_needed(self, kept, step, cell, before):
        """These tasks and all that they need, directly or through others."""
        needed, new = np.zeros(len(step), bool), kept
        while len(new):
            needed[new] = True
            _, read, _ = self._pairs(step[new], cell[new], step, cell)
            if before is not None:
                own = before[new]
                read = np.append(read, own[own >= 0])
            read = np.unique(read)
            new = read[~needed[read]]
        return np.flatnonzero(needed)

    def _cell(self, client: np.ndarray) -> np.ndarray:
        return client if self._cells is None else self._cells[client]

    def _make_powers(self) -> np.ndarray:
        power = np.zeros(self._window)
        power[tuple(self._half)] = 1.0
        powers = [power]
        axes = tuple(range(power.ndim))
        # A window may be narrower than the grid, and a roll wraps around the window:
        # by the shortest way nothing leaves it.
        offsets = [_shortest(o, self._grid.shape) for o in self._grid.offsets]
        for _ in range(int(self._grid.mixes_before[-1])):
            shifted = [
                np.roll(powers[-1], tuple(-shift for shift in offset), axes)
                for offset in offsets
            ]
            powers.append(functools.reduce(np.add, shifted) / len(shifted))
        return np.stack(powers)

    def _pairs(self, reader_step, reader_cell, task_step, task_cell):
        """All (reader, task, weight) with a positive weight."""
        reader, task = self._near(reader_cell, task_cell)
        mixes = self._grid.mixes_before
        earlier = task_step[task] < reader_step[reader]
        reader, task = reader[earlier], task[earlier]
        power = mixes[reader_step[reader]] - mixes[task_step[task] + self._mix_first]
        index, inside = [power], np.ones(len(power), bool)
        shape = self._grid.shape
        size = int(np.prod(shape))
        there = np.unravel_index(task_cell[task] % size, shape)
        here = np.unravel_index(reader_cell[reader] % size, shape)
        for axis, width in enumerate(self._window):
            apart = (there[axis] - here[axis] + self._half[axis]) % shape[axis]
            inside &= apart < width
            index.append(np.minimum(apart, width - 1))
        weight = np.where(inside, self._powers[tuple(index)], 0.0)
        positive = weight > 0
        return reader[positive], task[positive], weight[positive]

    def _near(self, reader_cell, task_cell):
        """Candidates: tasks within the window of a reader, by search in sorted order.

        A cell is a number whose last digit is the coordinate on the last axis, so
        those within a window of it are contiguous, once for every position on the
        other axes.
        """
        *lead, size = self._grid.shape
        cells = int(np.prod(self._grid.shape))
        order = np.argsort(task_cell, kind="stable")
        ordered = task_cell[order]
        cluster = reader_cell // cells
        here = np.unravel_index(reader_cell % cells, self._grid.shape)
        starts, ends, readers = [], [], []
        spans = [
            range(-half, width - half)
            for half, width in zip(self._half[:-1], self._window[:-1], strict=True)
        ]
        for offset in itertools.product(*spans):
            line = cluster
            for axis, shift in enumerate(offset):
                line = line * lead[axis] + (here[axis] + shift) % lead[axis]
            for low, high in self._ranges(here[-1]):
                inside = np.flatnonzero(low <= high)
                starts.append((line * size + low)[inside])
                ends.append((line * size + high)[inside])
                readers.append(inside)
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


def _shortest(offset: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The same offset on a grid that wraps around, at most half of each axis."""
    pairs = zip(offset, shape, strict=True)
    return tuple((shift + size // 2) % size - size // 2 for shift, size in pairs)
