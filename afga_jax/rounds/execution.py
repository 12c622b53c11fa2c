"""How a round is computed; what it computes is the algorithm's."""

from dataclasses import dataclass

from jax.sharding import Mesh

from afga_jax import checks

#: What `Execution.engine` may be.
ENGINES = ("auto", "dense", "span")


@dataclass(frozen=True)
class Execution:
    """How rounds are computed. Results are the same up to rounding.

    A frozen value that can be hashed, so that `jit` takes it as a static argument.

    Attributes:
      engine: `dense` keeps everybody's model, `span` only increments; `auto`: by rule
        (`afga_jax.training.engine_choice`).
      chunk: Clients that run side by side; None: by platform.
      slot_width: Gradients in a slot of the span engine; None: by platform.
      mesh: Devices that share the clients and the seeds (`afga_jax.mesh.make_mesh`);
        None: one, or those of the CPU.

    >>> Execution(slot_width=0)
    Traceback (most recent call last):
    ...
    ValueError: slot_width = 0, but it must be >= 1.
    """

    engine: str = "auto"
    chunk: int | None = None
    slot_width: int | None = None
    mesh: Mesh | None = None

    def __post_init__(self):
        checks.choice("engine", self.engine, ENGINES)
        for name in ("chunk", "slot_width"):
            if (value := getattr(self, name)) is not None:
                checks.integer(name, value)
        if self.mesh is not None and not isinstance(self.mesh, Mesh):
            raise ValueError(
                f"mesh = {self.mesh!r}, but it must be a jax.sharding.Mesh or None: "
                "make one with afga_jax.mesh.make_mesh."
            )
