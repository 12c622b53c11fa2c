"""One or several runs on a page that can be sent: results, curves, data, costs.

    python -m experiments.report RUN
    python -m experiments.report RUN RUN ... --out=report.html

Writes one HTML file, which needs neither a network nor a server. A folder of runs, such
as a comparison's, stands for all of them. A run that is going on can be watched: with
--live it rewrites report.html in its folder by itself.

    --out=FILE   the page; else report.html in the folder, runs/report.html of several
"""

from collections.abc import Sequence
from pathlib import Path

from afga_jax.runs import command, flags, record
from afga_jax.runs.config import Field
from afga_jax.runs.folder import RUNS
from afga_jax.runs.pages.run_report import FILE
from afga_jax.runs.pages.run_report import report as report_of

_FIELDS = (Field("out", str, None, "run", "The page's file."),)


def report(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    values = flags.define(_FIELDS)
    with command.reading():
        words = flags.parse(arguments, values, usage=__doc__, words=True, known=_FIELDS)
        if not words:
            raise ValueError(
                "give the folder of a run, or of several: "
                "python -m experiments.report runs/NAME"
            )
    runs = [record.read(folder) for word in words for folder in _folders(Path(word))]
    out = flags.given(values, _FIELDS).get("out")
    path = Path(out) if out else (Path(words[0]) if len(words) == 1 else RUNS) / FILE
    if path.suffix != ".html":
        path = path / FILE
    print(f"report: {report_of(runs).save(path)}")
    return 0


def _folders(folder: Path) -> list[Path]:
    """The run's folder, or those of the runs in it."""
    if record.exists(folder) or not folder.is_dir():
        return [folder]
    inside = [path for path in sorted(folder.iterdir()) if record.exists(path)]
    return inside or [folder]
