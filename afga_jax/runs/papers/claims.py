"""What the papers print, checked without training: arithmetic, and table against table.

A line has the place, what is said there, and what follows from the paper's own numbers
or from this package's matrices and ledger.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from afga_jax import published, topology
from afga_jax.config import Config
from afga_jax.experiment.theory import conditions
from afga_jax.ledger import Links
from afga_jax.published import Published
from afga_jax.record import write_text
from afga_jax.report.layout import csv_lines, markdown
from afga_jax.settings import resolve
from experiments.papers import hours
from experiments.papers.declaration import Study
from experiments.papers.estimate import algorithm_of, gradients_per_round

_SHOWN = {True: "holds", False: "does not hold", None: "doubtful"}
_BASELINES = ("fedavg", "fedadam", "fedamsgrad", "scaffold", "fedprox", "feddyn")
_PRINTED_GAPS = (
    ("AFGA §6.2", 50, 0.995),
    ("AFGA §6.2", 10, 0.873),
    ("HA-Fed §6", 8, 0.805),
)


class Check(NamedTuple):
    """A statement and what comes out.

    Attributes:
      place: In which paper and where.
      says: The statement, in our words.
      found: What follows.
      holds: Whether it does; None: it may, but is hard to believe.
    """

    place: str
    says: str
    found: str
    holds: bool | None


def checks() -> list[Check]:
    """All of them, by paper."""
    return [
        *_gaps(),
        *_theory(),
        _projections(),
        *_hours(),
        *_printed_twice(),
        *_best_of_tables(),
        *_reached_but_lost(),
        *_gains(),
        *_never_active(),
        _cycles(),
    ]


def write(scale: str, out: Path, kept: Path) -> list[str]:
    """Writes the results; returns the table.

    Args:
      scale: Does not matter here.
      out: Of the files.
      kept: Unused: nothing takes long.
    """
    del scale, kept
    found = checks()
    write_text(out / "results.csv", csv_lines([one._asdict() for one in found]))
    body = [[one.place, one.says, one.found, _SHOWN[one.holds]] for one in found]
    return [markdown(["place", "says", "found", "verdict"], body)]


def _gaps() -> Iterator[Check]:
    for place, n, printed in _PRINTED_GAPS:
        rho = topology.spectral_gap(topology.ring(n))
        yield Check(
            place,
            f"a ring of {n} has ρ = {printed}",
            f"{rho:.4f} with weights 1/3",
            round(rho, 3) == printed,
        )


def _theory() -> Iterator[Check]:
    """The conditions of the theorems in the papers' own settings."""
    hafed = {"algo": "hafed_partial", "setting": "hafed"}
    cases = [
        ("AFGA Theorem 4.6", {"algo": "afga", "setting": "1"}),
        ("AFGA Theorem 4.6", {"algo": "afga", "setting": "2"}),
        ("AFGA Theorem D.3", {"algo": "cafga", "setting": "1"}),
        ("AFGA Theorem D.3", {"algo": "cafga", "setting": "2"}),
        ("HA-Fed Corollary 5.11", hafed),
        ("HA-Fed Corollary 5.11", {**hafed, "local_steps": 96}),
        ("HA-Fed Corollary 5.11", {**hafed, "participation": 0.5}),
    ]
    for place, given in cases:
        config = _config(**given)
        found = conditions(config.algo, algorithm_of(config), config.rounds)
        for condition, sides in found.items():
            yield Check(
                place,
                f"{condition} is met by {_described(**given)}",
                f"{sides['left']:.4g} against {sides['right']:.4g}",
                sides["holds"],
            )


def _config(**given: Any) -> Config:
    """A run of the papers, on CIFAR-10."""
    return resolve({**given, "scale": "paper"}, dataset="cifar10").config


def _described(algo: str, setting: str, **more: Any) -> str:
    del algo
    where = "its setting" if setting == "hafed" else f"Setting {setting}"
    return where + "".join(f", {name} = {value}" for name, value in more.items())


def _projections() -> Check:
    matrix = topology.ring(10)
    values = np.linalg.eigvalsh(matrix - topology.complete(10))
    other = [v for v in values if min(abs(v), abs(v - 1)) > 1e-9]
    return Check(
        "AFGA Appendix C",
        "eigenvalues of W − 11ᵀ/n are 0 or 1",
        f"a ring of 10 has {len(other)} others, {min(other):.3f} to {max(other):.3f}",
        not other,
    )


