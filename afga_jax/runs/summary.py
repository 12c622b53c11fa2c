"""What a run came to, from its metrics."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

#: Evaluated rounds that a final value is the mean of: AFGA, Tables 4 and 5.
FINAL_ROUNDS = 5
_COUNTED = ("two", "three", "four", "five")


def summarise(
    metrics: Sequence[dict[str, Any]], *, target: float | None = None
) -> dict[str, Any]:
    """The final values of a run: means over its last five evaluated rounds.

    Args:
      metrics: Rows of all seeds, in the order of rounds.
      target: The accuracy to reach; None: there is none.

    Returns:
      `final_accuracy` and `final_loss`, the means over the seeds, with their sample
      standard deviations `..._std` (None for a single seed), `first_round_at_target`
      (the mean; None if a seed did not reach it), and the same of each seed in `seeds`.

    >>> rows = [{"seed": 0, "round": r, "test_accuracy": r / 10} for r in range(1, 8)]
    >>> summary = summarise(rows, target=0.45)
    >>> summary["final_accuracy"], summary["first_round_at_target"]
    (0.5, 5)
    """
    seeds = sorted({row["seed"] for row in metrics})
    each = [
        _of_seed([r for r in metrics if r["seed"] == seed], target) for seed in seeds
    ]
    summary = {"rounds": metrics[-1]["round"] if metrics else 0, "target": target}
    for name in ("final_accuracy", "final_loss"):
        values = [seed[name] for seed in each if seed[name] is not None]
        summary[name] = statistics.fmean(values) if values else None
        several = len(values) > 1
        summary[f"{name}_std"] = statistics.stdev(values) if several else None
    reached = [seed["first_round_at_target"] for seed in each]
    whole = reached and None not in reached
    summary["first_round_at_target"] = statistics.mean(reached) if whole else None
    return {**summary, "seeds": each}


def averaged(metrics: Sequence[dict[str, Any]]) -> str:
    """What the final values are the mean of, in words.

    >>> averaged([{"round": r} for r in range(1, 4)]), averaged([{"round": 1}])
    ('the mean of the last three evaluations', 'from its only evaluation')
    """
    number = min(FINAL_ROUNDS, len({row["round"] for row in metrics}))
    if number < 2:
        return "from its only evaluation"
    return f"the mean of the last {_COUNTED[number - 2]} evaluations"


def merit(summary: dict[str, Any]) -> float:
    """What runs are ranked by, the larger the better: accuracy, or the loss downwards.

    >>> merit({"final_accuracy": None, "final_loss": 0.5})
    -0.5
    >>> merit({"final_accuracy": 0.9, "final_loss": 0.5, "diverged_at": 3})
    -inf
    """
    accuracy, loss = summary["final_accuracy"], summary["final_loss"]
    if summary.get("diverged_at") is not None:
        return -math.inf
    if accuracy is not None:
        return accuracy
    return -math.inf if loss is None else -loss


def _of_seed(metrics: Sequence[dict[str, Any]], target: float | None) -> dict[str, Any]:
    last = metrics[-FINAL_ROUNDS:]
    finals = {"seed": metrics[0]["seed"]}
    for name, source in (("accuracy", "test_accuracy"), ("loss", "test_loss")):
        values = [row[source] for row in last if row.get(source) is not None]
        finals[f"final_{name}"] = statistics.fmean(values) if values else None
    wanted = math.inf if target is None else target
    known = (row for row in metrics if row.get("test_accuracy") is not None)
    reached = (row["round"] for row in known if row["test_accuracy"] >= wanted)
    return {**finals, "first_round_at_target": next(reached, None)}
