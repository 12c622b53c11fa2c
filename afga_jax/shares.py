"""Which rows of a client axis a device holds, and how it reaches those of the others.

Rows lie in order, in blocks of equal size, one block for each device of an axis; the
last blocks may end with rows that are nobody's. Who holds a client's row computes its
gradient. Without an axis one device holds all rows, and nothing here adds anything to
the program: the same round serves one device and many, inside `shard_map`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from afga_jax import rows
from afga_jax.typing import Array, PyTree


class Share(NamedTuple):
    """A device's block of `rows` rows.

    Attributes:
      rows: Of all devices.
      axis: Name of the axis of devices; None: there is one device.
    """

    rows: int
    axis: str | None = None

    @property
    def devices(self) -> int:
        return 1 if self.axis is None else jax.lax.axis_size(self.axis)

    @property
    def size(self) -> int:
        """Rows of a block."""
        return -(-self.rows // self.devices)

    @property
    def place(self) -> Array:
        """Where each row of this device lies among all, `[size]`."""
        return self._first + jnp.arange(self.size)

    def local(self, place: Array) -> Array:
        """Rows of this device from places among all; others are past the last."""
        if self.axis is None:
            return place
        here = place - self._first
        real = (here >= 0) & (here < self.size) & (place < self.rows)
        return jnp.where(real, here, self.size)

    def held(self, place: Array, count: Array | None = None) -> "Held":
        """Those of a list of rows that lie on this device.

        Args:
          place: Among all rows, each at most once, `[listed]`.
          count: Only the first so many are real; None: all.
        """
        if self.axis is None:
            return Held(self, place, count, None, len(place))
        local = self.local(place)
        here = local < self.size
        if count is not None:
            here &= jnp.arange(len(place)) < count
        order = jnp.argsort(~here, stable=True)[: min(len(place), self.size)]
        kept = jnp.where(here, local, self.size)[order]
        return Held(self, kept, here.sum(dtype=jnp.int32), order, len(place))

    def mine(self, tree: PyTree) -> PyTree:
        """This device's block of rows that are the same on every device."""
        if self.axis is None:
            return tree
        missing = self.devices * self.size - self.rows

        def block(x):
            whole = jnp.pad(x, ((0, missing), *[(0, 0)] * (x.ndim - 1)))
            return jax.lax.dynamic_slice_in_dim(whole, self._first, self.size)

        return jax.tree.map(block, tree)

    def total(self, tree: PyTree) -> PyTree:
        """The sum over the devices."""
        return tree if self.axis is None else jax.lax.psum(tree, self.axis)

    def collect(self, tree: PyTree, place: Array) -> PyTree:
        """Some rows on every device, from whoever holds them; nobody's are zero.

        Args:
          tree: This device's rows.
          place: Among all, `[listed]`.
        """
        if self.axis is None:
            return rows.take(tree, place)
        return self.total(rows.take_or_zero(tree, self.local(place)))

    def gathered(self, function: Callable[[PyTree], PyTree]):
        """A function of all rows as one of this device's: for what has no better form.

        Every device holds all rows for that moment.
        """

        def apply(tree):
            every = jax.lax.all_gather(tree, self.axis, tiled=True)
            return self.mine(function(jax.tree.map(lambda x: x[: self.rows], every)))

        return function if self.axis is None else apply

    @property
    def _first(self) -> Array | int:
        return 0 if self.axis is None else jax.lax.axis_index(self.axis) * self.size


class Held(NamedTuple):
    """Those of a list of rows that this device holds; the real ones come first.

    Attributes:
      share: Of the rows.
      place: On this device, `[held]`; padding is past the last row.
      count: How many are real; None: all are.
      order: Their positions in the list; None: this is the list.
      listed: Length of the list.
    """

    share: Share
    place: Array
    count: Any  # or None; a tuple has a method of this name
    order: Array | None
    listed: int

    @property
    def usual(self) -> int | None:
        """How many of the list a device holds on average; None: all of it."""
        return None if self.order is None else -(-self.listed // self.share.devices)

    def pick(self, values: Array, fill: float) -> Array:
        """The held ones' values from the list's; padding gets `fill`."""
        if self.order is None:
            return values
        real = jnp.arange(len(self.order)) < self.count
        return jnp.where(real, values[self.order], jnp.asarray(fill, values.dtype))

    def pick_rows(self, tree: PyTree) -> PyTree:
        """The held ones' rows from the list's; padding's are anybody's."""
        return tree if self.order is None else rows.take(tree, self.order)

    def take(self, tree: PyTree) -> PyTree:
        """The held rows of a tree of this device's."""
        return rows.take(tree, self.place)

    def add(self, tree: PyTree, change: PyTree) -> PyTree:
        """Adds to the held rows of a tree of this device's."""
        return rows.add(tree, self.place, change)

    def put(self, tree: PyTree, new: PyTree) -> PyTree:
        """Replaces the held rows of a tree of this device's."""
        return rows.put(tree, self.place, new)

    def everywhere(self, tree: PyTree) -> PyTree:
        """The list's rows on every device, from each one's own, `[listed, ...]`."""
        if self.order is None:
            return tree
        real = jnp.arange(len(self.order)) < self.count
        place = jnp.where(real, self.order, self.listed)
        empty = lambda x: jnp.zeros((self.listed, *x.shape[1:]), x.dtype)  # noqa: E731
        return self.share.total(rows.put(jax.tree.map(empty, tree), place, tree))


def everything(count: int) -> Held:
    """A list that each device has whole."""
    return Held(Share(count), jnp.arange(count), None, None, count)
