"""What the papers print, checked without training: arithmetic, and table against table.

A line has the place, what is said there, and what follows from the paper's own numbers
or from this package's matrices and ledger.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from afga_jax.gossip import topology
from afga_jax.runs import published
from afga_jax.runs.config import Config
from afga_jax.runs.experiment.theory import conditions
from afga_jax.runs.papers import hours
from afga_jax.runs.papers.declaration import Study
from afga_jax.runs.papers.estimate import algorithm_of, gradients_per_round
from afga_jax.runs.published import Published
from afga_jax.runs.report.tables import markdown
from afga_jax.runs.settings import resolve
from afga_jax.training.ledger import Links

_SHOWN = {True: "holds", False: "does not hold", None: "doubtful"}
_BASELINES = ("fedavg", "fedadam", "fedamsgrad", "scaffold", "fedprox", "feddyn")


class Claim(NamedTuple):
    """A statement and what comes out.

    Attributes:
      place: The paper, and where in it.
      says: The statement, in our words.
      found: What follows from other numbers.
      holds: Whether it does; None: it may, but is hard to believe.
    """

    place: str
    says: str
    found: str
    holds: bool | None


def claims() -> list[Claim]:
    """All of them, by paper."""
    papers = (
        *(_gaps, _theory, _projections, _hours, _printed_twice, _best_of_tables),
        *(_reached_but_lost, _gains, _never_active, _cycles),
    )
    return [claim for part in papers for claim in part()]


def _table(results: list[Claim]) -> list[str]:
    body = [[*claim[:3], _SHOWN[claim.holds]] for claim in results]
    return [markdown(["place", "says", "found", "verdict"], body)]


def _gaps() -> Iterator[Claim]:
    gaps = (("AFGA §6.2", 50, 0.995), ("AFGA §6.2", 10, 0.873), ("HA-Fed §6", 8, 0.805))
    for place, n, printed in gaps:
        rho = topology.spectral_gap(topology.ring(n))
        yield Claim(
            place,
            f"a ring of {n} has ρ = {printed}",
            f"{rho:.4f} with weights 1/3",
            round(rho, 3) == printed,
        )


def _theory() -> Iterator[Claim]:
    """The conditions of the theorems in the papers' own settings."""
    hafed = {"algo": "hafed_partial", "setting": "hafed"}
    cases: list[tuple[str, dict[str, Any]]] = [
        (f"AFGA Theorem {theorem}", {"algo": algo, "setting": setting})
        for algo, theorem in (("afga", "4.6"), ("cafga", "D.3"))
        for setting in "12"
    ]
    for more in ({}, {"local_steps": 96}, {"participation": 0.5}):
        cases.append(("HA-Fed Corollary 5.11", {**hafed, **more}))
    for place, given in cases:
        config = _config(**given)
        required = conditions(config.algo, algorithm_of(config), config.rounds)
        for condition, sides in required.items():
            yield Claim(
                place,
                f"{condition} is met by {_described(**given)}",
                f"{sides['left']:.4g} against {sides['right']:.4g}",
                sides["holds"],
            )


def _printed(*names: str) -> Published:
    """The first number that a paper prints for a run."""
    return next(published.every(*names))


def _config(**given: Any) -> Config:
    """A run of the papers, on CIFAR-10."""
    return resolve({**given, "scale": "paper"}, dataset="cifar10").config


def _described(algo: str, setting: str, **more: Any) -> str:
    del algo
    where = "its setting" if setting == "hafed" else f"Setting {setting}"
    return where + "".join(f", {name} = {value}" for name, value in more.items())


def _projections() -> Iterator[Claim]:
    matrix = topology.ring(10)
    values = np.linalg.eigvalsh(matrix - topology.complete(10))
    other = [v for v in values if min(abs(v), abs(v - 1)) > 1e-9]
    yield Claim(
        "AFGA Appendix C",
        "eigenvalues of W − 11ᵀ/n are 0 or 1",
        f"a ring of 10 has {len(other)} others, {min(other):.3f} to {max(other):.3f}",
        not other,
    )


def _hours() -> Iterator[Claim]:
    """AFGA's Table 7 from its link costs."""
    stated = Links(broadcast=False)
    for algo, printed in published.HOURS.items():
        config = _config(algo=algo, setting="1")
        each = hours.per_round(config, stated)
        factors = [cell.hours / (cell.rounds * each) for cell in printed]
        yield Claim(
            "AFGA Table 7",
            f"hours of {algo} follow from 18 s and 1.8 s a message",
            f"printed are {min(factors):.3f} to {max(factors):.3f} times as many",
            np.allclose(factors, 1, rtol=1e-3),
        )
    for algo in ("afga", "cafga"):
        cells = zip(published.HOURS[algo], published.HOURS["fedamsgrad"], strict=True)
        slower = [
            f"{ours.accuracy} %" for ours, base in cells if ours.hours > base.hours
        ]
        yield Claim(
            "AFGA Appendix B.1",
            f"{algo} needs less communication time than FedAMSGrad",
            f"printed hours are more at {', '.join(slower)}"
            if slower
            else "printed hours are fewer",
            not slower,
        )


