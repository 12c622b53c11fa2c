"""Sweeps on meshes, against none; run where JAX has four devices (`test_cells`)."""

import contextlib
import functools
import json
import os
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest

import afga_jax
import run_files
from afga_jax.runs import together
from afga_jax.runs.command import Interrupted
from afga_jax.runs.commands import sweep
from afga_jax.runs.grid import Cell
from afga_jax.runs.settings import Resolved

RATES = (0.1, 1e30, 0.3)  # with some algorithms the second diverges

# Mesh, algorithm, how many may run side by side at most, more settings.
CASES = {
    "one group": ("seeds:4", "afga", 1, {}),
    "several seeds": ("seeds:2", "afga", 1, {"num_seeds": 3}),
    "clients, too": ("seeds:2,clients:2", "scaffold", 8, {"engine": "dense"}),
    "alone": ("seeds:2", "fedavg", 1, {"stop_at_target": True, "target": 1.0}),
}


def main():
    """Prints what the tests look at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "from_config", experiment)
        patch.setattr(sweep.report, "curves", lambda *_: None)  # slow to draw
        results = {name: compared(*case) for name, case in CASES.items()}
        results["interrupted"] = interrupted()
    with pytest.raises(ValueError, match="mesh") as error:
        run_files.programs(mesh="seeds:2")
    print(json.dumps(results | {"in no sweep": str(error.value)}))


def compared(mesh, algo, at_most, settings):
    """How the calls of a sweep ran, and how far its results are from one by one."""
    with watched() as calls:
        found = ended(cells(mesh=mesh, algo=algo, **settings), at_most)
    return {"calls": calls, **apart(found, one_by_one(algo, **settings))}


def interrupted():
    """A sweep that is stopped after its first call, and goes on."""

    @contextlib.contextmanager
    def at_once():
        yield lambda: True

    asked = cells(mesh="seeds:2", algo="afga")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(together.command, "remembered", at_once)
        with pytest.raises(Interrupted):
            ended(asked)
    begun = [cell.folder.exists() for cell in asked]
    return {"begun": begun, **apart(ended(asked), one_by_one("afga"))}


@functools.cache
def one_by_one(algo, **settings):
    return ended(cells(algo=algo, **settings))


def experiment(config):
    toy = run_files.programs(config.algo, engine=config.engine).experiment
    return toy._replace(config=config)


def cells(**settings):
    out = Path(tempfile.mkdtemp())
    configs = [
        run_files.CONFIG.replace(rounds=3, local_lr=rate, **settings) for rate in RATES
    ]
    return [
        Cell({"local_lr": one.local_lr}, Resolved(one, {}, []), out / str(number))
        for number, one in enumerate(configs)
    ]


def ended(asked, at_most=1):
    """When each cell diverged, its metrics and its newest state; nothing else is there.

    A state is read as one of a run that has neither a mesh nor neighbours.
    """
    out, config = asked[0].folder.parent, asked[0].config
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        found = sweep.train(asked, out, side_by_side=at_most)
    written = sorted(path.name for path in out.iterdir())
    assert written == [*(cell.folder.name for cell in asked), "results.csv"], written
    reader = run_files.programs(config.algo, engine=config.engine)
    return [
        (
            run.summary.get("diverged_at"),
            run_files.without_time(run.metrics),
            run_files.final(run, reader),
        )
        for _, run in found
    ]


@contextlib.contextmanager
def watched():
    """Of each call the seeds, the seeds on each device, and the devices."""
    calls, run = [], afga_jax.Trainer.run

    def seen(trainer, *arguments):
        result = run(trainer, *arguments)
        leaf = jax.tree.leaves(trainer._spread[1].params)[0]
        held = leaf.sharding.shard_shape(leaf.shape)
        calls.append((len(leaf), held[0], len(leaf.sharding.device_set)))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(afga_jax.Trainer, "run", seen)
        yield calls


def apart(found, expected):
    """The largest difference, relative to the largest number of the same array."""

    def relative(a, b):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape
        return float(np.abs(a - b).max(initial=0) / (np.abs(b).max(initial=0) or 1))

    worst = max(jax.tree.leaves(jax.tree.map(relative, found, expected)))
    return {"apart": worst, "diverged": [cell[0] for cell in found]}
