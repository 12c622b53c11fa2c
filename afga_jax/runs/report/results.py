"""From a run's lines to the numbers that tables and figures show."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from afga_jax.runs import config as configuration
from afga_jax.runs import published, settings
from afga_jax.runs.config import Config
from afga_jax.runs.published import Published
from afga_jax.runs.record import Run
from afga_jax.runs.summary import summarise

# Runs with different ones are different experiments; what is left is what an algorithm
# is made of, and what one compares.
_SHARED_GROUPS = ("data", "model", "conditions", "run")
_SHARED = (
    *("setting", "scale", "num_clients", "participation", "active"),
    *("local_steps", "batch_size", "full_batch"),
)
_WATCHING = (
    *("eval_every", "target", "consensus", "per_client", "local_global"),
    "client_chunk",
)
_RUN_FIELDS = (*_WATCHING, "seed", "num_seeds", "partition_seed", "precision")

STAND_IN = "the built-in digits stand in for a data set that was not there"


class RunResult(NamedTuple):
    """What came out of a run; arrays have one entry for each seed, NaN for unknown.

    Attributes:
      label: Name that sets the run apart from those beside it.
      rounds: The last evaluated round; 0: none.
      finished: Whether the run came to its end.
      diverged_at: The round that was not finite; None: all were.
      accuracy: Final test accuracy, percent; unknown for what diverged.
      loss: Final test loss; unknown for what diverged.
      reached: First evaluated round at the target.
      reached_hours: Simulated hours at that round.
      totals: `gradients`, `uploads`, `gossip_messages`, `bytes`, `hours`, `seconds` at
        the last round, mean over seeds.
      paper: The published number.
      as_in_paper: Whether the run has the paper's size and settings.
    """

    label: str
    rounds: int
    finished: bool
    diverged_at: int | None
    accuracy: np.ndarray
    loss: np.ndarray
    reached: np.ndarray
    reached_hours: np.ndarray
    totals: dict[str, float]
    paper: Published | None
    as_in_paper: bool


def results(runs: Sequence[Run]) -> list[RunResult]:
    """What came out of each run."""
    return [_result(run, label) for run, label in zip(runs, labels(runs), strict=True)]


def evaluated_rounds(run: Run) -> np.ndarray:
    """The rounds that were evaluated for all seeds, ascending."""
    by_seed = _by_seed(run).values()
    common = set.intersection(*(set(rows) for rows in by_seed)) if by_seed else set()
    return np.array(sorted(common), int)


def values(run: Run, name: str) -> np.ndarray:
    """A metric, `[seeds, evaluated rounds]`; NaN where it was not finite or not kept.

    >>> lines = [{"seed": 0, "round": r, "spread": s} for r, s in [(1, 4.0), (2, None)]]
    >>> print(values(Run({}, lines), "spread"))
    [[ 4. nan]]
    """
    rounds = evaluated_rounds(run)
    table = [
        [rows[round].get(name) for round in rounds] for rows in _by_seed(run).values()
    ]
    return np.array(table, float).reshape(len(table), len(rounds))


def mean_and_deviation(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Over the first axis, the seeds: mean and sample standard deviation.

    The deviation of a single seed is 0.
    """
    if not len(sample):
        return (np.full(sample.shape[1:], np.nan),) * 2
    return sample.mean(0), sample.std(0, ddof=1 if len(sample) > 1 else 0)


def labels(runs: Sequence[Run]) -> list[str]:
    """A name for each run: its algorithm, and what differs where that is the same.

    >>> fast, slow = ({"algo": "afga", "local_lr": rate} for rate in (2.0, 0.1))
    >>> labels([Run(fast, []), Run(slow, []), Run({"algo": "fedavg"}, [])])
    ['afga local_lr=2', 'afga local_lr=0.1', 'fedavg']
    """
    titles = []
    # What changes a run's numbers, but for its algorithm.
    changing = [field.name for field in configuration.fields() if not field.neutral]
    changing = [name for name in changing if name not in ("algo", "stand_in")]
    for run in runs:
        algorithm = run.config.get("algo", "run")
        alike = [
            other for other in runs if other.config.get("algo", "run") == algorithm
        ]
        names = [name for name in changing if len(_distinct(alike, name)) > 1]
        more = [f"{name}={_short(run.config.get(name))}" for name in names]
        titles.append(" ".join([algorithm, *more]))
    return [
        f"{label} ({number})" if titles.count(label) > 1 else label
        for number, label in enumerate(titles, 1)
    ]


