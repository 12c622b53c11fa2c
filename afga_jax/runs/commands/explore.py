"""Looks into a round: who computes, mixes and uploads, and what becomes of a gradient.

    python -m experiments.explore --algo=cafga
    python -m experiments.explore --algo=afga --topology=torus --num_clients=100
    python -m experiments.explore --run=RUN --round=20

Writes one HTML file, which needs neither a network nor a server. Nothing is trained:
all of it follows from the plan of the round. With --run the settings are those of a run
that is there, and what it measured is shown, too. All flags of the other commands
decide what is explored, and

    --round=NUMBER   the round, from 0; 0
    --run=RUN        the folder of a run
    --out=FILE       the page; else runs/explorer_DATASET_ALGO.html, or in the run
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from absl import flags as absl_flags

from afga_jax import checks
from afga_jax.mesh import on_cpu
from afga_jax.runs import command, devices, flags, record, runner
from afga_jax.runs.config import Config
from afga_jax.runs.experiment import from_config
from afga_jax.runs.folder import RUNS
from afga_jax.runs.pages.explorer import explore as explore_round
from afga_jax.runs.pages.page import Page
from afga_jax.runs.record import Run
from afga_jax.runs.settings import resolve
from afga_jax.training.ledger import Links

DATASET = "digits"

# What is shown beside a round, of those that a run evaluated.
_MEASURED = ("round", "consensus", "spread", "delta_norm")


def explore(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    given, round, folder = _read(arguments)
    out = given.pop("out", None)
    run = None if folder is None else record.read(folder)
    if run is None:
        resolved = resolve(given, dataset=DATASET, accelerator=not on_cpu())
        for note in resolved.notes:
            command.say(f"note: {note}")
        config = resolved.config
    else:
        config = Config.from_dict(run.config)
    runner.keep_programs(config)
    path = _path(out, config, folder)
    print(f"explorer: {_page(config, round, run).save(path)}")
    return 0


def define() -> absl_flags.FlagValues:
    """The command's flags, all of them unset: a run's, and its own."""
    values = flags.define()
    absl_flags.DEFINE_integer("round", None, "The round.", flag_values=values)
    absl_flags.DEFINE_string("run", None, "Folder of a run.", flag_values=values)
    return values


def _read(arguments: Sequence[str]) -> tuple[dict[str, Any], int, Path | None]:
    """The user's choices, the round, and the folder of a run."""
    values = define()
    with command.reading():
        flags.parse(arguments, values, usage=__doc__)
        given = flags.given(values)
        number = values["round"].value or 0
        checks.integer("round", number, at_least=0)
        folder = values["run"].value
        unused = [name for name in given if folder is not None and name != "out"]
        if unused:
            raise ValueError(
                f"--{unused[0]} has no effect on a run that is there: leave it out, or "
                "--run."
            )
    devices.use(devices.wanted(given))
    return given, number, None if folder is None else Path(folder)


def _path(out: str | None, config: Config, folder: Path | None) -> Path:
    if out is not None:
        path = Path(out)
        return path if path.suffix == ".html" else path / "explorer.html"
    if folder is not None:
        return folder / "explorer.html"
    return RUNS / f"explorer_{config.dataset}_{config.algo}.html"


def _page(config: Config, round: int, run: Run | None) -> Page:
    experiment = from_config(config)
    for note in experiment.facts["notes"]:
        command.say(f"note: {note}")
    config = experiment.config
    measured = None
    if run is not None:
        rows = [row for row in run.metrics if row["seed"] == config.seed]
        measured = {name: [row.get(name) for row in rows] for name in _MEASURED}
    where = f" · {run.folder}" if run is not None else ""
    return explore_round(
        experiment.algorithm,
        round=round,
        key=jax.random.key(config.seed),
        data=experiment.clients,
        name=f"{config.algo} on {config.dataset}{where}",
        label_names=tuple(experiment.facts.get("label_names") or ()),
        links=Links(config.server_seconds, config.client_seconds),
        measured=measured,
    )
