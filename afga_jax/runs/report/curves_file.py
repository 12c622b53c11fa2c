"""Curves as a small CSV file, from which a figure can be drawn again without training.

One line for each method, seed and evaluated round: test accuracy and loss, training
loss, and the ledger's running totals.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from afga_jax.runs.record import RecordError, Row, Run
from afga_jax.runs.report.results import labels
from afga_jax.runs.report.tables import csv_lines

# Digits after the point; totals are whole numbers.
_COLUMNS = {
    "test_accuracy": 4,
    "test_loss": 6,
    "train_loss": 6,
    "gradients_total": 0,
    "gossip_messages_total": 0,
    "uploads_total": 0,
    "bytes_total": 0,
    # Messages are counted back from hours (`report.prices`), so within a second.
    "hours": 6,
}
_NAMES = ("method", "seed", "round")


def text(runs: Sequence[Run]) -> str:
    """The curves of some runs as CSV.

    >>> row = {"seed": 0, "round": 1, "test_accuracy": 0.5, "bytes_total": 8.0}
    >>> print(text([Run({"algo": "afga"}, [row])]), end="")
    method,seed,round,test_accuracy,bytes_total
    afga,0,1,0.5,8
    """
    rows = [
        {"method": label, "seed": row["seed"], "round": row["round"], **_measured(row)}
        for run, label in zip(runs, labels(runs), strict=True)
        for row in run.metrics
    ]
    # What no run has, such as the accuracy of a regression, has no column.
    kept = [name for name in _COLUMNS if any(row[name] is not None for row in rows)]
    return csv_lines([{name: row[name] for name in (*_NAMES, *kept)} for row in rows])


def files(path: str | Path) -> list[Path]:
    """Files of curves: the file itself, or those of a folder that is no run's."""
    path = Path(path)
    if path.suffix == ".csv":
        return [path]
    # A comparison has tables beside its curves, a run's folder no such file.
    whole = path / "curves.csv"
    return [whole] if whole.exists() else sorted(path.glob("*.csv"))


def read(paths: Sequence[str | Path]) -> list[Run]:
    """Runs from files of curves, one for each method, with all of its seeds.

    Raises:
      RecordError: A file is missing, is no file of curves, or has those of another.
    """
    rows: dict[str, list[Row]] = {}
    origin: dict[tuple[str, int], Path] = {}
    for path in map(Path, paths):
        try:
            with path.open(newline="") as file:
                for line in csv.DictReader(file):
                    row = {name: _number(name, line[name]) for name in line if name}
                    name = row.pop("method")
                    rows.setdefault(name, []).append(row)
                    other = origin.setdefault((name, row["seed"]), path)
                    if other != path:
                        raise RecordError(
                            f"{name} with seed {row['seed']} is in {other} and in "
                            f"{path}: give the curves of one experiment."
                        )
        except RecordError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RecordError(
                f"{path} holds no curves ({error!r}), but it must be a CSV file with "
                f"the columns {', '.join(_NAMES)} and some of {', '.join(_COLUMNS)}: "
                "give one that an earlier comparison wrote."
            ) from error
    done = {"finished": True}
    return [Run({"algo": name}, some, summary=done) for name, some in rows.items()]


def _measured(row: Row) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, digits in _COLUMNS.items():
        value = row.get(name)
        columns[name] = value if value is None else round(value, digits or None)
    return columns


def _number(name: str, cell: str) -> Any:
    if name == "method":
        return cell
    if name in ("seed", "round"):
        return int(cell)
    return float(cell) if cell else None
