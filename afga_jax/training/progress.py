"""A bar that shows how training goes, in notebooks and on terminals."""

import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

# Seconds after which a bar should move.
_SECONDS_PER_CALL = 0.5


class Progress:
    """Shows finished rounds, and sets how many a call of the program may take.

    Args:
      rounds: Number of rounds of the run.
      shown: Whether there should be a bar, where there is a notebook or a terminal.
    """

    def __init__(self, rounds: int, *, shown: bool = True):
        shown = shown and (in_notebook() or sys.stderr.isatty())
        self._bar = _bar(total=rounds, unit="round", disable=not shown)
        self._number, self._started = 1, time.perf_counter()
        self._texts: dict[str, str] = {}

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.close()

    def next_rounds(self, at_most: int) -> int:
        """Number of rounds of the next call: all of them where nobody watches.

        Args:
          at_most: Number of rounds up to the next evaluation.
        """
        self._started = time.perf_counter()
        return at_most if self._bar.disable else min(self._number, at_most)

    def advanced(self, rounds: int, loss: np.ndarray) -> None:
        """A call is over.

        Args:
          rounds: Number of its rounds.
          loss: Training loss of the last of them, of one seed or several.
        """
        pace = (time.perf_counter() - self._started) / rounds
        self._number = max(1, min(2 * self._number, int(_SECONDS_PER_CALL / pace)))
        self._show({"train loss": loss})
        self._bar.update(rounds)

    def evaluated(self, metrics: Mapping[str, np.ndarray]) -> None:
        """The test samples were evaluated."""
        self._show({f"test {name}": value for name, value in metrics.items()})
        self._bar.refresh()

    def _show(self, values: Mapping[str, np.ndarray]) -> None:
        for name, value in values.items():
            self._texts[name] = f"{np.mean(value):.4g}"
        self._bar.set_postfix(self._texts, refresh=False)


def in_notebook() -> bool:
    """Whether the program is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "IPKernelApp" in getattr(shell, "config", {})


def _bar(**options: Any) -> Any:
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        # In a notebook without widgets the bar is of text, which is as good.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    return tqdm(dynamic_ncols=True, **options)
