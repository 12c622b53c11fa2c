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
from typing import Any, NamedTuple

import jax
import numpy as np

from afga_jax import cost, gradient, memory, schedule, span
from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.cost import Cost
from afga_jax.cycle import is_stateful
from afga_jax.execution import Execution
from afga_jax.gradient import Work
from afga_jax.memory import Run
from afga_jax.mixing import NoMixing
from afga_jax.outline import Outline, on_cpu
from afga_jax.placement import CLIENTS
from afga_jax.planner import Planner, quick_to_compile
from afga_jax.schedule import Sizes
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
        """Settings of a run that make this choice again, whatever is measured then."""
        if self.engine == "dense":
            return {"engine": "dense"}
        return {"engine": "span", "wave_width": self.width}

    def holding(
        self, data: ClientData, work: Work | None = None, *, parts: int = 1
    ) -> "Choice":
        """The same, with these data in the account of its memory.

        Args:
          data: The clients'.
          work: Of a gradient; None: its memory stays out of the account.
          parts: Blocks over devices that the data are dealt to; 1: they are copied.
        """
        more: dict[str, Any] = {"data": memory.bytes_of(data), "parts": parts}
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
    execution: Execution = Execution(),
    work: Work | Callable[[], Work] | None = None,
) -> tuple[Choice, Planner]:
    """The engine of an algorithm, and what makes its plans and schedules.

    Args:
      algorithm: From `build`.
      key: The run's key, or several seeds'.
      execution: What was asked for.
      work: What a gradient takes, or a function that counts it, which is asked only
        where the choice depends on it. None: the least that so many weights take,
        which is too little for convolutions.
    """
    return _Chooser(algorithm, key, execution, work).choose()


def check_span(algorithm: FederatedAlgorithm) -> None:
    """Refuses the span engine where it cannot run an algorithm."""
    params, _ = jax.eval_shape(algorithm.task.init, jax.random.key(0))
    if reason := span.reason_against(algorithm.recipe, params):
        raise ValueError(
            f"engine = 'span', but it must be 'dense' or 'auto' here: {reason}."
        )


def alternative(algorithm: FederatedAlgorithm, key: Array) -> Run | None:
    """What the span engine would hold in place of the dense one; None: it cannot run.

    Args:
      algorithm: From `build`, whatever engine was asked for.
      key: The run's key, or several seeds'.
    """
    chooser = _Chooser(algorithm, key, Execution(), None)
    if chooser.against():
        return None
    return chooser.span("as asked", chooser.timetabled(1)).run


