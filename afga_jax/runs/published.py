"""The papers' numbers: final accuracies, rounds to a target, hours.

Accuracies are in percent, the last five rounds averaged. Where a paper gives a value
twice and differently, the first table goes first; `every` shows them all.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Published(NamedTuple):
    """A number of a paper.

    Attributes:
      algorithm: Name of the algorithm, as in `afga_jax.ALGORITHMS`.
      dataset: Name of the data set, as in `afga_jax.data`.
      setting: `1` … `4` of AFGA, `hafed`.
      model: Name of the model, as in `afga_jax.models`.
      source: The paper's table that prints it.
      accuracy: Final test accuracy in percent.
      deviation: The ± behind it; None: not printed.
      deviation_of: What ± means: `std` over 3 seeds, or standard error, `sem`.
      target: The accuracy that `rounds` refers to; None: not printed.
      rounds: The first round at the target; None: not within `budget`.
      budget: How many rounds were run.
    """

    algorithm: str
    dataset: str
    setting: str
    model: str
    source: str
    accuracy: float
    deviation: float | None = None
    deviation_of: str = "std"
    target: float | None = None
    rounds: int | None = None
    budget: int | None = None


class Hours(NamedTuple):
    """A cell of AFGA's Table 7, CIFAR-10 in Setting 1.

    Attributes:
      accuracy: The target, percent.
      hours: Simulated hours, as printed.
      rounds: Which round that is, at 1800 s (FedAMSGrad) and 2664 s per round.
    """

    accuracy: int
    hours: float
    rounds: int


def lookup(
    algorithm: str, dataset: str, setting: str | None, model: str
) -> Published | None:
    """The paper's number for a run, or None.

    >>> number = lookup("cafga", "cifar10", "2", "convmixer")
    >>> print(number.accuracy, number.deviation, number.rounds, number.source)
    82.1 0.67 112 AFGA Table 1
    """
    return next(every(algorithm, dataset, setting, model), None)


def every(
    algorithm: str, dataset: str, setting: str | None, model: str
) -> Iterator[Published]:
    """All numbers for a run; tables of one paper may disagree."""
    asked = (algorithm, dataset, str(setting), model)
    return (number for number in NUMBERS if number[:4] == asked)


def _read(file: str) -> tuple[Published, ...]:
    """The rows of a file; an empty cell is a number that is not printed."""
    kinds: dict[str, Any] = dict.fromkeys(("accuracy", "deviation"), float)
    kinds |= dict.fromkeys(("target", "rounds", "budget"), int)
    with Path(__file__).with_name(file).open(newline="") as rows:
        return tuple(
            Published(**{k: kinds.get(k, str)(v) for k, v in row.items() if v})
            for row in csv.DictReader(rows)
        )


#: All final accuracies. AFGA's Table 8 does not name its setting; its rounds are those
#: of Setting 2. In Table 5 one copy of the paper's text reads 239 for 259 rounds.
NUMBERS = _read("published.csv")

#: AFGA Table 4: gossip without re-sampling, CIFAR-10 in Setting 2 (`resample=False`).
GOSSIP_ONLY = Published(
    "afga", "cifar10", "2", "convmixer", "AFGA Table 4", 77.39, 0.01, budget=500
)


def _hours(*cells: tuple[float, int]) -> tuple[Hours, ...]:
    pairs = zip((70, 75, 78, 80), cells, strict=True)
    return tuple(Hours(accuracy, *cell) for accuracy, cell in pairs)


#: AFGA Table 7: simulated hours to an accuracy; FedAMSGrad's last lies past round 500.
HOURS: dict[str, tuple[Hours, ...]] = {
    "fedamsgrad": _hours((76.0, 152), (128.0, 256), (194.0, 388), (281.0, 562)),
    "afga": _hours((91.76, 124), (130.98, 177), (223.48, 302), (250.86, 339)),
    "cafga": _hours((76.22, 103), (102.86, 139), (172.42, 233), (179.82, 243)),
}
