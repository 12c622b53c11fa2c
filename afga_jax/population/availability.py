"""Who is there in which round: by a table, or by hours of the day.

Two kinds of CSV file are read (`read`):

- Rounds: a line for each client, `0` or `1` for each round, commas between. After the
  last round the first comes again.
- Hours: a first line `cluster,from,to`, then lines with the number of a cluster and the
  hours between which its clients are there, such as `0,22,6.5` for 22:00 to 6:30. A
  cluster may have several lines; one that has none is always there. Round r begins at
  hour r·`hours_per_round` of the first day, and who is there then is there for all of
  it.
"""

import hashlib
import math
import os
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from afga_jax import checks
from afga_jax.population.clustering import Clustering
from afga_jax.typing import Array

_HEADER = "cluster,from,to"
_DAY = 24 * 60


@dataclass(frozen=True, eq=False)
class Availability:
    """Who is there, round by round.

    Attributes:
      table: Whether each client, or each cluster, is there, `[rows, rounds]`; after
        the last round the first comes again.
      per_cluster: Whether rows are clusters; otherwise they are clients.
      source: Where the table is from, for messages.
    """

    table: np.ndarray
    per_cluster: bool = False
    source: str = "availability"

    @property
    def digest(self) -> str:
        """Names who is there when, however the file that says it is written.

        >>> Availability(np.eye(2, dtype=bool)).digest
        '60e2453b'
        """
        about = f"{self.per_cluster} {self.table.shape}".encode()
        return hashlib.sha256(about + np.packbits(self.table).tobytes()).hexdigest()[:8]

    def check(self, clustering: Clustering) -> None:
        """Refuses a table of another number of clients or clusters."""
        rows, clusters = len(self.table), clustering.num_clusters
        if self.per_cluster and rows > clusters:
            raise ValueError(
                f"{self.source} names cluster {rows - 1}, but num_clusters = "
                f"{clusters}, counted from 0: leave that line out, or raise "
                "num_clusters."
            )
        if not self.per_cluster and rows != clustering.num_clients:
            raise ValueError(
                f"{self.source} has {rows} rows, but num_clients = "
                f"{clustering.num_clients}: give one row for each client."
            )

    def at(self, round: Array, clustering: Clustering) -> Array:
        """Whether each client is there in a round, `[N]`."""
        table = self.table
        if self.per_cluster:
            more = clustering.num_clusters - len(table)
            table = np.pad(table, ((0, more), (0, 0)), constant_values=True)
        now = jnp.asarray(table)[:, round % table.shape[1]]
        return now[clustering.labels()] if self.per_cluster else now


def as_availability(given: object) -> Availability:
    """An `Availability` from what users pass: one, or an array `[N, rounds]`."""
    if isinstance(given, Availability):
        return given
    table = np.asarray(given)
    if table.ndim != 2 or not table.size or not np.isin(table, (0, 1)).all():
        raise ValueError(
            f"availability has shape {table.shape}, but it must be zeros and ones, "
            "[clients, rounds]: for a file, pass availability.read(path)."
        )
    return Availability(table.astype(bool))


def read(
    path: str | os.PathLike[str], hours_per_round: float | None = None
) -> Availability:
    """Reads a file of rounds or of hours; see the module.

    Args:
      path: The CSV file.
      hours_per_round: Hours from the beginning of one round to that of the next, for a
        file of hours; None: 1.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text"
        raise ValueError(
            f"the file {path} cannot be read ({reason}): give a CSV file of who is "
            "there."
        ) from error
    lines = [
        (number, [word.strip() for word in line.split(",")])
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]
    if not lines:
        raise ValueError(
            f"{path} is empty, but it must hold a line for each client, or {_HEADER} "
            "and a line for each cluster."
        )
    if ",".join(lines[0][1]) == _HEADER:
        hours = 1.0 if hours_per_round is None else hours_per_round
        return _hours(path, lines[1:], hours)
    if hours_per_round is not None:
        raise ValueError(
            f"hours_per_round = {hours_per_round:g}, but {path} is about rounds: leave "
            f"it out, or begin the file with {_HEADER}."
        )
    return _rounds(path, lines)


def _rounds(path, lines) -> Availability:
    width = len(lines[0][1])
    for number, words in lines:
        for word in words:
            if word not in ("0", "1"):
                raise ValueError(
                    f"{path}, line {number}: {word!r}, but each entry must be 0 or 1, "
                    f"one for each round (or the first line {_HEADER})."
                )
        if len(words) != width:
            raise ValueError(
                f"{path}, line {number}: {len(words)} rounds, but line {lines[0][0]} "
                f"has {width}: give equally many for each client."
            )
    table = np.array([[word == "1" for word in words] for _, words in lines])
    return Availability(table, source=str(path))


def _hours(path, lines, hours_per_round: float) -> Availability:
    checks.number("hours_per_round", hours_per_round, above=0)
    step = round(hours_per_round * 60)
    if step < 1 or not math.isclose(step, hours_per_round * 60):
        raise ValueError(
            f"hours_per_round = {hours_per_round}, but it must be whole minutes: take "
            f"{max(step, 1) / 60:.6g}."
        )
    spans = [_span(path, number, words) for number, words in lines]
    if not spans:
        raise ValueError(f"{path} has no line after {_HEADER}: name a cluster.")
    period = _DAY // math.gcd(step, _DAY)
    minute = np.arange(period) * step % _DAY
    table = np.zeros((1 + max(cluster for cluster, *_ in spans), period), bool)
    for cluster, first, last in spans:
        length = (last - first) % _DAY or _DAY
        table[cluster] |= (minute - first) % _DAY < length
    named = {cluster for cluster, *_ in spans}
    table[[k for k in range(len(table)) if k not in named]] = True
    return Availability(table, per_cluster=True, source=str(path))


def _span(path, number: int, words: list[str]) -> tuple[int, int, int]:
    """A cluster, and the minutes between which it is there."""
    if len(words) != 3 or not words[0].isdecimal() or int(words[0]) > 10**6:
        raise ValueError(
            f"{path}, line {number}: {','.join(words)!r}, but it must be a cluster's "
            f"number and two hours, as in {_HEADER}: for example 0,22,6."
        )
    minutes = []
    for word in words[1:]:
        try:
            hour = float(word)
        except ValueError:
            hour = math.nan
        if not 0 <= hour <= 24 or not math.isclose(round(hour * 60), hour * 60):
            raise ValueError(
                f"{path}, line {number}: {word!r}, but an hour must be >= 0 and <= 24, "
                "in whole minutes: 6.5 is 6:30."
            )
        minutes.append(round(hour * 60))
    first, last = minutes
    if first == last:
        raise ValueError(
            f"{path}, line {number}: from {words[1]} to {words[2]} is no time at all: "
            "write 0,24 for the whole day."
        )
    return int(words[0]), first, last
