"""Mixing matrices as a page has them: short, and each once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # `scipy.sparse` is imported where it is used first

# W is written as whole numbers of this unit.
_UNIT = 1e-7


@dataclass(frozen=True)
class Graph:
    """W among the clients that are shown. Clients with the same row share one.

    Attributes:
      row: Number of each client's row; −1: it keeps its model.
      columns: Clients that each row takes a part of, as half-open ranges: from, to,
        from, to, …
      weights: Their weights in units of 1e-7; one number where all are the same.
    """

    row: list[int]
    columns: list[list[int]]
    weights: list[list[int] | int]


class Graphs:
    """Graphs among the clients that are shown, each once."""

    def __init__(self, shown: np.ndarray):
        self._shown, self._known = shown, dict[Any, int]()
        self.views: list[Graph] = []

    def number(self, ids: np.ndarray, matrix: "scipy.sparse.csr_array | None") -> int:
        """The number of a mixing's graph; −1: nobody mixes."""
        if matrix is None:
            return -1
        _, here, rows = np.intersect1d(self._shown, ids, return_indices=True)
        part = scipy.sparse.csr_array(matrix)[rows][:, rows]
        part.sort_indices()
        entries = (part.indptr, part.indices, part.data, here)
        name = tuple(array.tobytes() for array in entries)
        if name not in self._known:
            self._known[name] = len(self.views)
            self.views.append(_graph(part, here, len(self._shown)))
        return self._known[name]


def _graph(part: "scipy.sparse.csr_array", here: np.ndarray, count: int) -> Graph:
    row, patterns = [-1] * count, dict[Any, int]()
    columns: list[list[int]] = []
    weights: list[list[int] | int] = []
    for number, client in enumerate(here.tolist()):
        entries = slice(part.indptr[number], part.indptr[number + 1])
        own = here[part.indices[entries]].tolist()
        units = np.round(part.data[entries] / _UNIT).astype(int).tolist()
        if own == [client]:
            continue
        name = (tuple(own), tuple(units))
        if name not in patterns:
            patterns[name] = len(columns)
            columns.append(_ranges(own))
            weights.append(units[0] if len(set(units)) == 1 else units)
        row[client] = patterns[name]
    return Graph(row, columns, weights)


def _ranges(numbers: list[int]) -> list[int]:
    """Ascending numbers as half-open ranges, which are short where clients are many.

    >>> _ranges([0, 1, 2, 7])
    [0, 3, 7, 8]
    """
    edges = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    ends = np.append(edges[1:], len(numbers)) - 1
    pairs = zip(np.take(numbers, edges), np.take(numbers, ends) + 1, strict=True)
    return [int(edge) for pair in pairs for edge in pair]