class _Chooser:
    """What `choose` knows of an algorithm."""

    def __init__(self, algorithm, key, execution, work):
        self.algorithm, self.key, self.execution = algorithm, key, execution
        self.recipe = algorithm.recipe
        self.outline = Outline(algorithm, key, execution)
        self.counts = self.outline.counts
        self._here = jax.local_device_count() if on_cpu() else 1
        self._shares = None
        if execution.mesh is not None:
            self._shares = self._here = dict(execution.mesh.shape).get(CLIENTS, 1)
        self._work = work

    def choose(self) -> tuple[Choice, Planner]:
        if against := self.against():
            return self._dense(against)
        if self.execution.engine == "auto" and (seconds := self._hopeless()):
            return self._dense(_compared(seconds, "dense", "at least "), seconds)
        spans = self._spans()
        if self.execution.engine == "span" and len(spans) == 1:
            return self.span("as asked", spans[0]), spans[0].planner
        costs = [cost.span_cost(one.sizes, self.counts, one.devices) for one in spans]
        needed = float(np.mean([count for count, _ in spans[0].sizes]))
        mixing, shares = self.recipe.mixing, self._shares or 1
        dense = cost.dense_cost(mixing, self.counts, needed, devices=shares)
        gradient_ = self._gradient_seconds([dense, *costs])
        took = [one.seconds(gradient_) for one in costs]
        led = [t * _lead(one.devices) for t, one in zip(took, spans, strict=True)]
        best = int(np.argmin(led))
        seconds = {"dense": dense.seconds(gradient_), "span": took[best]}
        chosen = self.span("as asked", spans[best])
        if self.execution.engine == "span":
            return chosen, spans[best].planner
        taken = "span" if led[best] < seconds["dense"] else "dense"
        reason, (run, other) = _compared(seconds, taken), (chosen.run, chosen.other)
        fitting = [one.engine for one in (run, other) if one and _fits(one)]
        if fitting and taken not in fitting:
            taken, reason = fitting[0], f"the {taken} engine would not fit"
        if taken == "dense":
            planner = spans[best].planner.with_width(None)
            return self._dense(reason, seconds, run, planner)
        chosen = dataclasses.replace(chosen, reason=reason, seconds=seconds)
        return chosen, spans[best].planner

    def _spans(self) -> list["_Span"]:
        """Ways to run the span engine, by its width: those that fit, or the last."""
        widths = [self.execution.slot_width or _width(self._here)]
        free = self.execution.slot_width is None and self._shares is None
        if on_cpu() and free and self._here > 1:
            # Devices wait for each other, and each has a copy of all.
            widths.append(1)
        spans, planner = [], None
        for width in widths:
            spans.append(self.timetabled(width, planner))
            planner = spans[0].planner
        fitting = [one for one in spans if _fits(self.span("", one).run)]
        return fitting or spans[-1:]

    def against(self) -> str | None:
        """Why the span engine is out of the question; None: it is not."""
        if self.execution.engine != "auto":
            return "as asked" if self.execution.engine == "dense" else None
        mixing = self.recipe.mixing
        if jax.process_count() > 1:
            return "several processes must choose alike, whatever each measures"
        if reason := span.reason_against(self.recipe, self.outline.state.params):
            return reason
        if isinstance(mixing, NoMixing) and (self._shares or self._here == 1):
            return "nobody mixes, so only a few hold a model"
        if cost.matrix_entries(mixing, self.counts) > _LARGEST_MATRIX:
            return "a schedule would take a matrix of everybody by everybody"
        return None

    def _dense(
        self, reason, seconds=None, other=None, planner=None
    ) -> tuple[Choice, Planner]:
        shares = self._shares or 1
        run = self.outline.dense(shares)
        choice = Choice(
            "dense", reason, run, other, devices=shares, seconds=seconds or {}
        )
        return choice, planner or Planner(self.algorithm)

    def timetabled(self, width: int, planner: Planner | None = None) -> "_Span":
        """The span engine at a width, with the sizes of some schedules.

        Args:
          width: Of a slot.
          planner: Of another width, whose programs are shared.
        """
        if planner is None:
            stateful = is_stateful(self.recipe, self.outline.state.params)
            planner = Planner(self.algorithm, width, stateful=stateful)
        else:
            planner = planner.with_width(width)
        devices = math.gcd(self._here, width)
        if self._shares and devices < self._shares:
            raise ValueError(
                f"slot_width = {width}, but it must be a multiple of the "
                f"{self._shares} devices that share the clients: take "
                f"{_width(self._shares)}."
            )
        return _Span(width, devices, planner, planner.sizes(self.key))

    def span(self, reason: str, one: "_Span") -> Choice:
        capacity = schedule.bucket([sizes for _, sizes in one.sizes])
        run = self.outline.span(capacity, one.width, one.devices)
        dense = self.outline.dense(self._shares or 1)
        return Choice("span", reason, run, dense, one.width, one.devices)

    def _hopeless(self) -> dict[str, float] | None:
        """Seconds, where even the least that the span engine needs is too long."""
        width = self.execution.slot_width or _width(self._here)
        mixing, devices = self.recipe.mixing, math.gcd(self._here, width)
        dense = cost.dense_cost(mixing, self.counts, devices=self._shares or 1)
        least = cost.least_span_cost(mixing, self.counts, devices)
        if least is None or least.moves <= dense.moves:
            return None
        one = self._gradient_seconds([dense, least])
        seconds = {"dense": dense.seconds(one), "span": least.seconds(one)}
        return seconds if seconds["span"] > seconds["dense"] else None

    def _gradient_seconds(self, costs: list[Cost]) -> float:
        """Of one gradient; a guess where that would not change which cost is least."""
        moves, gradients = (min(column) for column in zip(*costs, strict=True))
        least = [one.moves <= moves and one.gradients <= gradients for one in costs]
        work = self._work
        if callable(work):
            work = None if any(least) else work()
        work = work or gradient.of_weights(self.counts.model // 4)
        return cost.gradient_seconds(work)


class _Span(NamedTuple):
    """The span engine at one width.

    Attributes:
      width: Of a slot.
      devices: That share it.
      planner: Makes its schedules.
      sizes: Needed gradients and sizes of some cycles' schedules.
    """

    width: int
    devices: int
    planner: Planner
    sizes: list[tuple[int, Sizes]]


def _lead(devices: int) -> float:
    return _LEAD if devices > 1 else 1.0


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
