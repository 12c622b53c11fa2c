"""What a finished run would have cost over other links: nothing is trained again.

The ledger's hours are linear in the prices of its two kinds of links,

    hours = (server·a + client·b)/3600,

with what waits for each other on the server's links, what does so on the links between
clients, and the seconds a and b that each unit takes. By *latency* the units are
messages, by *bandwidth* bytes, with a and b one over the speed of a link. Which method
is cheapest depends on the ratio r = b/a alone: a method is a line server + client·r.

Curves hold both loads exactly, though not as columns:

- Where clients mix, those who upload are those whom the server serves: server messages
  are twice the uploads, and what is left of the hours at the prices of the run is
  client messages, passing on of x_r included.
- Where nobody mixes there are no local links: all of the hours, and all bytes, are the
  server's.
- A run without gossip therefore tells the bytes of a model, its bytes over its server
  messages; for one with gossip all messages must be of that size, which is checked.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from afga_jax import checks
from afga_jax.runs.record import Run
from afga_jax.runs.report.results import evaluated_rounds, values
from afga_jax.training.ledger import Links

#: Kinds of prices: seconds a message, and bytes over speeds.
LATENCY, BANDWIDTH = KINDS = ("latency", "bandwidth")

# Rounded hours in a file of curves leave a count within this of a whole number.
_WHOLE = 0.11


class Load(NamedTuple):
    """What waits for each other on the two kinds of links, in messages or bytes.

    Attributes:
      server: To and from the server.
      client: Between clients.
    """

    server: float
    client: float

    def hours(self, ratio: float, server_seconds: float) -> float:
        """Time for the load.

        Args:
          ratio: r, the price of a unit between clients over that of one to the server.
          server_seconds: a, the seconds of a unit to the server.

        >>> Load(server=10, client=50).hours(ratio=0.1, server_seconds=18.0)
        0.075
        """
        return (self.server + self.client * ratio) * server_seconds / 3600


@dataclass(frozen=True)
class Ledger:
    """What a run sent, and how accurate it was, at each evaluated round.

    Attributes:
      label: Name of the run or its method, for tables and messages.
      rounds: The evaluated rounds, `[evaluated rounds]`.
      accuracy: Test accuracy from 0 to 1, `[seeds, evaluated rounds]`.
      gossips: Whether its clients send each other messages.
      loads: By kind, what waits on the server's links and on those between clients,
        `[2, seeds, evaluated rounds]`.
    """

    label: str
    rounds: np.ndarray
    accuracy: np.ndarray
    gossips: bool
    loads: dict[str, np.ndarray]


class AtTarget(NamedTuple):
    """What it took a method to get to an accuracy, with an entry for each seed.

    Attributes:
      rounds: First evaluated round at the accuracy.
      loads: By kind, the loads up to there.
    """

    rounds: list[int]
    loads: dict[str, list[Load]]


@dataclass(frozen=True)
class Prices:
    """What is asked of the links.

    Attributes:
      server_seconds: Seconds of a message to or from the server; 18 in AFGA, §6.
      client_seconds: Seconds of a message between clients; 1.8 there.
      server_speed: Speed of a link to the server, Mbit/s; no paper has one.
      client_speed: Speed of a link between clients, Mbit/s.
      lowest_ratio: Lowest r that is looked at.
      highest_ratio: Highest r that is looked at.
    """

    server_seconds: float = Links.server_seconds
    client_seconds: float = Links.client_seconds
    server_speed: float = 10.0
    client_speed: float = 100.0
    lowest_ratio: float = 1e-3
    highest_ratio: float = 1.0

    def __post_init__(self):
        positive = ("server_seconds", "server_speed", "client_speed", "lowest_ratio")
        for name in positive:
            checks.number(name, getattr(self, name), above=0)
        checks.number("client_seconds", self.client_seconds, at_least=0)
        low, reason = self.lowest_ratio, "the range is empty"
        checks.number("highest_ratio", self.highest_ratio, above=low, fix=reason)

    def server(self, kind: str) -> float:
        """Seconds a of a message, or of a byte, on a link to the server."""
        return self.server_seconds if kind == LATENCY else 8e-6 / self.server_speed

    def ratio(self, kind: str) -> float:
        """The ratio r = b/a that the two prices come to."""
        if kind == LATENCY:
            return self.client_seconds / self.server_seconds
        return self.server_speed / self.client_speed


class Share(NamedTuple):
    """Ratios between which one method is the cheapest."""

    method: int
    low: float
    high: float


def ledgers(runs: Sequence[Run], labels: Sequence[str]) -> list[Ledger]:
    """What some runs sent that trained the same model.

    Args:
      runs: The runs; at least one without gossip, which tells the bytes of a model.
      labels: A name for each run.

    Raises:
      ValueError: A run lacks what is needed, or the numbers do not fit together.
    """
    messages = [_messages(run, label) for run, label in zip(runs, labels, strict=True)]
    gossips = [bool(_last(run, "gossip_messages_total")) for run in runs]
    sizes = [
        _last(run, "bytes_total") / load[0, 0, -1]
        for run, load, mixes in zip(runs, messages, gossips, strict=True)
        if not mixes and load[0, 0, -1]
    ]
    if not sizes or not any(gossips):
        raise ValueError(
            f"there is no run {'with' if sizes else 'without'} messages between "
            "clients, but prices compare methods that gossip with others: give both."
        )
    ledgers = []
    for run, label, load, mixes in zip(runs, labels, messages, gossips, strict=True):
        sent = values(run, "bytes_total")
        volume = np.stack([sent, np.zeros_like(sent)])
        if mixes:
            _check_size(run, label, min(sizes))
            volume = load * min(sizes)
        loads = {LATENCY: load, BANDWIDTH: volume}
        accuracy = values(run, "test_accuracy")
        ledgers.append(Ledger(label, evaluated_rounds(run), accuracy, mixes, loads))
    return ledgers


def reached(ledger: Ledger, target: float) -> AtTarget | None:
    """What it took each seed to get to an accuracy; None: one of them did not."""
    there = ledger.accuracy >= target
    if not there.any(1).all():
        return None
    columns = there.argmax(1)
    loads = {
        kind: [Load(*map(float, load[:, *at])) for at in enumerate(columns)]
        for kind, load in ledger.loads.items()
    }
    return AtTarget([int(ledger.rounds[column]) for column in columns], loads)


def highest(ledger: Ledger) -> float:
    """The highest accuracy that all seeds reach; 0: none was measured."""
    known = np.where(np.isfinite(ledger.accuracy), ledger.accuracy, 0.0)
    return float(known.max(1).min())


def common_target(ledgers: Sequence[Ledger]) -> float:
    """The highest whole percent that all seeds of all methods reach.

    Raises:
      ValueError: There is none, as where a run diverged or has no accuracy.
    """
    # Accuracies are counts of samples over their number: 0.29 must not become 28 %.
    target = math.floor(100 * min(map(highest, ledgers)) + 1e-9) / 100
    if target <= 0:
        raise ValueError(
            "there is no accuracy that all of these runs reach: name the target, or "
            "leave out the runs that have none."
        )
    return target


def mean(loads: Sequence[Load]) -> Load:
    """The mean over seeds; as hours are linear, its hours are their mean."""
    return Load(*(float(np.mean(part)) for part in zip(*loads, strict=True)))


def crossing(first: Load, second: Load) -> float:
    """The ratio at which two loads take equally long; NaN: there is no single one.

    server₁ + client₁·r = server₂ + client₂·r, so r = (server₂ − server₁)/(client₁ −
    client₂); negative where one load is the smaller for every price.
    """
    steeper = first.client - second.client
    return (second.server - first.server) / steeper if steeper else math.nan


def break_even(gossip: Load, baseline: Load) -> float:
    """The ratio below which a method with gossip is cheaper than one without.

    Args:
      gossip: The load with messages between clients.
      baseline: The load without any.

    Returns:
      0 where gossip is the dearer one even if messages between clients are free.

    >>> break_even(Load(2000, 10000), Load(2500, 0))
    0.05
    """
    return max(0.0, crossing(gossip, baseline))


def cheapest(loads: Sequence[Load], low: float, high: float) -> list[Share]:
    """Which load takes the least time at which ratio: the lower envelope of lines.

    Args:
      loads: The loads; of equal ones the first counts.
      low: The lowest ratio.
      high: The highest ratio.

    Returns:
      Shares in the order of ratios, from `low` to `high` without gaps.

    >>> cheapest([Load(2000, 10000), Load(2500, 0)], 0.01, 1.0)
    [Share(method=0, low=0.01, high=0.05), Share(method=1, low=0.05, high=1.0)]
    """
    pairs = itertools.combinations(loads, 2)
    inner = {ratio for pair in pairs if low < (ratio := crossing(*pair)) < high}
    bounds = [low, *sorted(inner), high]
    shares: list[Share] = []
    for start, end in itertools.pairwise(bounds):
        # Between crossings the order of the lines does not change.
        middle = (start + end) / 2
        hours = [load.hours(middle, 1.0) for load in loads]
        method = hours.index(min(hours))
        if shares and shares[-1].method == method:
            start = shares.pop().low
        shares.append(Share(method, start, end))
    return shares


def _messages(run: Run, label: str) -> np.ndarray:
    """Messages that wait for each other, `[2, seeds, evaluated rounds]`."""
    hours, uploads = values(run, "hours"), values(run, "uploads_total")
    if not hours.size or not np.isfinite(hours + uploads).all():
        raise ValueError(
            f"{label} has no hours or uploads in its curves, but prices need both: "
            "give the folder of a run, or curves that a comparison wrote."
        )
    server_seconds = run.config.get("server_seconds", Links.server_seconds)
    client_seconds = run.config.get("client_seconds", Links.client_seconds)
    if _last(run, "gossip_messages_total"):
        server = 2 * uploads
        rest = 3600 * hours - server * server_seconds
        return np.stack([server, _count(rest, client_seconds, label)])
    server = _count(3600 * hours, server_seconds, label)
    return np.stack([server, np.zeros_like(server)])


def _count(seconds: np.ndarray, each: float, label: str) -> np.ndarray:
    """Whole messages of so many seconds each."""
    count = np.round(seconds / each) if each else np.full_like(seconds, np.nan)
    if not (np.abs(seconds / (each or 1) - count) < _WHOLE).all() or (count < 0).any():
        raise ValueError(
            f"the hours of {label} are no whole number of messages of {each:g} s, so "
            "they cannot be priced again: give the folder of the run, which says what "
            "a message cost, or one whose messages cost something."
        )
    return count


def _check_size(run: Run, label: str, size: float) -> None:
    """Whether all messages of a run have one size."""
    whole = _last(run, "bytes_total") / size
    known = 2 * _last(run, "uploads_total") + _last(run, "gossip_messages_total")
    if whole < known or whole != round(whole):
        raise ValueError(
            f"the messages of {label} are not all of {size:,.0f} bytes, which is the "
            "model by the runs without gossip: compare runs of one model, with "
            "FedAvg or FedAMSGrad among them."
        )


def _last(run: Run, name: str) -> float:
    table = values(run, name)
    return float(table[0, -1]) if table.size else 0.0
