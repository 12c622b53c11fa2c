"""Which engine runs an algorithm's rounds, and what it will hold.

The dense engine keeps everybody's model and mixes all of them after every step; the
span engine keeps increments and forms a model when it is needed. Both compute the same
gradients, the span engine several at once where there are several devices. A rule
chooses (`reason_for_dense`): it looks at the algorithm and at the number of devices,
never at a clock or at free memory, so every process makes the same choice.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import numpy as np

from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.mesh import CLIENTS, on_cpu
from afga_jax.population.faults import planned
from afga_jax.population.sampling import make_plan
from afga_jax.rounds import span
from afga_jax.rounds.client_step import is_stateful
from afga_jax.rounds.execution import Execution
from afga_jax.rounds.span import schedule
from afga_jax.training import flops, memory
from afga_jax.training.flops import Work
from afga_jax.training.memory import Footprint, Outline
from afga_jax.training.planner import Planner
from afga_jax.typing import Array, ClientData

# Numbers of a mixing matrix that schedules are made from in less than a second.
_LARGEST_MATRIX = 2**22
# Operations of a gradient, some milliseconds of a core; devices that share a slot wait
# for each other for one or two.
_WORTH_A_MEETING = 2**26
# Rounds that are looked at: those that a run plans first anyway.
_FIRST = range(8)


@dataclasses.dataclass(frozen=True)
class Choice:
    """An engine and why.

    Attributes:
      engine: `dense` or `span`.
      reason: Why this engine was chosen, in a few words.
      run: What its memory depends on, but for the data.
      other: The same for the other engine; None: it cannot run this, or was not asked.
      width: Gradients side by side in a slot of the span engine.
      devices: Number of devices that share a slot.
    """

    engine: str
    reason: str
    run: Footprint
    other: Footprint | None = None
    width: int = 1
    devices: int = 1

    @property
    def record(self) -> dict[str, str | int]:
        """Settings of a run that make this choice again, on whatever machine."""
        if self.engine == "dense":
            return {"engine": "dense"}
        return {"engine": "span", "wave_width": self.width}

    def holding(
        self, data: ClientData, work: Work | None = None, *, parts: int = 1
    ) -> "Choice":
        """The same, with these data in the account of its memory.

        Args:
          data: The clients'.
          work: What a gradient takes; None: its memory stays out of the account.
          parts: Blocks that the data lie in over devices; 1: they are copied.
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
    data: ClientData | None = None,
) -> tuple[Choice, Planner]:
    """The engine of an algorithm, and what makes its plans and schedules.

    Args:
      algorithm: From `build`.
      key: The run's key, or several seeds'.
      execution: What was asked for; `auto`: by the rule.
      data: The clients', for the size of a gradient; None: it is taken for large.

    Returns:
      The choice, with the account of both engines' memory where the span engine is
      taken, and the planner of the run.
    """
    outline = Outline(algorithm, key, execution)
    planner = _planner(algorithm, outline)
    blocks = _mesh_blocks(execution)
    here = blocks or _cpu_devices(algorithm, execution, data)
    dense = outline.dense(blocks or 1)
    taken, reason = execution.engine, "as asked"
    if taken == "auto":
        against = reason_for_dense(algorithm, key, outline, planner, here)
        taken = "dense" if against else "span"
        reason = against or "devices share the gradients"
        if not against and algorithm.recipe.mixing.mixes:
            reason = "not everybody computes at every step"
    if taken == "dense":
        return Choice("dense", reason, dense, devices=blocks or 1), planner
    width = execution.slot_width or here * (1 if on_cpu() else 8)
    if blocks and width % blocks:
        raise ValueError(
            f"slot_width = {width}, but it must be a multiple of the {blocks} devices "
            f"that share the clients: take {here * (1 if on_cpu() else 8)}."
        )
    devices, planner = math.gcd(here, width), planner.with_width(width)
    capacity = schedule.bucket([sizes for _, sizes in planner.sizes(key)])
    run = outline.span(capacity, width, devices)
    return Choice("span", reason, run, dense, width, devices), planner