def _hours() -> Iterator[Check]:
    """AFGA's Table 7 from its link costs."""
    stated = Links(broadcast=False)
    for algo, printed in published.HOURS.items():
        config = _config(algo=algo, setting="1")
        each = hours.per_round(config, stated)
        factors = [one.hours / (one.rounds * each) for one in printed]
        yield Check(
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
        yield Check(
            "AFGA Appendix B.1",
            f"{algo} needs less communication time than FedAMSGrad",
            f"printed hours are more at {', '.join(slower)}"
            if slower
            else "printed hours are fewer",
            not slower,
        )


def _printed_twice() -> Iterator[Check]:
    """The same run in two tables."""
    for algo, setting in (("afga", "1"), ("afga", "2"), ("cafga", "2")):
        found = list(published.every(algo, "cifar10", setting, "convmixer"))
        texts = [
            f"{one.accuracy} ({one.source.removeprefix('AFGA ')})" for one in found
        ]
        yield Check(
            "AFGA Tables 1, 5, 8",
            f"{algo}, CIFAR-10, Setting {setting}: one accuracy",
            ", ".join(texts),
            len({one.accuracy for one in found}) == 1,
        )


def _best_of_tables() -> Iterator[Check]:
    """Ours against the best baseline: in accuracy, and in rounds to the target."""
    for dataset, setting, model in dict.fromkeys(one[1:4] for one in published.NUMBERS):
        if setting not in ("1", "2"):
            continue
        for algo in ("afga", "cafga"):
            ours = published.lookup(algo, dataset, setting, model)
            others = [published.lookup(b, dataset, setting, model) for b in _BASELINES]
            yield _more_accurate(ours, others)
            if ours.rounds:
                yield _sooner(ours, others)


def _more_accurate(ours: Published, others: list[Published]) -> Check:
    best = max(others, key=lambda one: one.accuracy)
    return Check(
        ours.source,
        f"{ours.algorithm}, Setting {ours.setting}, {ours.dataset}, {ours.model} is "
        "more accurate than all baselines",
        f"{ours.accuracy} against {best.accuracy} ({best.algorithm})",
        ours.accuracy > best.accuracy,
    )


def _sooner(ours: Published, others: list[Published]) -> Check:
    best = min((one for one in others if one.rounds), key=lambda one: one.rounds)
    return Check(
        ours.source,
        f"{ours.algorithm}, Setting {ours.setting}, {ours.dataset} is the first at "
        f"{ours.target} %",
        f"round {ours.rounds} against {best.rounds} ({best.algorithm})",
        ours.rounds < best.rounds,
    )


def _reached_but_lost() -> Iterator[Check]:
    """Runs that are said to reach the target and end well below it."""
    for one in published.NUMBERS:
        if one.rounds and one.accuracy < one.target - 2:
            yield Check(
                one.source,
                f"{one.algorithm}, {one.dataset}, Setting {one.setting} reaches "
                f"{one.target} % in round {one.rounds}",
                f"and ends at {one.accuracy} %",
                None,
            )


def _gains() -> Iterator[Check]:
    """The text beside AFGA's Table 3."""
    ours = published.lookup("afga", "shakespeare", "1", "lstm").accuracy
    for other, said in (("scaffold", 2.5), ("fedamsgrad", 0.5)):
        gain = ours - published.lookup(other, "shakespeare", "1", "lstm").accuracy
        yield Check(
            "AFGA §6.1",
            f"afga gains about {said} over {other} on Shakespeare, Setting 1",
            f"{gain:.2f} by Table 3",
            abs(gain - said) < 0.25,
        )


def _never_active() -> Iterator[Check]:
    for setting in "12":
        config = _config(algo="afga_adapted", setting=setting)
        active = gradients_per_round(config) / config.local_steps
        share = (1 - active / config.num_clients) ** config.local_steps
        yield Check(
            "AFGA §5, footnote 4",
            f"with re-sampling, whoever uploads has computed (Setting {setting})",
            f"{100 * share:.0f} % of AFGA(a)'s uploads are expected to be zero",
            None if share > 0.01 else True,
        )


def _cycles() -> Check:
    """Gradients of a round, and exchanges with the server that wait for each other."""
    gradients, exchanges = {}, {}
    for algo in ("fedavg", "fedcluster"):
        config = _config(algo=algo, setting="fedcluster")
        gradients[algo] = gradients_per_round(config)
        exchanges[algo] = config.num_clusters if algo == "fedcluster" else 1
    return Check(
        "FedCluster §I-A",
        "a round takes as much computation and communication as FedAvg's",
        f"{gradients['fedcluster']:,} gradients against {gradients['fedavg']:,}; but "
        f"{exchanges['fedcluster']} exchanges, one after another, in place of one",
        gradients["fedcluster"] == gradients["fedavg"],
    )


STUDY = Study(
    "checks",
    "Checks: what the papers print, against itself and against arithmetic",
    write,
    lambda scale: "arithmetic, seconds",
)
