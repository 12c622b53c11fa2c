"""The data of all clients: who holds which samples, and what a sample looks like.

`Clients` puts an assignment and a source together and is the `ClientData` that rounds
read. Both parts are pytrees, so the data is an argument of compiled code and never a
constant baked into it.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from afga_jax import checks
from afga_jax.data import samples
from afga_jax.data.dataset import Dataset
from afga_jax.data.partition.assignment import (
    Assignment,
    Stored,
    as_assignment,
    check_client,
    in_blocks,
)
from afga_jax.typing import Array, Batch, PyTree, Task

# Images that are normalised at a time.
_CHUNK = 100


@struct.dataclass
class Clients:
    """Data of all clients, drawn one client at a time.

    Attributes:
      source: What a sample looks like (`Arrays`, `Images`, `Windows`).
      assignment: Who holds which samples (`Stored`, `Computed`, `Ranges`).
      batch_size: Number of samples per batch.
    """

    source: samples.Source
    assignment: Assignment
    batch_size: int = struct.field(pytree_node=False)

    @property
    def num_clients(self) -> int:
        return self.assignment.num_clients

    @property
    def sizes(self) -> Any:
        """Number of samples of each client; indexable with client ids."""
        return self.assignment.sizes

    def indices(self, client: Array) -> Array:
        """The client's sample indices, repeated up to the largest client's size."""
        client = self._checked(client)
        position = jnp.arange(self.assignment.capacity) % self.assignment.size(client)
        return self.assignment.sample(client, position)

    def batch(self, key: Array, client: Array) -> Batch:
        """A batch drawn uniformly, with replacement, from the client's own samples.

        Args:
          key: Random key that is unique to the round, the step and the client.
          client: Id of the client.

        Returns:
          `batch_size` samples, augmented where the source does so.
        """
        client = self._checked(client)
        draw_key, source_key = jax.random.split(key)
        bits = jax.random.bits(draw_key, (self.batch_size,), jnp.uint32)
        position = samples.below(bits, self.assignment.size(client))
        chosen = self.assignment.sample(client, position)
        return self.source.take(chosen, source_key)

    def full(self, client: Array) -> Batch:
        """All samples of the client, padded with its own, never augmented."""
        client = jnp.asarray(client)
        batch = self.source.take(self.indices(client))
        real = jnp.arange(self.assignment.capacity) < self.assignment.size(client)
        return batch._replace(mask=real.astype(jnp.float32))

    def check(self, task: Task) -> None:
        """Refuses samples that a task cannot take, where it has a check.

        What a data set's loader or a problem made was checked there.
        """
        given = self.source
        if task.check is None or not isinstance(given, samples.Arrays):
            return
        if not any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(given)):
            task.check(given.inputs, given.targets)

    @property
    def separable(self) -> bool:
        """Whether a client's samples are its own.

        Samples that are computed, and windows of one text, stay together.
        """
        listed = isinstance(self.assignment, Stored)
        return listed and isinstance(self.source, samples.Arrays | samples.Images)

    def in_blocks(self, blocks: np.ndarray) -> "Clients":
        """The same data in blocks over devices, on the host.

        Args:
          blocks: Ids of the clients of each device, `[devices, rows]`.

        Returns:
          Data whose arrays have the devices' blocks one after another.
        """
        assignment = cast(Stored, jax.tree.map(np.asarray, self.assignment))
        local, chosen = in_blocks(assignment, blocks)
        source = cast(samples.Arrays | samples.Images, self.source)
        return Clients(source.in_blocks(chosen), local, self.batch_size)

    def pooled(self) -> "Clients":
        """Every sample that some client holds, once, as one client."""
        pooled = self.assignment.pooled()
        return dataclasses.replace(self, assignment=jax.tree.map(jnp.asarray, pooled))

    def _checked(self, client) -> Array:
        """Refuses a client that does not exist, where its number is known."""
        if not isinstance(client, jax.core.Tracer):
            check_client(int(client), self.num_clients)
        return jnp.asarray(client)


def client_data(
    source: samples.Source, assignment: Assignment | Sequence[Any], *, batch_size: int
) -> Clients:
    """Puts samples and their assignment on the device.

    Args:
      source: What a sample looks like.
      assignment: Who holds which samples, from `partition` or as a list of the indices
        of each client's samples.
      batch_size: Number of samples per batch; clients may hold fewer.

    Returns:
      The data.
    """
    checks.integer("batch_size", batch_size, fix="the papers use 50 and 30")
    dealt = as_assignment(assignment)
    if dealt.end > source.num_samples:
        raise ValueError(
            f"the assignment deals sample {dealt.end - 1}, there are only "
            f"{source.num_samples}; deal these samples, not those of another data set."
        )
    source, dealt = jax.tree.map(jnp.asarray, (source, dealt))
    return Clients(source, dealt, batch_size)


def from_arrays(
    inputs: PyTree,
    targets: PyTree,
    assignment: Assignment | Sequence[Any],
    *,
    batch_size: int,
) -> Clients:
    """One's own samples, as they are.

    Args:
      inputs: What the model sees, a tree of arrays `[samples, ...]` of finite numbers.
      targets: What it should answer, a tree of arrays `[samples, ...]` of finite
        numbers. Labels past a classifier's classes are refused when training starts.
      assignment: Who holds which samples, from `partition` or as a list of the indices
        of each client's samples.
      batch_size: Number of samples per batch.

    Returns:
      The data.

    Example:
      >>> import numpy as np
      >>> from afga_jax.data import partition
      >>> inputs, labels = np.eye(4, dtype=np.float32), np.array([0, 1, 1, 0])
      >>> assignment = partition.by_client(np.array([0, 0, 1, 1]))
      >>> data = from_arrays(inputs, labels, assignment, batch_size=8)
      >>> data.batch(jax.random.key(0), 1).inputs.shape, data.sizes.tolist()
      ((8, 4), [2, 2])
    """
    for name, tree in (("inputs", inputs), ("targets", targets)):
        for leaf in jax.tree.leaves(tree):
            _check_numbers(name, leaf)
    lengths = {len(leaf) for leaf in jax.tree.leaves((inputs, targets))}
    if len(lengths) != 1:
        raise ValueError(
            f"inputs and targets have lengths {sorted(lengths)}; give one input and "
            "one target per sample."
        )
    source = samples.Arrays(inputs, targets)
    return client_data(source, assignment, batch_size=batch_size)


def _check_numbers(name: str, leaf: Any) -> None:
    """Refuses what is no array of finite numbers with a leading axis of samples."""
    if isinstance(leaf, jax.core.Tracer):
        return
    array = np.asarray(leaf)
    number = jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool
    if not number or not array.ndim:
        what = f"an array of {array.dtype}" if array.ndim else repr(leaf)[:40]
        raise ValueError(
            f"{name} hold {what}, but they must be arrays of numbers, [samples, ...]: "
            "convert them, for example with numpy.stack."
        )
    if jnp.issubdtype(array.dtype, jnp.inexact):
        finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
        if not finite.all():
            raise ValueError(
                f"{name} of sample {int(finite.argmin())} are NaN or infinite, as in "
                f"{int((~finite).sum())} of {len(array)} samples: repair them, or "
                "leave these samples out."
            )


def from_dataset(
    dataset: Dataset,
    assignment: Assignment | Sequence[Any],
    *,
    batch_size: int,
    augment: bool = False,
) -> Clients:
    """The training images of a data set, normalised by their own channels.

    Args:
      dataset: Data set whose training split the clients hold.
      assignment: Who holds which samples, from `partition` or as a list of the indices
        of each client's samples.
      batch_size: Number of samples per batch.
      augment: Whether the images of a batch are cropped with a pad of 4 and flipped.

    Returns:
      The data.
    """
    mean, std = dataset.channel_statistics
    source = samples.images(
        dataset.train_inputs, dataset.train_targets, mean=mean, std=std, augment=augment
    )
    return client_data(source, assignment, batch_size=batch_size)


def held_out(dataset: Dataset, limit: int | None = None) -> Batch:
    """The test images of a data set, normalised like its training images.

    Args:
      dataset: Data set whose test split is taken.
      limit: Largest number of images, evenly spaced; None: all of them.

    Returns:
      Inputs float `[tests, height, width, channels]` and targets `[tests]`.
    """
    total = len(dataset.test_targets)
    number = total if limit is None else min(limit, total)
    checks.integer("limit", number)
    chosen = np.arange(number) * total // number
    mean, std = dataset.channel_statistics
    images, targets = dataset.test_inputs[chosen], dataset.test_targets[chosen]
    source = samples.images(images, targets, mean=mean, std=std)
    # By NumPy, which need not compile for it, a few images at a time: these stay in
    # cache and need no copy of all beside them.
    on_host = jax.tree.map(np.asarray, source)
    # A whole row of pixels: NumPy is slow at loops over three channels.
    scale, shift = (
        np.tile(x, (1, 1, images.shape[2], 1)) for x in on_host.scale_and_shift
    )
    inputs = np.empty(images.shape, scale.dtype)
    for start in range(0, len(inputs), _CHUNK):
        chunk = inputs[start : start + _CHUNK]
        np.multiply(images[start : start + _CHUNK], scale, out=chunk)
        chunk -= shift
    return Batch(jnp.asarray(inputs), source.targets)