def takes_span(
    algorithm: FederatedAlgorithm,
    key: Array,
    execution: Execution = Execution(),
    data: ClientData | None = None,
) -> bool:
    """Whether `choose` takes the span engine; makes no schedules.

    Args:
      algorithm: From `build`.
      key: The run's key, or several seeds'.
      execution: What was asked for; `auto`: by the rule.
      data: The clients', for the size of a gradient; None: it is taken for large.
    """
    if execution.engine != "auto":
        return execution.engine == "span"
    outline = Outline(algorithm, key, execution)
    here = _mesh_blocks(execution) or _cpu_devices(algorithm, execution, data)
    planner = _planner(algorithm, outline)
    return reason_for_dense(algorithm, key, outline, planner, here) is None


def alternative(algorithm: FederatedAlgorithm, key: Array) -> Footprint | None:
    """What the span engine would hold on one device; None: the rule is against it.

    Args:
      algorithm: From `build`.
      key: The run's key, or several seeds'.
    """
    choice, _ = choose(algorithm, key, Execution(slot_width=1))
    return choice.run if choice.engine == "span" else None


def check_span(algorithm: FederatedAlgorithm) -> None:
    """Refuses the span engine where it cannot run an algorithm."""
    params, _ = jax.eval_shape(algorithm.task.init, jax.random.key(0))
    if reason := span.reason_against(algorithm.recipe, params):
        raise ValueError(
            f"engine = 'span', but it must be 'dense' or 'auto' here: {reason}."
        )


def reason_for_dense(
    algorithm: FederatedAlgorithm,
    key: Array,
    outline: Outline,
    planner: Planner,
    devices: int,
) -> str | None:
    """The rule: why `auto` takes the dense engine; None: it takes the span engine.

    Args:
      algorithm: From `build`.
      key: The run's key, or several seeds'.
      outline: What is known of the run from shapes.
      planner: Makes the run's plans; the first rounds' plans say who computes.
      devices: Number of devices that would share the gradients of a slot.
    """
    recipe = algorithm.recipe
    if reason := span.reason_against(recipe, outline.state.params):
        return reason
    if not recipe.mixing.mixes and (outline.on_mesh or devices == 1):
        return "nobody mixes, so only a few hold a model"
    if _everybody_computes(algorithm, key, planner):
        return "everybody computes at every step"
    on_grid = recipe.mixing.grid(np.ones(algorithm.options.local_steps, bool))
    entries = recipe.mixing.matrix_entries(outline.rows)
    if on_grid is None and entries > _LARGEST_MATRIX:
        return "a schedule would take a matrix of everybody by everybody"
    return None


def _planner(algorithm: FederatedAlgorithm, outline: Outline) -> Planner:
    stateful = is_stateful(algorithm.recipe, outline.state.params)
    return Planner(algorithm, stateful=stateful)


def _mesh_blocks(execution: Execution) -> int | None:
    """Devices of a mesh that share the clients; None: no mesh was asked for."""
    mesh = execution.mesh
    return None if mesh is None else dict(mesh.shape).get(CLIENTS, 1)


def _cpu_devices(
    algorithm: FederatedAlgorithm, execution: Execution, data: ClientData | None
) -> int:
    """CPU devices that share a slot: all, where gradients are worth a meeting.

    Without a mesh no other devices share gradients.
    """
    devices = jax.local_device_count() if on_cpu() else 1
    if devices == 1 or execution.slot_width or data is None:
        return devices
    full_batch = algorithm.recipe.full_batch
    work = flops.count(algorithm.task, data, full_batch=full_batch)
    return devices if work.operations >= _WORTH_A_MEETING else 1


def _everybody_computes(
    algorithm: FederatedAlgorithm, key: Array, planner: Planner
) -> bool:
    """Whether each cycle's clients all compute, at every step of the first rounds.

    If nothing fails: faults change neither the engine nor how fast it is by much.
    """
    recipe, num_clients = algorithm.recipe, algorithm.recipe.clustering.num_clients
    shape = jax.eval_shape(algorithm.plan, jax.random.key(0), 0).cycles.active.shape
    if shape[0] * math.prod(shape[2:]) < num_clients:
        return False
    if (whole := planned(recipe.participation)) is not recipe.participation:
        plan = functools.partial(make_plan, whole, recipe.order)
        planner = Planner(algorithm._replace(plan=plan))
    plans, _ = planner(key, _FIRST)
    # Rounds, seeds where there are several, cycles, steps, groups, clients.
    computing = np.asarray(plans.cycles.active) < num_clients
    of_step = computing.sum((-1, -2)).sum(-2)
    return bool((of_step == num_clients).all())
