"""How several runs go, for people: one bar for all of them, and the time left."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import tqdm

from afga_jax.runs.config import Config
from afga_jax.runs.progress import Display, accuracy_of
from afga_jax.runs.record import Row

# Letters of a run's name, so that a bar has room beside it on 80 columns.
_LONGEST = 24


class Series:
    """Shows runs that follow each other; `with` closes its bar.

    On a terminal there is a bar with the run's number, its round and the time that is
    left for all of them, as if every run's rounds took what a round took so far.
    Elsewhere nothing but notes is shown. A note that several runs have is shown once.

    Args:
      rounds: Number of rounds of each run.
      error: The stream for notes and the bar; None: standard error.
    """

    def __init__(self, rounds: Sequence[int], *, error: TextIO | None = None):
        self._rounds, self._number = list(rounds), 0
        self._error = error or sys.stderr
        self._noted: set[str] = set()
        self._bar = tqdm.tqdm(
            total=sum(self._rounds),
            file=self._error,
            disable=not self.is_shown,
            dynamic_ncols=True,
            smoothing=0,  # the mean pace: a new run's compilation is no new pace
            bar_format="{desc} |{bar}| {remaining} left{postfix}",
        )

    @property
    def is_shown(self) -> bool:
        """Whether there is a terminal for the bar."""
        return self._error.isatty()

    def __enter__(self) -> "Series":
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.close()

    def next(self, label: str) -> Display:
        """The display of the next run.

        Args:
          label: The run's name.
        """
        before = self._behind
        self._number += 1
        # What diverged, or reached its target, leaves rounds that nobody runs.
        self.reach(before, paced=False)
        name = f"run {self._number} of {len(self._rounds)}, {_short(label)}"
        return _Part(self, name, before)

    def skip(self) -> None:
        """The next run was finished before."""
        self._number += 1
        self.reach(self._behind, paced=False)

    def line(self, text: str) -> None:
        """A line of results above the bar."""
        if self._bar.disable:
            print(text, flush=True)
        else:
            self._bar.write(text, file=sys.stdout)

    def note(self, text: str) -> None:
        """A line that the user should know of."""
        if text not in self._noted:
            self._noted.add(text)
            self.say(f"note: {text}")

    def say(self, text: str) -> None:
        """A line beside the command's output."""
        self._bar.write(text, file=self._error)

    def reach(self, rounds: int, *, paced: bool = True) -> None:
        """That many rounds of all runs are done, if they were not yet.

        Args:
          rounds: Counted from the first run on.
          paced: Whether they were done just now, so that they tell the pace.
        """
        more = rounds - self._bar.n
        if more <= 0 or self._bar.disable:
            return
        if not paced:
            self._bar.initial += more
        self._bar.update(more)

    def advance(self, rounds: int) -> None:
        """That many more are done, of runs side by side that are still to be next."""
        self._bar.update(rounds)

    def show(self, now: str, result: str = "") -> None:
        """What is going on, before the bar, and what came out so far, after it."""
        if not self._bar.disable:
            self._bar.set_postfix_str(result, refresh=False)
            self._bar.set_description_str(now)

    @property
    def _behind(self) -> int:
        return sum(self._rounds[: self._number])


class _Part(Display):
    """One run of a series.

    Args:
      series: What shows it.
      name: Its number and name.
      before: The rounds of all runs before it.
    """

    def __init__(self, series: Series, name: str, before: int):
        super().__init__(quiet=True)
        self._series, self._name, self._before = series, name, before
        self._result = ""
        series.show(f"{name}, starting")

    def begin(self, config: Config, facts: Row, folder: Path, done: int) -> None:
        del folder
        for note in facts.get("notes", ()):
            self.note(note)
        self._rounds, self._done = config.rounds, done
        self._series.reach(self._before + done, paced=False)
        self._series.show(f"{self._name}, compiling")

    def note(self, text: str) -> None:
        self._series.note(text)

    def advanced(self, rounds: int, loss: float) -> None:
        del loss
        self._done += rounds
        now = f"{self._name}, round {self._done}/{self._rounds}"
        self._series.show(now, self._result)
        self._series.reach(self._before + self._done)

    def evaluated(self, rows: Sequence[Row]) -> None:
        self._result = accuracy_of(rows)

    def first(self, done: int, seconds: float, compiling: float) -> None:
        """The bar tells how long it will take."""


def _short(label: str) -> str:
    """The end of a long name, which says more: a table's line, a grid's last axis.

    >>> _short("Setting 2 on CIFAR-10, FedAMSGrad")
    '…on CIFAR-10, FedAMSGrad'
    """
    label = label.removeprefix("line=")
    return label if len(label) <= _LONGEST else f"…{label[1 - _LONGEST :]}"
