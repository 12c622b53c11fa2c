"""Which links between clients are up at a local step.

Where the link (i, j) is down nothing goes over it, in either direction, and its weight
returns to both diagonals. With u the symmetric indicator of links that are up,

    W'ᵢⱼ = uᵢⱼ·Wᵢⱼ for i ≠ j,   W'ᵢᵢ = 1 − Σ_{j≠i} W'ᵢⱼ,

so a symmetric W stays symmetric and doubly stochastic, and the mean of all models stays
what it was.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from afga_jax.typing import Array


class Links(NamedTuple):
    """The links of one local step.

    Attributes:
      key: Key of the failures of this step; None: no link fails by itself.
      failure: Probability with which a link fails.
      there: Whether each client is there, `[N]`; None: everybody is.
    """

    key: Array | None
    failure: float = 0.0
    there: Array | None = None

    def up(self, first: Array, second: Array) -> Array:
        """Whether the links between these clients are up; padding has none.

        Args:
          first: Ids of clients at one end.
          second: Ids of clients at the other end; shapes are broadcast.
        """
        first, second = jnp.broadcast_arrays(first, second)
        up = jnp.ones(first.shape, bool)
        if self.there is not None:
            up = self.present(first) & self.present(second)
        if self.key is None:
            return up
        return up & (self.chances(first, second) >= self.failure)

    def present(self, ids: Array) -> Array:
        """Whether these clients are there; padding is not."""
        if self.there is None:
            return jnp.ones(ids.shape, bool)
        return self.there.at[ids].get(mode="fill", fill_value=False)

    def kept(self, matrix: Array, ids: Array) -> Array:
        """W', from W `[..., n, n]` of the clients `[..., n]`."""
        up = self.up(ids[..., :, None], ids[..., None, :])
        own = jnp.broadcast_to(jnp.eye(ids.shape[-1], dtype=bool), up.shape)
        others = jnp.where(up & ~own, matrix, 0)
        rest = 1 - others.sum(-1, keepdims=True)
        return jnp.where(own, rest, others)

    def chances(self, first: Array, second: Array) -> Array:
        """A uniform number for each link, by its ends in either order.

        In single precision, whatever the default is: the same links fail.
        """

        def draw(low, high):
            own = jax.random.fold_in(jax.random.fold_in(self.key, low), high)
            return jax.random.uniform(own, dtype=jnp.float32)

        low, high = jnp.minimum(first, second), jnp.maximum(first, second)
        return jax.vmap(draw)(low.reshape(-1), high.reshape(-1)).reshape(first.shape)
