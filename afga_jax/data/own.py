"""Data sets of one's own by name, for the commands."""

import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from afga_jax.data.dataset import Dataset


class OwnDataset(NamedTuple):
    """A data set that a plugin brings.

    Attributes:
      make: Function from a run's settings to the data set.
      defaults: The run's settings where the user gives none, by their names.
    """

    make: Callable[[Any], Dataset]
    defaults: Mapping[str, Any] = types.MappingProxyType({})


#: Sets of images that are stored or fetched, by name.
IMAGES = (
    *("cifar10", "cifar100", "fashion_mnist", "mnist"),
    *("femnist", "tiny_imagenet", "cinic10"),
)
#: All data sets that are there without a plugin.
BUILT_IN = (*IMAGES, "digits", "shakespeare", "quadratic", "logistic", "gaussians")

#: Data sets of one's own by name; `register` adds to them.
OWN_DATASETS: dict[str, OwnDataset] = {}


def register(
    **defaults: Any,
) -> Callable[[Callable[[Any], Dataset]], Callable[[Any], Dataset]]:
    """Registers a data set under its function's name, for `--dataset=NAME`.

    Args:
      **defaults: Settings of runs with it, where the user gives none, by the names of
        flags: `model="cnn"`, `num_clients=20`, `alpha=0.3`.

    Returns:
      A decorator of a function from a run's settings to a `Dataset`. Images of bytes
      are normalised by their channels, other samples are taken as they are.

    >>> import numpy as np
    >>> @register(model="mlp", num_clients=4)
    ... def parity(settings):
    ...     inputs = np.eye(8, dtype=np.float32)
    ...     labels = np.arange(8) % 2
    ...     return Dataset("parity", inputs, labels, inputs, labels, num_classes=2)
    >>> OWN_DATASETS.pop("parity").defaults
    {'model': 'mlp', 'num_clients': 4}
    """

    def add(function: Callable[[Any], Dataset]) -> Callable[[Any], Dataset]:
        name = function.__name__
        if name in BUILT_IN:
            raise ValueError(f"the data set {name!r} is there already: rename yours")
        OWN_DATASETS[name] = OwnDataset(function, defaults)
        return function

    return add
