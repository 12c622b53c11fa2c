"""Who computes the gradients of a step: the devices that hold the models, or all alike.

`Held` (`shares`) is the first: no model moves, and the device that holds most of the
active clients sets the pace. `Balanced` is the second: models go to whoever computes,
increments come back. Both have the same methods, and a round with one device has
neither.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from afga_jax import rows
from afga_jax.shares import Held, Share
from afga_jax.typing import Array, PyTree


@dataclass(frozen=True, eq=False)
class Balanced:
    """The active clients dealt to the devices, one after another.

    A device receives its part of the models, ⌈M/D⌉, and everybody's increments, M: at
    most 2 M models a step.

    Attributes:
      share: Of the rows.
      place: Rows of the active clients among all, in the order of the devices that
        compute them, `[lanes]`; padding is past the last.
      order: Their positions in the list, `[lanes]`; padding's are past its end.
      real: How many of the list are real.
    """

    share: Share
    place: Array
    order: Array
    real: Array | int

    @property
    def usual(self) -> int:
        return len(self.order) // self.share.devices

    @property
    def count(self) -> Array:
        return (self._mine(self.order) < self.real).sum(dtype=jnp.int32)

    def pick(self, values: Array, fill: float) -> Array:
        """This device's part of the list's values; padding gets `fill`."""
        return values.at[self._mine(self.order)].get(mode="fill", fill_value=fill)

    def pick_rows(self, tree: PyTree) -> PyTree:
        """This device's part of the list's rows."""
        return rows.take(tree, self._mine(self.order))

    def take(self, tree: PyTree) -> PyTree:
        """The rows to compute with, from whoever holds them."""
        local = self.share.local(self.place)

        def scatter(x):
            mine = x.at[local].get(mode="fill", fill_value=0)
            return jax.lax.psum_scatter(mine, self.share.axis, tiled=True)

        return jax.tree.map(scatter, tree)

    def add(self, tree: PyTree, change: PyTree) -> PyTree:
        """Adds what each device computed to the rows that it was computed from."""
        return rows.add(tree, self.share.local(self.place), self._every(change))

    def put(self, tree: PyTree, new: PyTree) -> PyTree:
        """The same, in place of what is there."""
        return rows.put(tree, self.share.local(self.place), self._every(new))

    def _every(self, tree: PyTree) -> PyTree:
        return jax.lax.all_gather(tree, self.share.axis, tiled=True)

    def _mine(self, lanes: Array) -> Array:
        size = len(lanes) // self.share.devices
        first = jax.lax.axis_index(self.share.axis) * size
        return jax.lax.dynamic_slice_in_dim(lanes, first, size)


def turns(
    share: Share, place: Array, count: Array | None, *, balanced: bool
) -> Held | Balanced:
    """Who computes.

    Args:
      share: Of the rows.
      place: Rows of the active clients among all, each at most once, `[listed]`.
      count: Only the first so many are real; None: all.
      balanced: Deal them out anew. Where all that have a row compute, or there is one
        device, they are balanced as they lie.
    """
    if not balanced or share.devices == 1 or len(place) >= share.rows:
        return share.held(place, count)
    devices, listed = share.devices, len(place)
    each = -(-listed // devices)
    # In turn, so that real ones, which come first, are dealt evenly.
    order = jnp.arange(each * devices).reshape(each, devices).T.reshape(-1)
    place = place.at[order].get(mode="fill", fill_value=share.rows)
    return Balanced(share, place, order, listed if count is None else count)
