"""How a run goes, for people: a bar on a terminal, otherwise a line per evaluation."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import jax
import jax.monitoring
import numpy as np
import tqdm

from afga_jax.runs.config import Config
from afga_jax.runs.record import Row, Run
from afga_jax.runs.report.results import STAND_IN, stands_in
from afga_jax.runs.report.tables import measured
from afga_jax.runs.summary import averaged


def silent() -> "Display":
    """A display that shows nothing, not even notes."""
    return Display(quiet=True, error=io.StringIO())


class Display:
    """Shows the progress of one run.

    Args:
      quiet: Show nothing but notes.
      out: The stream for lines; None: standard output.
      error: The stream for notes and, if it is a terminal, the bar; None: standard
        error.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        out: TextIO | None = None,
        error: TextIO | None = None,
    ):
        self.quiet, self._rounds, self._done = quiet, 0, 0
        self._out, self._error = out or sys.stdout, error or sys.stderr
        self._terminal = self._error.isatty() and not quiet
        self._bar: tqdm.tqdm | None = None
        self._accuracy: dict[str, str] = {}
        self._empty = 0

    def begin(self, config: Config, facts: Row, folder: Path, done: int) -> None:
        """A run is about to start, or to go on."""
        self._rounds, self._done = config.rounds, done
        for note in facts.get("notes", ()):
            self.note(note)
        model = f"{config.model} of " if config.model else ""
        self.say(
            f"{config.algo} on {config.dataset}: {config.num_clients} clients, "
            f"{config.rounds} rounds, {model}{facts['parameters']:,} parameters, "
            f"{jax.local_devices()[0].platform}; {folder}"
        )
        if done:
            self.say(f"going on after round {done}")

    def say(self, text: str) -> None:
        """A line of the run itself."""
        if not self.quiet:
            self._line(text, self._out)

    def note(self, text: str) -> None:
        """A line that the user should know of."""
        self._line(f"note: {text}", self._error)

    def first(self, done: int, seconds: float, compiling: float) -> None:
        """The first round is done: how long will it take?"""
        left = self._rounds - done
        each = f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"
        self.say(
            f"compiled in {compiling:.1f} s; {each} per round: "
            f"{left} more take about {_duration(left * seconds)}"
        )
        if self._terminal:
            self._bar = tqdm.tqdm(
                total=self._rounds,
                initial=done,
                file=self._error,
                unit=" rounds",
                dynamic_ncols=True,
                bar_format="round {n}/{total} |{bar}| {rate_fmt}, "
                "{remaining} left{postfix}",
            )

    def advanced(self, rounds: int, loss: float) -> None:
        """Some rounds are done."""
        self._done += rounds
        if self._bar is not None:
            self._bar.set_postfix({"loss": f"{loss:.3f}"} | self._accuracy, False)
            self._bar.update(self._done - self._bar.n)

    def evaluated(self, rows: Sequence[Row]) -> None:
        """A round was evaluated; one row for each seed."""
        accuracy = accuracy_of(rows)
        if accuracy:
            self._accuracy = {"accuracy": accuracy}
        empty = max(row.get("empty_rounds_total") or 0 for row in rows)
        if empty and not self._empty:
            self.note(
                f"up to round {rows[0]['round']} nothing arrived in {empty}, and the "
                "model stayed as it was (empty_rounds_total in metrics.jsonl goes on)."
            )
        self._empty = empty
        if self._terminal:
            return
        parts = [
            f"round {rows[0]['round']:4}",
            f"train loss {_over_seeds(rows, 'train_loss')}",
            f"test loss {_over_seeds(rows, 'test_loss')}",
            f"accuracy {accuracy}" if accuracy else "",
            f"{rows[0]['seconds']:.0f} s",
        ]
        self.say("  ".join(part for part in parts if part))

    def end(self, run: Run) -> None:
        """The run is over."""
        summary = run.summary or {}
        text = f"final {outcome(run)}, {averaged(run.metrics)}"
        if run.config["target"] is not None:
            at = summary["first_round_at_target"]
            text += f"; target at round {at:g}" if at else "; target not reached"
        if summary.get("epsilon") is not None:
            text += f"; ε = {summary['epsilon']:.3g} at δ = {summary['delta']:g}"
        text += f"; {_duration(summary['wall_seconds'])}; {run.folder}"
        self.say(f"{text}; {STAND_IN}" if stands_in(run) else text)

    def close(self) -> None:
        """Leaves the bar as it stands."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _line(self, text: str, stream: TextIO) -> None:
        if self._bar is None:
            print(text, file=stream, flush=True)
        else:
            self._bar.write(text, file=stream)


def accuracy_of(rows: Sequence[Row]) -> str:
    """The test accuracy of an evaluated round; empty: the task has none."""
    return _over_seeds(rows, "test_accuracy", 2, 100, " %")


def outcome(run: Run) -> str:
    """What a run came to: its final accuracy, or the loss for tasks without one."""
    summary = run.summary or {}
    if summary.get("diverged_at") is not None:
        return f"diverged in round {summary['diverged_at']}"
    final = _over_seeds(summary["seeds"], "final_accuracy", 2, 100, " %")
    return f"accuracy {final}" if final else f"loss {summary['final_loss']:.6g}"


class Compilation:
    """Seconds that JAX spent on making programs, since this was made."""

    _spent = 0.0
    _listens = False

    def __init__(self):
        if not Compilation._listens:
            jax.monitoring.register_event_duration_secs_listener(_count)
            Compilation._listens = True
        self._start = Compilation._spent

    @property
    def seconds(self) -> float:
        return Compilation._spent - self._start


def _count(event: str, seconds: float, **_: Any) -> None:
    if event.startswith("/jax/core/compile/"):
        Compilation._spent += seconds


def _over_seeds(
    rows: Sequence[Row], name: str, digits: int = 4, scale: float = 1, unit: str = ""
) -> str:
    """`mean ± std` over the seeds, the mean alone for one; empty: not measured."""
    values = [scale * row[name] for row in rows if row.get(name) is not None]
    return measured(np.array(values), digits) + unit if values else ""


def _duration(seconds: float) -> str:
    """Two units at most.

    >>> _duration(0.4), _duration(75), _duration(7300)
    ('1 s', '1 min 15 s', '2 h 1 min')
    """
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
