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
from afga_jax.calibrate import operation_seconds
from afga_jax.cost import Counts
from afga_jax.cycle import is_stateful
from afga_jax.gradient import Work
from afga_jax.memory import Run
from afga_jax.mixing import NoMixing
from afga_jax.participation import Plan
from afga_jax.planner import Planner, quick_to_compile
from afga_jax.recipe import FederatedState, Recipe
from afga_jax.schedule import Sizes
from afga_jax.typing import Array, ClientData

__all__ = ["Choice", "Planner", "choose", "quick_to_compile"]


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

    def holding(self, data: ClientData) -> "Choice":
        """The same, with the memory of these data in the account."""
        count = memory.bytes_of(data)
        runs = {
            name: run and dataclasses.replace(run, data=count)
            for name, run in (("run", self.run), ("other", self.other))
        }
        return dataclasses.replace(self, **runs)

    def __str__(self) -> str:
        where = f" on {self.devices} devices" if self.devices > 1 else ""
        return f"{self.engine} engine{where}: {self.reason}"


def choose(
    algorithm: FederatedAlgorithm,
    key: Array,
    work: Callable[[], Work] | None = None,
) -> tuple[Choice, Planner]:
    """The engine of an algorithm, and what makes its plans and schedules.

    Args:
      algorithm: From `build`.
      key: The run's key, or several seeds'.
      work: Counts what a gradient takes, where the choice depends on it. None: the
        least that so many weights take, which is too little for convolutions.
    """
    return _Chooser(algorithm, key, work).choose()


class _Chooser:
    """What `choose` knows of an algorithm."""

    def __init__(self, algorithm, key, work):
        self.algorithm, self.key = algorithm, key
        self.options, self.recipe = algorithm.options, algorithm.recipe
        self.state = _shapes(algorithm, key)
        self.plan = jax.eval_shape(algorithm.plan, jax.random.key(0), 0)
        self.counts = _counts(self.recipe, self.plan, self.state)
        self.available = jax.local_device_count() if _on_cpu() else 1
        self.width = self.options.wave_width or _width(self.available)
        self.devices = math.gcd(self.available, self.width)
        self._work = work

    def choose(self) -> tuple[Choice, Planner]:
        if against := self._against():
            return self._dense(against)
        stateful = is_stateful(self.recipe, self.state.params)
        planner = Planner(self.algorithm, self.width, stateful=stateful)
        if self.options.engine == "auto" and (seconds := self._hopeless()):
            return self._dense(_compared(seconds, "dense", "at least "), seconds)
        sizes = planner.sizes(self.key)
        run = self._span_run(schedule.bucket([one for _, one in sizes]))
        choice = Choice(
            "span", "as asked", run, self._dense_run(), self.width, self.devices
        )
        if self.options.engine == "span":
            return choice, planner
        seconds = self._seconds(sizes)
        if seconds["dense"] <= seconds["span"]:
            return self._dense(_compared(seconds, "dense"), seconds, run)
        reason = _compared(seconds, "span")
        return dataclasses.replace(choice, reason=reason, seconds=seconds), planner

    def _against(self) -> str | None:
        """Why the span engine is out of the question; None: it is not."""
        if self.options.engine != "auto":
            return "as asked" if self.options.engine == "dense" else None
        if reason := span.reason_against(self.recipe, self.state.params):
            return reason
        if isinstance(self.recipe.mixing, NoMixing) and self.devices == 1:
            return "nobody mixes, so only a few hold a model"
        return None

    def _dense(self, reason, seconds=None, other=None) -> tuple[Choice, Planner]:
        choice = Choice("dense", reason, self._dense_run(), other)
        choice = dataclasses.replace(choice, seconds=seconds or {})
        return choice, Planner(self.algorithm)

    def _hopeless(self) -> dict[str, float] | None:
        """Seconds, where even the least that the span engine needs is too long."""
        dense = cost.dense_cost(self.recipe.mixing, self.counts)
        least = cost.least_span_cost(self.recipe.mixing, self.counts, self.devices)
        if least is None or least.moves <= dense.moves:
            return None
        one = self._gradient_seconds()
        seconds = {"dense": dense.seconds(one), "span": least.seconds(one)}
        return seconds if seconds["span"] > seconds["dense"] else None

    def _seconds(self, sizes: list[tuple[int, Sizes]]) -> dict[str, float]:
        needed = float(np.mean([count for count, _ in sizes]))
        dense = cost.dense_cost(self.recipe.mixing, self.counts, needed)
        spanned = cost.span_cost(sizes, self.counts, self.devices)
        one = self._gradient_seconds()
        return {"dense": dense.seconds(one), "span": spanned.seconds(one)}

    def _gradient_seconds(self) -> float:
        if self._work is None:
            found = gradient.of_weights(self.counts.model // 4)
        else:
            found = self._work()
        return found.operations * operation_seconds()

    def _dense_run(self) -> Run:
        chunk = self.recipe.chunk or (1 if _on_cpu() else self.counts.active)
        return self._run("dense", self.counts.rows, chunk, 1)

    def _span_run(self, capacity: Sizes) -> Run:
        chunk = self.recipe.chunk or (1 if _on_cpu() else self.width)
        lanes = min(chunk, self.width // self.devices)
        return self._run("span", capacity.rows + 1, lanes, self.devices)

    def _run(self, engine: str, rows: int, together: int, devices: int) -> Run:
        state, each = self.state, (self.state.controls, self.state.clients)
        own = memory.bytes_of(each)
        return Run(
            engine=engine,
            clients=self.options.num_clients,
            rows=rows,
            active=self.counts.active,
            uploads=self.counts.uploads,
            model=self.counts.model,
            memory=_client_memory(self.recipe, state),
            server=memory.bytes_of(state) - own,
            each=own // self.options.num_clients,
            together=min(together, self.counts.active),
            seeds=len(self.key) if self.key.ndim else 1,
            devices=devices,
        )


def _counts(recipe: Recipe, plan: Plan, state: FederatedState) -> Counts:
    cycles, steps, *active = plan.cycles.active.shape
    rows = jax.eval_shape(recipe.mixing.rows, plan)
    return Counts(
        cycles=cycles,
        steps=steps,
        active=math.prod(active),
        rows=recipe.clustering.num_clients if rows is None else len(rows),
        uploads=math.prod(plan.cycles.upload.shape[1:]),
        model=memory.bytes_of((state.params, state.stats)),
    )


def _client_memory(recipe: Recipe, state: FederatedState) -> int:
    """Bytes that a client's optimizer and correction keep during a round."""
    own = lambda p: (recipe.optimizer.init(p), recipe.correction.begin(p))  # noqa: E731
    return memory.bytes_of(jax.eval_shape(own, state.params))


def _shapes(algorithm: FederatedAlgorithm, key: Array) -> FederatedState:
    state = jax.eval_shape(algorithm.init, key)
    if not key.ndim:
        return state
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), state)


def _width(devices: int) -> int:
    """One client at a time on each CPU device, a batch of them on an accelerator."""
    return devices * (1 if _on_cpu() else 8)


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _compared(seconds: dict[str, float], chosen: str, least: str = "") -> str:
    other = "span" if chosen == "dense" else "dense"
    return (
        f"about {1000 * seconds[chosen]:.3g} ms a round against {least}"
        f"{1000 * seconds[other]:.3g} ms"
    )
