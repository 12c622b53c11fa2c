"""Who reads whom where clients stand on grids that wrap around.

For a ring, a torus or an exponential graph W is a mean of shifts, the same everywhere,
so the weight of one client's increment in another's model is a power of one stencil at
their distance. Readers find the tasks within reach by search in sorted order: the cost
follows the number of reads, and no array has the size of the population (but for the
places of a random clustering's clients, which are a table already).
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np

from afga_jax.clustering import Clustering
from afga_jax.kernels import Shifts
from afga_jax.mixing import Every, Mixing, WithinClusters


class Grid(NamedTuple):
    """Clients on grids that wrap around, one per cluster, all mixed by the same shifts.

    Attributes:
      clustering: Who stands on which grid.
      shape: Of a grid.
      offsets: Of the shifts.
      mixes_before: How often a cycle has mixed before each step, `[steps + 1]`.
    """

    clustering: Clustering
    shape: tuple[int, ...]
    offsets: tuple[tuple[int, ...], ...]
    mixes_before: np.ndarray


def grid_of(mixing: Mixing, steps: int) -> Grid | None:
    """What `Stencil` needs, where the mixing has that structure."""
    period = 1
    if isinstance(mixing, Every):
        period = mixing.period
        mixing = mixing.mixing
    if not isinstance(mixing, WithinClusters):
        return None
    kernel = mixing.kernels[0]
    same = all(other is kernel for other in mixing.kernels)
    if not (same and isinstance(kernel, Shifts)):
        return None
    mixes = (np.arange(1, steps + 1) % period == 0).cumsum()
    grid = Grid(mixing.clustering, kernel.shape, kernel.offsets, np.append(0, mixes))
    # Long rounds on wide grids would need a large table of powers.
    size = np.prod([float(n) for n in _window(grid)]) * (mixes[-1] + 1)
    return grid if size <= 2**25 else None


def _window(grid: Grid) -> list[int]:
    """How far apart, along each axis, a reader and what it reads can be."""
    widths = []
    for axis, size in enumerate(grid.shape):
        moves = [abs(_shortest(offset, grid.shape)[axis]) for offset in grid.offsets]
        widths.append(min(size, 2 * int(grid.mixes_before[-1]) * max(moves) + 1))
    return widths


def _shortest(offset: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The same shift of a grid that wraps around, at most half of each axis."""
    pairs = zip(offset, shape, strict=True)
    return tuple((move + size // 2) % size - size // 2 for move, size in pairs)


class Stencil:
    """Reads on grids: weights are powers of the stencil, at the readers' distance.

    Args:
      grid: The clients.
      mix_first: x ← Wx + step: an increment is not mixed at its own step.
    """

    def __init__(self, grid: Grid, mix_first: bool):
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

    def reads(self, step, client, uploads, num_clients, before=None):
        """The needed tasks' numbers, then reader, task and weight of all reads.

        Args:
          step: Of each task.
          client: Of each task.
          uploads: Client ids; the number of clients is padding.
          num_clients: N.
          before: The task of the same client that each task needs too, −1 for none;
            None: no task needs one.
        """
        real = np.flatnonzero(uploads < num_clients)
        end = np.full(len(real), len(self._grid.mixes_before) - 1)
        place, at = self._place(client), self._place(uploads[real])
        reader, task, weight = self._pairs(end, at, step, place)
        kept = np.unique(task)
        # All weights are positive, so what reaches a task that reaches an upload goes
        # on to it with the model that it is in: if its client keeps a share of that,
        # or if no mixing lies between what a task reads and where its increment goes.
        if not self._keeps_share and (self._mix_first or before is not None):
            kept = self._all_needed(kept, step, place, before)
        number = np.full(len(step), -1)
        number[kept] = np.arange(len(kept))
        uploads_read = (len(kept) + real[reader], number[task], weight)
        step, place = step[kept], place[kept]
        between = self._pairs(step, place, step, place)
        pairs = zip(between, uploads_read, strict=True)
        return kept, *(np.concatenate(pair) for pair in pairs), place

    @property
    def _keeps_share(self) -> bool:
        """Whether a mixed model has a share of the client's own."""
        shape = self._grid.shape
        return any(not any(_shortest(o, shape)) for o in self._grid.offsets)

    def _all_needed(self, kept, step, place, before):
        """These tasks and all that they need, directly or through others."""
        needed, new = np.zeros(len(step), bool), kept
        while len(new):
            needed[new] = True
            _, read, _ = self._pairs(step[new], place[new], step, place)
            if before is not None:
                own = before[new]
                read = np.append(read, own[own >= 0])
            read = np.unique(read)
            new = read[~needed[read]]
        return np.flatnonzero(needed)

    def _place(self, client: np.ndarray) -> np.ndarray:
        return client if self._places is None else self._places[client]

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
                np.roll(powers[-1], tuple(-move for move in offset), axes)
                for offset in offsets
            ]
            powers.append(functools.reduce(np.add, shifted) / len(shifted))
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
