"""How rounds are executed, which never changes what they compute."""

import dataclasses

from jax.sharding import Mesh


@dataclasses.dataclass(frozen=True)
class Execution:
    """How the rounds of an algorithm are executed.

    Attributes:
      engine: `dense` keeps everybody's model, `span` only increments; `auto`: by rule.
      chunk: Clients whose gradients a device computes side by side; None: by platform.
      slot_width: Gradients in a slot of the span engine; None: by platform.
      mesh: Devices that share clients and seeds; None: one device, or all CPU devices
        for the span engine.
    """

    engine: str = "auto"
    chunk: int | None = None
    slot_width: int | None = None
    mesh: Mesh | None = None
