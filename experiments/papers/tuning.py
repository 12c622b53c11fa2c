"""Rates and ε from a search of the same size for each method.

Nine choices run for a seventh of the rounds, the best three of them for two fifths, so
that who starts fast does not win by that alone. They are judged by accuracy on a part
of the test split, which flatters all methods alike, with a seed that no table uses.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from afga_jax.record import Run
from afga_jax.settings import Resolved
from afga_jax.settings.families import ADAM, AVERAGING, SERVERLESS
from afga_jax.summary import merit
from experiments import grid
from experiments.grid import Cell
from experiments.papers.cells import RATES, Entry, method

Train = Callable[[list[Cell]], list[tuple[Cell, Run]]]

_TRIAL_SEED, _TEST_SAMPLES = 1000, 2000
_SHORT, _LONG, _KEPT = 1 / 7, 2 / 5, 3
# As many trials for each method: where a server or a client adapts, ε matters as much
# as the rate; elsewhere there is no ε, and the rate is searched more widely. Short runs
# of small models want less than the papers' rates, and small ε, as AFGA's mean change
# is M/N of FedAMSGrad's (its v̂ the square): best trials once lay on the edges there.
_FACTORS, _EPSILONS = (1 / 9, 1 / 3, 1.0), (1e-10, 1e-8, 1e-6)
_WIDE_FACTORS = tuple(3.0**power for power in range(-4, 5))
_SOURCE = f"tuned: best of {len(_WIDE_FACTORS)} on the test split"


def tuned(found: Sequence[Entry], cells: Path, train: Train) -> list[Entry]:
    """The same lines with the best rates of a search.

    A method is searched for once on each data set and model: an ablation shares its
    rates, and so do AFGA's four settings, as in the papers.

    Args:
      found: The lines.
      cells: Where runs are kept.
      train: Runs cells.
    """
    best: dict[tuple, dict[str, float]] = {}
    result = []
    for entry in found:
        if (name := method(entry)) not in best:
            short = _in_order(train(trials(entry, cells)))
            long = train([_longer(entry, cell, cells) for cell in short[:_KEPT]])
            chosen = _in_order(long)[0].config
            best[name] = {rate: getattr(chosen, rate) for rate in RATES}
        config = entry.cell.config.replace(**best[name])
        cell = entry.cell._replace(
            resolved=entry.cell.resolved._replace(config=config),
            folder=cells / grid.fingerprint(config),
        )
        result.append(entry._replace(cell=cell, rates=_SOURCE))
    return result


def trials(entry: Entry, cells: Path) -> list[Cell]:
    """What a method's rates are chosen from, in short."""
    config = entry.plain.config
    if config.algo in (*AVERAGING, *SERVERLESS):
        choices = [{"local_lr": config.local_lr * factor} for factor in _WIDE_FACTORS]
    else:
        power = 0.5 if config.algo in ADAM else 1
        choices = [
            {"local_lr": config.local_lr * factor, "eps": eps**power}
            for factor in _FACTORS
            for eps in _EPSILONS
        ]
    return [_trial(entry, rates, _SHORT, cells) for rates in choices]


def budget(entry: Entry, cells: Path) -> list[Cell]:
    """As many runs as a search has, of the same size; which go on is not known yet."""
    short = trials(entry, cells)
    return [*short, *(_longer(entry, cell, cells) for cell in short[:_KEPT])]


def _longer(entry: Entry, cell: Cell, cells: Path) -> Cell:
    rates = {name: getattr(cell.config, name) for name in RATES}
    return _trial(entry, rates, _LONG, cells)


def _trial(entry: Entry, rates: dict[str, float], share: float, cells: Path) -> Cell:
    config = entry.plain.config
    tests = config.test_samples or _TEST_SAMPLES
    trial = config.replace(
        rounds=max(1, round(config.rounds * share)),
        num_seeds=1,
        seed=_TRIAL_SEED,
        test_samples=min(tests, _TEST_SAMPLES),
        target=None,
        stop_at_target=False,
        **rates,
    )
    values = {"line": config.algo, "rounds": trial.rounds, "eps": "", **rates}
    about = Resolved(trial, dict(entry.plain.resolved.sources), [])
    return Cell(values, about, cells / grid.fingerprint(trial))


def _in_order(results: Sequence[tuple[Cell, Run]]) -> list[Cell]:
    """The best first, without those that diverged."""
    merits = {id(cell): merit(run.summary) for cell, run in results}
    found = [cell for cell, _ in results if merits[id(cell)] > float("-inf")]
    if not found:
        raise ValueError(
            f"all trials of {results[0][0].config.algo} diverged: set local_lr, or "
            "leave --tune out for the papers' rates."
        )
    return sorted(found, key=lambda cell: merits[id(cell)], reverse=True)