def cautions(runs: Sequence[Run]) -> list[str]:
    """What a reader must know before comparing the runs, a line each.

    >>> cautions([Run({"dataset": d}, []) for d in ("cifar10", "digits")])
    ['these runs differ in more than the algorithm: dataset (cifar10, digits).']
    """
    differing = []
    for field in configuration.fields():
        shared = field.group in _SHARED_GROUPS or field.name in _SHARED
        ignored = field.neutral or field.name in (*_WATCHING, "stand_in")
        distinct = _distinct(runs, field.name)
        if shared and not ignored and len(distinct) > 1:
            differing.append(f"{field.name} ({', '.join(map(str, distinct))})")
    more = f"these runs differ in more than the algorithm: {', '.join(differing)}."
    named = zip(runs, labels(runs), strict=True)
    stand_ins = [f"{label}: {STAND_IN}." for run, label in named if stands_in(run)]
    return [more, *stand_ins] if differing else stand_ins


def ranking(runs: Sequence[Run]) -> str:
    """Runs in the order of their final accuracy, and which of them seeds tell apart.

    Neighbours are told apart if their means differ by more than two standard errors of
    the difference, √(s₁²/n₁ + s₂²/n₂).

    Returns:
      A line; empty: there are fewer than two runs with an accuracy.
    """
    known = [result for result in results(runs) if np.isfinite(result.accuracy).any()]
    known.sort(key=lambda result: result.accuracy.mean(), reverse=True)
    if len(known) < 2:
        return ""
    if min(len(result.accuracy) for result in known) < 2:
        return "A single seed does not tell what is chance: take num_seeds = 3 or more."
    line = known[0].label
    for better, worse in itertools.pairwise(known):
        gap = better.accuracy.mean() - worse.accuracy.mean()
        error = np.hypot(_standard_error(better), _standard_error(worse))
        line += f" {'>' if gap > 2 * error else '≈'} {worse.label}"
    return line


def stands_in(run: Run) -> bool:
    """Whether the run used the built-in digits in place of what was meant."""
    if run.facts is not None and "stand_in" in run.facts:
        return bool(run.facts["stand_in"])
    return bool(run.config.get("stand_in")) and run.config.get("dataset") == "digits"


def _result(run: Run, label: str) -> RunResult:
    rounds, summary = evaluated_rounds(run), run.summary or {}
    # A run that was killed may have written its last round for some seeds only.
    common = set(rounds.tolist())
    lines = [row for row in run.metrics if row["round"] in common]
    each = summarise(lines, target=run.config.get("target"))["seeds"]
    rows = _by_seed(run)
    at_target = [rows[s["seed"]].get(s["first_round_at_target"], {}) for s in each]
    names = ("gradients", "uploads", "gossip_messages", "bytes")
    columns = {name: f"{name}_total" for name in names}
    columns |= {"hours": "hours", "seconds": "seconds"}
    ends = np.nan if summary.get("diverged_at") is not None else 1.0

    def of_seeds(name: str) -> np.ndarray:
        return np.array([seed[name] for seed in each], float)

    def total(column: str) -> float:
        return float(values(run, column)[:, -1].mean()) if len(rounds) else np.nan

    return RunResult(
        label=label,
        rounds=int(rounds[-1]) if len(rounds) else 0,
        finished=bool(summary.get("finished")),
        diverged_at=summary.get("diverged_at"),
        accuracy=ends * 100 * of_seeds("final_accuracy"),
        loss=ends * of_seeds("final_loss"),
        reached=of_seeds("first_round_at_target"),
        reached_hours=np.array([row.get("hours") for row in at_target], float),
        totals={name: total(column) for name, column in columns.items()},
        paper=_paper(run),
        as_in_paper=_as_in_paper(run),
    )


def _standard_error(result: RunResult) -> float:
    return result.accuracy.std(ddof=1) / np.sqrt(len(result.accuracy))


def _paper(run: Run) -> Published | None:
    names = ("algo", "dataset", "setting", "model")
    asked: Any = tuple(run.config.get(name) for name in names)
    resample = run.config.get("resample")
    if resample is None:
        return published.lookup(*asked)
    only = published.GOSSIP_ONLY
    return only if resample is False and asked == only[:4] else None


def _as_in_paper(run: Run) -> bool:
    """Whether nothing was changed from the paper's setting at the paper's size."""
    if run.config.get("scale") != "paper":
        return False
    changed = settings.choices(Config.from_dict(run.config))
    same = {"algo", "setting", "scale", *_RUN_FIELDS, *configuration.neutral()}
    return not set(changed) - same


def _by_seed(run: Run) -> dict[int, dict[int, dict[str, Any]]]:
    table: dict[int, dict[int, dict[str, Any]]] = {}
    for row in run.metrics:
        table.setdefault(row["seed"], {})[row["round"]] = row
    return table


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _distinct(runs: Sequence[Run], name: str) -> list[Any]:
    values = [run.config.get(name) for run in runs]
    return [value for at, value in enumerate(values) if value not in values[:at]]
