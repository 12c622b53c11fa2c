"""Memory that a run will take, known before anything is compiled.

A run that cannot fit is refused while that costs nothing, with what would fit. The
figures were compared with the peaks of real runs (`benchmarks.peaks`).
"""

import bisect
import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.mesh import on_cpu
from afga_jax.rounds.execution import Execution
from afga_jax.rounds.span.schedule import Sizes
from afga_jax.typing import Array, PyTree

# On CPU, JAX, the compiler and its programs: 0.2 to 0.5 GB were seen.
_PROGRAMS = 3 * 10**8
# The server's step keeps the uploads and, of every number, whether it is zero.
_UPLOADS = 1.25

#: What a caller can change so that a run fits, in the words of this library.
REMEDIES = {
    "engine": "Execution(engine={!r})",
    "devices": "{} CPU device",
    "seeds": "{} seeds",
    "chunk": "Execution(chunk={})",
    "slot_width": "Execution(slot_width={})",
    "clients": "{} clients",
}


@dataclasses.dataclass(frozen=True)
class Footprint:
    """The memory that a run takes, by what it depends on. Sizes are in bytes.

    Attributes:
      engine: `dense` or `span`.
      clients: Number of clients, N.
      rows: Client models of the dense engine, or increments of the span engine, that
        exist at a time.
      active: Clients that compute at a step, at most.
      uploads: Number of uploads of one cycle.
      model: Parameters and statistics of one model.
      memory: What a client's optimizer and correction keep during a round.
      server: The state, but for what each client has.
      each: What the state keeps for each client, from round to round.
      data: Samples, and who holds them.
      gradient: What one gradient holds on its way.
      together: Gradients that one device computes side by side.
      seeds: Number of seeds that run in one program.
      devices: Number of devices that share the work and, on CPU, the memory. Each has
        a copy of all.
      blocks: Blocks that the client rows lie in; a device then has one of them.
      parts: Blocks that the samples lie in, beside the data as they were loaded; 1:
        each device has a copy of all.
    """

    engine: str
    clients: int
    rows: int
    active: int
    uploads: int
    model: int
    memory: int = 0
    server: int = 0
    each: int = 0
    data: int = 0
    gradient: int = 0
    together: int = 1
    seeds: int = 1
    devices: int = 1
    blocks: int = 1
    parts: int = 1

    @property
    def state(self) -> int:
        """States of all seeds on all devices."""
        of_seed = self.server + self._block(self.clients) * self.each
        # A loop over seeds writes new states beside the old ones, each from a copy.
        states = self.seeds if self.seeds == 1 else 2 * self.seeds + 1
        return of_seed * states * self.devices

    @property
    def models(self) -> int:
        """Client models or increments, with the clients' memories and the uploads."""
        rows = self._block(self.rows)
        active, taken = min(self.active, rows), min(self.uploads, rows)
        uploads = _UPLOADS * self.uploads
        if self.engine == "dense":
            # One copy is read while the other is written, with the increments beside
            # them; when the uploads are taken out, the second copy is free again.
            uploads = max(rows + active, (1 + _UPLOADS) * taken)
        total = rows * (self.model + self.memory) + uploads * self.model
        return int(total) * self.devices * self._side_by_side

    @property
    def gradients(self) -> int:
        """What the gradients of all devices hold on their way."""
        return self.gradient * self.together * self.devices * self._side_by_side

    @property
    def rounds(self) -> int:
        """What rounds take beside the data as they were loaded."""
        return self.copies + self.state + self.models + self.gradients

    @property
    def copies(self) -> int:
        """Copies of the data beside those that were loaded, on all devices."""
        if self.parts == 1:
            return (self.devices - 1) * self.data
        return -(-self.data // self.parts) * self.devices

    @property
    def total(self) -> int:
        """The predicted peak, but for Python and its packages, and for evaluations."""
        programs = _PROGRAMS if on_cpu() else 0
        return self.data + self.rounds + programs

    def _block(self, rows: int) -> int:
        return -(-rows // self.blocks)

    @property
    def _side_by_side(self) -> int:
        """Seeds run one after another on CPU, all at once elsewhere."""
        return 1 if on_cpu() else self.seeds

    def __str__(self) -> str:
        parts = {
            "data": self.data + self.copies,
            "state": self.state,
            "client models": self.models,
            "gradients": self.gradients,
        }
        listed = ", ".join(f"{name} {size(n)}" for name, n in parts.items() if n)
        return f"about {size(self.total)} of memory ({listed})"


class Outline:
    """What is known of a run from shapes alone, before anything is drawn or compiled.

    Args:
      algorithm: From `build`.
      key: The run's key, or several seeds'.
      execution: How it is computed.

    Attributes:
      state: Shapes of one seed's state.
      rows: Clients that hold a model in a cycle.
      on_mesh: Whether a mesh was asked for.
    """

    def __init__(self, algorithm: FederatedAlgorithm, key: Array, execution: Execution):
        recipe = algorithm.recipe
        plan = jax.eval_shape(algorithm.plan, jax.random.key(0), 0)
        holders = jax.eval_shape(recipe.mixing.rows, plan)
        self.state = jax.eval_shape(algorithm.init, jax.random.key(0))
        self.rows = recipe.clustering.num_clients if holders is None else len(holders)
        self._chunk, self.on_mesh = execution.chunk, execution.mesh is not None
        state = self.state
        kept = (state.controls, state.optimizers, state.aggregator.clients)
        own = bytes_of((kept, state.clients))
        optimizer = jax.eval_shape(recipe.optimizer.init, state.params)
        correction = jax.eval_shape(recipe.correction.begin, state.params)
        clients = algorithm.options.num_clients
        self._footprint = Footprint(
            engine="dense",
            clients=clients,
            rows=self.rows,
            active=math.prod(plan.cycles.active.shape[2:]),
            uploads=math.prod(plan.cycles.upload.shape[1:]),
            model=bytes_of((self.state.params, self.state.stats)),
            memory=bytes_of((optimizer, correction)),
            server=bytes_of(self.state) - own,
            each=own // clients,
            seeds=len(key) if key.ndim else 1,
        )

    def dense(self, blocks: int = 1) -> Footprint:
        """What the dense engine holds.

        Args:
          blocks: Devices of a mesh, each with a block of the client rows.
        """
        together = self._together(-(-self._footprint.active // blocks))
        devices = blocks if on_cpu() else 1
        return dataclasses.replace(
            self._footprint, together=together, devices=devices, blocks=blocks
        )

    def span(self, capacity: Sizes, width: int, devices: int) -> Footprint:
        """What the span engine holds.

        Args:
          capacity: Sizes of its schedules.
          width: Gradients of a slot.
          devices: Number of devices that share a slot.
        """
        together = min(self._together(width), width // devices)
        return dataclasses.replace(
            self._footprint,
            engine="span",
            rows=capacity.rows + 1,
            together=together,
            devices=devices,
        )

    def _together(self, most: int) -> int:
        """Gradients that a device computes side by side."""
        chunk = self._chunk or (1 if on_cpu() else most)
        return min(chunk, self._footprint.active)


def check_fits(
    run: Footprint,
    other: Footprint | None = None,
    *,
    limit: float | None = None,
    remedies: Mapping[str, str] = REMEDIES,
) -> None:
    """Refuses a run that will not fit, and says what would.

    Args:
      run: Memory of the run that is about to start; its data is loaded once already.
      other: Memory of the same run with the other engine; None: that one cannot run it.
      limit: Bytes to be had; None: those of this machine, now.
      remedies: What can be changed, in the caller's words, by the keys of `REMEDIES`.

    Raises:
      ValueError: It does not fit.
    """
    limit = available() if limit is None else limit
    if limit is None or _beyond_data(run) <= limit:
        return
    values = _fitting(run, other, limit)
    fits = [remedies[name].format(value) for name, value in values.items()]
    hint = f"take {', or '.join(fits)}" if fits else "take a smaller model or batch"
    raise ValueError(
        f"this run needs {run}, of which {size(_beyond_data(run))} are still to be "
        f"had, but there are {size(limit)}: {hint}."
    )


def available() -> float | None:
    """Bytes that this process can still have on its devices; None: nobody knows."""
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        if "bytes_limit" not in stats:
            return None
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    known = [_free_memory(), _free_in_group()]
    return min((value for value in known if value is not None), default=None)


def bytes_of(tree: PyTree) -> int:
    """Of all arrays of a tree, or of their shapes; keys do not count."""
    arrays = [x for x in jax.tree.leaves(tree) if hasattr(x, "dtype")]
    plain = [x for x in arrays if not jnp.issubdtype(x.dtype, jax.dtypes.extended)]
    return sum(x.size * x.dtype.itemsize for x in plain)


def size(count: float) -> str:
    """A number of bytes for people.

    >>> size(950), size(63.6e6), size(1.234e12)
    ('950 bytes', '63.6 MB', '1,234 GB')
    """
    for unit in ("bytes", "kB", "MB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.0f} GB" if count >= 999.5 else f"{count:.3g} GB"


def _beyond_data(run: Footprint) -> int:
    return run.total - run.data


def _fitting(
    run: Footprint, other: Footprint | None, limit: float
) -> dict[str, str | int]:
    """The values, each for itself, with which the run would fit."""
    values: dict[str, str | int] = {}
    if other is not None and _beyond_data(other) <= limit:
        values["engine"] = other.engine
    if run.devices > 1 and _beyond_data(_with(run, "devices", 1)) <= limit:
        values["devices"] = 1
    if seeds := _most(run, "seeds", limit):
        values["seeds"] = seeds
    if together := _most(run, "together", limit):
        span = run.engine == "span"
        name = "slot_width" if span else "chunk"
        values[name] = together * (run.devices if span else 1)
    everybody = run.engine == "dense" and run.rows == run.clients
    if everybody and (clients := _most(run, "clients", limit)):
        values["clients"] = clients
    return values


def _most(run: Footprint, field: str, limit: float) -> int:
    """The largest value below the run's own that fits; 0: none does."""
    smaller = range(1, getattr(run, field))
    need = lambda value: _beyond_data(_with(run, field, value))  # noqa: E731
    return bisect.bisect_right(smaller, limit, key=need)


def _with(run: Footprint, field: str, value: int) -> Footprint:
    changes: dict[str, Any] = {field: value}
    if field == "clients":
        fewer = {"active": min(run.active, value), "uploads": min(run.uploads, value)}
        changes |= {"rows": value, **fewer}
    return dataclasses.replace(run, **changes)


def _free_memory(path: Path = Path("/proc/meminfo")) -> int | None:
    if not path.exists():
        return None
    lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
    return 1024 * int(lines["MemAvailable"].split()[0])


def _free_in_group(
    own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """What the process's control group may still take; None: it is not limited."""
    if not own.exists():
        return None
    free = []
    for line in own.read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "memory":
            top, limit, usage = root / "memory", "limit_in_bytes", "usage_in_bytes"
        elif not controllers:
            top, limit, usage = root, "max", "current"
        else:
            continue
        # Inside a container the group's own folder is often mounted as the root.
        for folder in (top / group.strip("/"), top):
            files = [folder / f"memory.{name}" for name in (limit, usage)]
            if all(path.exists() for path in files):
                most, used = (path.read_text().strip() for path in files)
                free += [max(0, int(most) - int(used))] if most.isdigit() else []
    return min(free, default=None)
