"""Which engine runs an algorithm's rounds, and what that will cost.

The dense engine keeps everybody's model and mixes all of them after every step; the
span engine keeps increments and forms a model when it is needed. Both compute the same
gradients, on CPU the span engine several at once where there are several devices. So
predicted seconds are compared (`cost`), and bytes (`memory`), since what does not fit
is no choice.
"""

import dataclasses
import math
from collections.abc import Callable

import jax
import numpy as np

from afga_jax import cost, gradient, memory, schedule, span
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.cycle import is_stateful
from afga_jax.gradient import Work
from afga_jax.memory import Run
from afga_jax.mixing import NoMixing
from afga_jax.outline import Outline, on_cpu
from afga_jax.planner import Planner, quick_to_compile
from afga_jax.typing import Array, ClientData

__all__ = ["Choice", "Planner", "alternative", "choose", "quick_to_compile"]

# How far ahead devices side by side must be: a busy machine takes more from them.
_LEAD = 1.25
# Numbers of a mixing matrix that schedules are made from in less than a second.
_LARGEST_MATRIX = 2**22


@dataclasses.dataclass(frozen=True)
class Choice:
    """An engine and why.

    Attributes:
      engine: `dense` or `span`.
      reason: In a few words.
      run: What its memory depends on, but for the data.
      other: The same for the other engine; None: it cannot run this, or was not asked.
      width: Gradients side by side in a slot of the span engine.
      devices: That share a slot.
      seconds: Predicted for a round of each engine, by name; empty: not compared.
    """

    engine: str
    reason: str
    run: Run
    other: Run | None = None
    width: int = 1
    devices: int = 1
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Predicted for client models and increments, on all devices."""
        return self.run.models

    @property
    def other_bytes(self) -> int | None:
        """The same for the other engine."""
        return None if self.other is None else self.other.models

    @property
    def record(self) -> dict[str, str | int]:
        """Options of `build` that make this choice again, whatever is measured then."""
        if self.engine == "dense":
            return {"engine": "dense"}
        return {"engine": "span", "wave_width": self.width}

    def holding(self, data: ClientData, work: Work | None = None) -> "Choice":
        """The same, with these data in the account of its memory.

        Args:
          data: The clients'.
          work: Of a gradient; None: its memory stays out of the account.
        """
        more = {"data": memory.bytes_of(data)}
        if work is not None:
            more["gradient"] = int(work.bytes)
        run = dataclasses.replace(self.run, **more)
        other = self.other and dataclasses.replace(self.other, **more)
        return dataclasses.replace(self, run=run, other=other)

    def __str__(self) -> str:
        where = f" on {self.devices} devices" if self.devices > 1 else ""
        return f"{self.engine} engine{where}: {self.reason}"


def choose(
    algorithm: FederatedAlgorithm,
    key: Array,
    work: Work | Callable[[], Work] | None = None,
) -> tuple[Choice, Planner]:
    """The engine of an algorithm, and what makes its plans and schedules.

    Args:
      algorithm: From `build`.
      key: The run's key, or several seeds'.
      work: What a gradient takes, or a function that counts it, which is asked only
        where the choice depends on it. None: the least that so many weights take,
        which is too little for convolutions.
    """
    return _Chooser(algorithm, key, work).choose()


def alternative(algorithm: FederatedAlgorithm, key: Array) -> Run | None:
    """What the span engine would hold in place of the dense one; None: it cannot run.

    Args:
      algorithm: From `build`, whatever engine was asked for.
      key: The run's key, or several seeds'.
    """
    options = algorithm.options.replace(engine="auto")
    chooser = _Chooser(algorithm._replace(options=options), key, None)
    return None if chooser.against() else chooser.span("as asked", 1)[0].run


class _Chooser:
    """What `choose` knows of an algorithm."""

    def __init__(self, algorithm, key, work):
        self.algorithm, self.key = algorithm, key
        self.options, self.recipe = algorithm.options, algorithm.recipe
        self.outline = Outline(algorithm, key)
        self.counts = self.outline.counts
        self._here = jax.local_device_count() if on_cpu() else 1
        self._work = work

    def choose(self) -> tuple[Choice, Planner]:
        if against := self.against():
            return self._dense(against)
        width = self.options.wave_width or _width(self._here)
        if self.options.engine == "auto" and (seconds := self._hopeless(width)):
            return self._dense(_compared(seconds, "dense", "at least "), seconds)
        choice, planner, sizes = self.span("as asked", width)
        if not self.options.wave_width and width > 1 and not _fits(choice.run):
            # A copy on each device is too much.
            choice, planner, sizes = self.span("as asked", 1)
        if self.options.engine == "span":
            return choice, planner
        seconds = self._seconds(sizes, choice.devices)
        lead = _LEAD if choice.devices > 1 else 1.0
        taken = "span" if lead * seconds["span"] < seconds["dense"] else "dense"
        reason, (run, other) = _compared(seconds, taken), (choice.run, choice.other)
        fitting = [one.engine for one in (run, other) if _fits(one)]
        if fitting and taken not in fitting:
            taken, reason = fitting[0], f"the {taken} engine would not fit"
        if taken == "dense":
            return self._dense(reason, seconds, run, planner.without_schedules())
        return dataclasses.replace(choice, reason=reason, seconds=seconds), planner

    def against(self) -> str | None:
        """Why the span engine is out of the question; None: it is not."""
        if self.options.engine != "auto":
            return "as asked" if self.options.engine == "dense" else None
        mixing = self.recipe.mixing
        if reason := span.reason_against(self.recipe, self.outline.state.params):
            return reason
        if isinstance(mixing, NoMixing) and self._here == 1:
            return "nobody mixes, so only a few hold a model"
        if cost.matrix_entries(mixing, self.counts) > _LARGEST_MATRIX:
            return "a schedule would take a matrix of everybody by everybody"
        return None

    def _dense(
        self, reason, seconds=None, other=None, planner=None
    ) -> tuple[Choice, Planner]:
        run = self.outline.dense()
        choice = Choice("dense", reason, run, other, seconds=seconds or {})
        return choice, planner or Planner(self.algorithm)

    def span(self, reason: str, width: int) -> tuple[Choice, Planner, list]:
        stateful = is_stateful(self.recipe, self.outline.state.params)
        planner = Planner(self.algorithm, width, stateful=stateful)
        sizes = planner.sizes(self.key)
        devices = math.gcd(self._here, width)
        capacity = schedule.bucket([one for _, one in sizes])
        run = self.outline.span(capacity, width, devices)
        choice = Choice("span", reason, run, self.outline.dense(), width, devices)
        return choice, planner, sizes

    def _hopeless(self, width: int) -> dict[str, float] | None:
        """Seconds, where even the least that the span engine needs is too long."""
        mixing, devices = self.recipe.mixing, math.gcd(self._here, width)
        dense = cost.dense_cost(mixing, self.counts)
        least = cost.least_span_cost(mixing, self.counts, devices)
        if least is None or least.moves <= dense.moves:
            return None
        one = self._gradient_seconds()
        seconds = {"dense": dense.seconds(one), "span": least.seconds(one)}
        return seconds if seconds["span"] > seconds["dense"] else None

    def _seconds(self, sizes: list, devices: int) -> dict[str, float]:
        needed = float(np.mean([count for count, _ in sizes]))
        dense = cost.dense_cost(self.recipe.mixing, self.counts, needed)
        spanned = cost.span_cost(sizes, self.counts, devices)
        moves, gradients = (a - b for a, b in zip(dense, spanned, strict=True))
        # One engine that is ahead in both is so whatever a gradient takes.
        one = self._gradient_seconds(settled=moves * gradients >= 0)
        return {"dense": dense.seconds(one), "span": spanned.seconds(one)}

    def _gradient_seconds(self, *, settled: bool = False) -> float:
        work = self._work
        if callable(work):
            work = None if settled else work()
        work = work or gradient.of_weights(self.counts.model // 4)
        return cost.gradient_seconds(work)


def _width(devices: int) -> int:
    """One client at a time on each CPU device, a batch of them on an accelerator."""
    return devices * (1 if on_cpu() else 8)


def _fits(run: Run) -> bool:
    limit = memory.available()
    return limit is None or run.total <= limit


def _compared(seconds: dict[str, float], chosen: str, least: str = "") -> str:
    other = "span" if chosen == "dense" else "dense"
    return (
        f"about {1000 * seconds[chosen]:.3g} ms a round against {least}"
        f"{1000 * seconds[other]:.3g} ms"
    )
