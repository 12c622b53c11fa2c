"""A classification data set in memory: what every source gives."""

import dataclasses
import functools

import numpy as np

from afga_jax.data.samples import channel_statistics


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Samples with integer labels, split into training and test.

    The arrays are checked when the data set is built, so whatever reads one may rely on
    equal lengths and on labels within the classes.

    Attributes:
      name: Name of the data set, e.g. `"cifar10"`.
      train_inputs: Training samples, `[train, ...]`; images are uint8 `[train, height,
        width, channels]`.
      train_targets: Labels of the training samples in `[0, num_classes)`, int32
        `[train]`.
      test_inputs: Test samples of the same shape and type, `[test, ...]`.
      test_targets: Labels of the test samples, int32 `[test]`.
      num_classes: Number of classes.
      label_names: One name per class; empty: the classes are named by their number.
      train_clients: Client that each training sample is from, int32 `[train]`, for
        `partition.by_client` and `partition.grouped`; None: the data does not say.
      client_names: One name per client; empty: they are named by their number.

    Example:
      >>> pixels = np.zeros((6, 2, 2, 1), np.uint8)
      >>> labels = np.array([0, 1, 2, 0, 1, 2])
      >>> data = Dataset("tiny", pixels, labels, pixels[:3], labels[:3], num_classes=3)
      >>> data.label_names, data.train_targets.dtype.name
      (('0', '1', '2'), 'int32')
    """

    name: str
    train_inputs: np.ndarray
    train_targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray
    num_classes: int
    label_names: tuple[str, ...] = ()
    train_clients: np.ndarray | None = None
    client_names: tuple[str, ...] = ()

    def __post_init__(self):
        for split in ("train", "test"):
            inputs = np.asarray(getattr(self, f"{split}_inputs"))
            targets = np.asarray(getattr(self, f"{split}_targets"))
            where = f"{self.name}, {split} split"
            check_labels(targets, self.num_classes, where)
            if len(inputs) != len(targets):
                raise ValueError(
                    f"{where}: {len(inputs)} inputs but {len(targets)} targets; give "
                    "one target per input."
                )
            object.__setattr__(self, f"{split}_inputs", inputs)
            object.__setattr__(self, f"{split}_targets", targets.astype(np.int32))
        train, test = self.train_inputs, self.test_inputs
        if len(train) == 0:
            raise ValueError(f"{self.name}: the training split is empty; give samples.")
        if (train.shape[1:], train.dtype) != (test.shape[1:], test.dtype):
            raise ValueError(
                f"{self.name}: training inputs are {train.dtype}{train.shape[1:]} per "
                f"sample, test inputs {test.dtype}{test.shape[1:]}; make them alike."
            )
        names = tuple(str(name) for name in self.label_names or range(self.num_classes))
        if len(names) != self.num_classes:
            raise ValueError(
                f"{self.name}: {len(names)} label names for {self.num_classes} "
                "classes; give one name per class."
            )
        object.__setattr__(self, "label_names", names)
        if self.train_clients is not None:
            self._check_clients(np.asarray(self.train_clients))

    def _check_clients(self, clients: np.ndarray) -> None:
        whole = np.issubdtype(clients.dtype, np.integer)
        if clients.shape != self.train_targets.shape or not whole or clients.min() < 0:
            raise ValueError(
                f"{self.name}: train_clients are {clients.dtype}{clients.shape}; give "
                f"one client number, from 0, for each of {len(self.train_targets)} "
                "training samples."
            )
        sizes = np.bincount(clients)
        names = tuple(str(name) for name in self.client_names or range(len(sizes)))
        sizes = np.bincount(clients, minlength=len(names))
        if len(sizes) > len(names):
            raise ValueError(
                f"{self.name}: {len(names)} client names for {len(sizes)} clients; "
                "give one name per client."
            )
        if not sizes.all():
            raise ValueError(
                f"{self.name}: client {names[sizes.argmin()]!r} has no training "
                "samples; give every client at least 1, or leave it out and number "
                "without gaps."
            )
        object.__setattr__(self, "train_clients", clients.astype(np.int32))
        object.__setattr__(self, "client_names", names)

    @functools.cached_property
    def channel_statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the training images, see `samples`."""
        return channel_statistics(self.train_inputs)


def check_labels(targets: np.ndarray, num_classes: int, where: str) -> None:
    """Raises a ValueError unless `targets` are integers in `[0, num_classes)`.

    Args:
      targets: Labels of the samples, `[samples]`.
      num_classes: Number of classes.
      where: Name of what the labels belong to, for the message.
    """
    targets = np.asarray(targets)
    if num_classes < 1:
        raise ValueError(
            f"{where}: num_classes is {num_classes}; it must be at least 1."
        )
    if targets.ndim != 1 or not np.issubdtype(targets.dtype, np.integer):
        raise ValueError(
            f"{where}: targets are {targets.dtype}{targets.shape}; give one integer "
            "per sample."
        )
    outside = (targets < 0) | (targets >= num_classes)
    if outside.any():
        raise ValueError(
            f"{where}: label {targets[outside][0]} of sample {np.argmax(outside)} is "
            f"outside [0, {num_classes}); relabel the samples or raise num_classes."
        )