def _printed_twice() -> Iterator[Claim]:
    """The same run in two tables."""
    for algo, setting in (("afga", "1"), ("afga", "2"), ("cafga", "2")):
        numbers = list(published.every(algo, "cifar10", setting, "convmixer"))
        texts = [
            f"{number.accuracy} ({number.source.removeprefix('AFGA ')})"
            for number in numbers
        ]
        yield Claim(
            "AFGA Tables 1, 5, 8",
            f"{algo}, CIFAR-10, Setting {setting}: one accuracy",
            ", ".join(texts),
            len({number.accuracy for number in numbers}) == 1,
        )


def _best_of_tables() -> Iterator[Claim]:
    """Ours against the best baseline: in accuracy, and in rounds to the target."""
    for dataset, setting, model in dict.fromkeys(
        number[1:4] for number in published.NUMBERS
    ):
        if setting not in ("1", "2"):
            continue
        others = [_printed(name, dataset, setting, model) for name in _BASELINES]
        best = max(others, key=lambda number: number.accuracy)
        for algo in ("afga", "cafga"):
            ours = _printed(algo, dataset, setting, model)
            what = f"{algo}, Setting {setting}, {dataset}"
            yield Claim(
                ours.source,
                f"{what}, {model} is more accurate than all baselines",
                f"{ours.accuracy} against {best.accuracy} ({best.algorithm})",
                ours.accuracy > best.accuracy,
            )
            if not ours.rounds:
                continue
            reached = [number for number in others if number.rounds]
            first = min(reached, key=lambda number: number.rounds)
            yield Claim(
                ours.source,
                f"{what} is the first at {ours.target} %",
                f"round {ours.rounds} against {first.rounds} ({first.algorithm})",
                ours.rounds < first.rounds,
            )


def _reached_but_lost() -> Iterator[Claim]:
    """Runs that are said to reach the target and end well below it."""
    for number in published.NUMBERS:
        if number.rounds and number.accuracy < number.target - 2:
            yield Claim(
                number.source,
                f"{number.algorithm}, {number.dataset}, Setting {number.setting} "
                f"reaches {number.target} % in round {number.rounds}",
                f"and ends at {number.accuracy} %",
                None,
            )


def _gains() -> Iterator[Claim]:
    """The text beside AFGA's Table 3."""
    ours = _printed("afga", "shakespeare", "1", "lstm").accuracy
    for other, said in (("scaffold", 2.5), ("fedamsgrad", 0.5)):
        gain = ours - _printed(other, "shakespeare", "1", "lstm").accuracy
        yield Claim(
            "AFGA §6.1",
            f"afga gains about {said} over {other} on Shakespeare, Setting 1",
            f"{gain:.2f} by Table 3",
            abs(gain - said) < 0.25,
        )


def _never_active() -> Iterator[Claim]:
    for setting in "12":
        config = _config(algo="afga_adapted", setting=setting)
        active = gradients_per_round(config) / config.local_steps
        share = (1 - active / config.num_clients) ** config.local_steps
        yield Claim(
            "AFGA §5, footnote 4",
            f"with re-sampling, whoever uploads has computed (Setting {setting})",
            f"{100 * share:.0f} % of AFGA(a)'s uploads are expected to be zero",
            None if share > 0.01 else True,
        )


def _cycles() -> Iterator[Claim]:
    """Gradients of a round, and exchanges with the server that wait for each other."""
    gradients, exchanges = {}, {}
    for algo in ("fedavg", "fedcluster"):
        config = _config(algo=algo, setting="fedcluster")
        gradients[algo] = gradients_per_round(config)
        exchanges[algo] = config.num_clusters if algo == "fedcluster" else 1
    yield Claim(
        "FedCluster §I-A",
        "a round takes as much computation and communication as FedAvg's",
        f"{gradients['fedcluster']:,} gradients against {gradients['fedavg']:,}; but "
        f"{exchanges['fedcluster']} exchanges, one after another, in place of one",
        gradients["fedcluster"] == gradients["fedavg"],
    )


STUDY = Study(
    "checks",
    "Checks: what the papers print, against itself and against arithmetic",
    lambda *_: claims(),
    Claim._asdict,
    _table,
    lambda scale: "arithmetic, seconds",
)
