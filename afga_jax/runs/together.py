"""Runs that differ in plain numbers only, side by side in one program.

This is only a faster way forward: each run keeps its own folder, metrics and states, as
if it ran alone, so the runner can take over at any point. It writes the summaries,
repeats what diverged and says so, and goes on with what was interrupted.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import mesh as meshes
from afga_jax.runs import command, folder, trackers
from afga_jax.runs.checkpoint import Checkpoints
from afga_jax.runs.command import Interrupted
from afga_jax.runs.config import Config
from afga_jax.runs.folder import evaluates
from afga_jax.runs.loop import Diverged, Training, until_due
from afga_jax.runs.programs import Programs
from afga_jax.runs.record import STATES, Record
from afga_jax.training.seeds import Watched
from afga_jax.typing import PyTree

#: Runs at once; more might not fit on a device.
LARGEST = 8


def fits(config: Config) -> bool:
    """Whether such runs always need the same rounds, evaluated in the same way."""
    asked = config.stop_at_target or config.consensus or config.local_global
    return not asked and config.precision is None


def width(config: Config, at_most: int) -> int:
    """How many such runs to bring forward at once.

    Args:
      config: The configuration of one of them.
      at_most: What one program should hold, but for the devices of the mesh's axis
        `seeds`: these are filled evenly, if only by one run each.
    """
    axes = {} if config.mesh is None else meshes.parse(config.mesh)
    devices = axes.get("seeds", 1)
    least = devices // math.gcd(devices, config.num_seeds)
    return max(least, at_most - at_most % least)


def advance(
    configs: Mapping[Path, Config],
    programs: Programs,
    about: Mapping[str, Any],
    advanced: Callable[[int], None] = lambda rounds: None,
) -> None:
    """Brings runs to their last round, but for those that diverge on the way.

    Args:
      configs: Configurations by the runs' folders; `programs` accepts them all.
      programs: The programs that all of them share.
      about: More entries for `config.json`.
      advanced: Function that is told how many rounds, of all runs, were done just now.

    Raises:
      Interrupted: Ctrl-C or SIGTERM; all states are saved.
    """
    with contextlib.ExitStack() as stack:
        for out in configs:
            stack.enter_context(folder.alone(out))
        members = []
        for out, config in configs.items():
            members.append(_Member(config, programs, out, about))
            stack.enter_context(members[-1].writer)
        # A sweep that was killed while it saved may have left some behind.
        level = [member for member in members if member.done == members[0].done]
        interrupted = stack.enter_context(command.remembered())
        _train(level, programs, interrupted, advanced)


class _Member(Training):
    """One run among others; its writer is to be closed."""

    def __init__(self, config: Config, programs: Programs, out: Path, about):
        super().__init__(config, programs)
        self.states = Checkpoints(out / STATES)
        self.writer = Record(out, trackers.named(config.tracker, out))
        self.diverged = False
        before = folder.existing(out, resume=True)
        if before is not None:
            self.check_begun(before, out)
        self.go_on(self.states, before, out)
        choice = programs.trainer.choose(self.keys, programs.experiment.clients)
        self.open(self.writer, choice, **about)
        if self.is_due:
            self.write(self.writer)

    def keep(self, state: PyTree, watched: Watched, *, save: bool, stops: bool) -> None:
        """Takes some rounds and writes what is due after them, unless it diverged.

        Args:
          state: The state after them.
          watched: Their diagnostics.
          save: Whether the state is to be saved.
          stops: Whether the user wants to stop, so that nothing is evaluated.
        """
        if self.diverged:
            return
        try:
            self.take(state, watched)
        except Diverged:
            self.diverged = True
            return
        self.is_due = evaluates(self.config, self.done)
        if self.is_due and not stops:
            self.write(self.writer)
        if save:
            self.writer.sync()
            self.save(self.states, self.writer.lines)


def _train(
    members: Sequence[_Member], programs: Programs, interrupted, advanced
) -> None:
    config, done = members[0].config, members[0].done
    every = config.checkpoint_every or config.eval_every
    keys = jnp.concatenate([member.keys for member in members])
    on_mesh = programs.trainer.execution.mesh is not None
    # On a mesh no single device may have room for all of them.
    join = np.concatenate if on_mesh else jnp.concatenate
    states = [member.state for member in members]
    state = jax.tree.map(lambda *rows: join(rows), *states)
    data, seeds = programs.experiment.clients, config.num_seeds
    while done < config.rounds and not all(member.diverged for member in members):
        rounds = until_due(config, done, every)
        state, watched = programs.trainer.run(keys, state, data, rounds)
        watched = jax.device_get(watched)
        whole = jax.device_get(state) if on_mesh else state
        done += rounds
        advanced(rounds * len(members))
        stops = interrupted() and done < config.rounds
        for number, member in enumerate(members):
            mine = slice(number * seeds, (number + 1) * seeds)
            # Copies: the memory of `state` itself is given away again.
            member.keep(
                jax.tree.map(lambda x: x[mine].copy(), whole),  # noqa: B023
                jax.tree.map(lambda x: x[:, mine], watched),  # noqa: B023
                save=stops or done % every == 0 or done == config.rounds,
                stops=stops,
            )
        if stops:
            raise Interrupted
