"""Runs a section: its contestants take turns and say what they found."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from benchmarks import environments
from benchmarks.sections import TORCHRUN, Ours, Peer, Section
from benchmarks.workers import ROOT, Contest, summary

CORES = os.cpu_count()


def quick(section: Section) -> Section:
    """A section that shows whether everything works, and no more."""
    work = {"local_steps": 2} | section.work
    return dataclasses.replace(section, work=work, repeats=2, rounds=1)


def replaced(section: Section, repeats: int) -> Section:
    """A section with another number of laps."""
    return dataclasses.replace(section, repeats=repeats)


def measure(section: Section, *, passive: bool = False) -> dict:
    """A section's figures, ready for JSON.

    Args:
      section: What to run.
      passive: PyTorch's threads sleep while they wait, which is slower on idle cores
        and does not collapse on busy ones.

    Returns:
      Contestants' laps and results, who is missing and why.
    """
    start = time.time()
    with tempfile.TemporaryDirectory() as folder, Contest() as contest:
        work = pathlib.Path(folder) / "work.npz"
        reason = _export(section, work)
        for name, contestant in section.contestants.items():
            if isinstance(contestant, Peer):
                _enter_peer(contest, name, contestant, section, work, passive, reason)
            else:
                _enter_ours(contest, name, contestant, section)
        print("  warming up", flush=True)
        contest.ask_all(rounds=1)
        print("  measuring", flush=True)
        laps = contest.laps(
            section.repeats, section.rounds, per_gradient=section.per_gradient
        )
        results = contest.ask_all(result=True)
    rows = {
        name: {"seconds": summary(laps[name]), **result}
        for name, result in results.items()
    }
    return {
        "title": section.title,
        "rows": rows,
        "missing": contest.missing,
        "rounds per lap": section.rounds,
        "repeats": section.repeats,
        "per": "computed gradient" if section.per_gradient else "round",
        "passive": passive,
        "load": contest.loads,
        "took": time.time() - start,
        "date": time.strftime("%Y-%m-%d"),
    }


def device_flags(devices: int | None) -> dict[str, str]:
    """The environment that makes so many devices of the CPU; None: one per core."""
    count = f"--xla_force_host_platform_device_count={devices or CORES}"
    return {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {count}"}


def _export(section: Section, path: pathlib.Path) -> str | None:
    """Writes the work for the peers; why that failed, or None."""
    if not any(isinstance(one, Peer) for one in section.contestants.values()):
        return None
    print("  writing down the work", flush=True)
    rounds = 1 + section.repeats * section.rounds
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.export", json.dumps(section.work)),
            *(f"--rounds={rounds}", f"--out={path}"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if not done.returncode:
        return None
    last = (done.stderr.strip() or "no message").splitlines()[-1]
    return f"the work could not be written down: {last}"


def _enter_ours(contest: Contest, name: str, ours: Ours, section: Section) -> None:
    command = [sys.executable, "-m", "benchmarks.ours"]
    contest.enter(name, command, device_flags(ours.devices))
    contest.ask(
        name,
        prepare=section.work | ours.options,
        capacity=section.rounds,
        reach=ours.reach,
    )


def _enter_peer(contest, name, peer, section, work, passive, reason) -> None:
    python, missing = environments.interpreter(peer.environment)
    if missing or reason:
        contest.enter(name, None, reason=missing or reason)
        return
    launch, environment = [python], {"FLWR_TELEMETRY_ENABLED": "0"}
    if peer.launcher == TORCHRUN:
        launch = [python.parent / "torchrun", f"--nproc_per_node={CORES}"]
        environment["OMP_NUM_THREADS"] = "1"
    elif passive:
        environment["OMP_WAIT_POLICY"] = "passive"
    module = f"benchmarks.peers.{peer.module}"
    command = [*launch, "-m", module, work, section.work["model"]]
    contest.enter(name, command, environment)
