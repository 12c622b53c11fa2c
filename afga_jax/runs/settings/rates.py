"""Learning rates by paper, algorithm and data set, and the nearest where there is none.

The papers disagree with themselves: AFGA's Table 9 prints (η_l, η) = (0.01, 2.0) for
AFGA and η = 1 for FedAMSGrad, its §6 says η = 0.01 for adaptive methods and η_l of 1, 2
or 10. We follow §6.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from afga_jax.algorithms import lookup

AFGA, HAFED, FEDCLUSTER = "AFGA §6", "HA-Fed §6", "FedCluster §5"
#: The paper of each setting, or the nearest.
PAPER = {"hafed": HAFED, "fedcluster": FEDCLUSTER, "demo": AFGA}
PAPER |= dict.fromkeys("1234", AFGA)


class Rates(NamedTuple):
    """Learning rates and where they are from.

    Attributes:
      local_lr: Local learning rate η_l.
      server_lr: Server learning rate η.
      source: A paper's section, or which of its rates is the nearest.
    """

    local_lr: float
    server_lr: float
    source: str


def find(setting: str, algo: str, dataset: str, model: str) -> Rates | None:
    """The rates of a run, or the nearest: other data first, then the same family.

    Args:
      setting: The setting, whose paper is asked first.
      algo: Name of the algorithm.
      dataset: Name of the data set.
      model: Name of the model.

    Returns:
      The rates; None: no paper has any of a related algorithm.

    >>> find("2", "afga", "cifar10", "convmixer")
    Rates(local_lr=2.0, server_lr=0.01, source='AFGA §6')
    >>> find("2", "fedams", "cifar10", "convmixer").source
    'nearest: fedamsgrad on cifar10, AFGA §6'
    """
    paper = PAPER[setting]
    for key in _by_distance(paper, algo, dataset):
        if by_model := _TABLE.get(key):
            fitting = [name for name in (model, "") if name in by_model]
            known_model = (fitting or list(by_model))[0]
            exact = bool(fitting) and key == (paper, algo, dataset)
            kind = f" with {known_model}" if known_model else ""
            nearest = f"nearest: {key[1]} on {key[2]}{kind}, {key[0]}"
            return Rates(*by_model[known_model], paper if exact else nearest)
    return None


def _by_distance(paper: str, algo: str, dataset: str) -> Iterator[tuple[str, str, str]]:
    """Keys of `_TABLE`, the nearest first."""
    papers = dict.fromkeys((paper, AFGA, HAFED, FEDCLUSTER))
    known = lookup(algo)
    for algorithm in (algo, known.like, _OF_FAMILY.get(known.family)):
        for data in (dataset, *_ALIKE.get(dataset, ("cifar10", *_ALIKE["cifar10"]))):
            for source in papers:
                yield source, algorithm or algo, data


# Whose rates to take where neither an algorithm nor what it is a variant of has any.
_OF_FAMILY: dict[str | None, str] = {
    "average": "fedavg",
    "adam": "fedadam",
    "amsgrad": "fedamsgrad",
    "gossip": "fedavg",
    "adaptive_gossip": "damsgrad",
}

# Other data sets by likeness: size of the images and number of classes.
_ALIKE = {
    "cifar10": ("cifar100", "fashion_mnist", "mnist", "shakespeare"),
    "cifar100": ("cifar10", "fashion_mnist", "mnist", "shakespeare"),
    "fashion_mnist": ("mnist", "cifar10", "cifar100", "shakespeare"),
    "mnist": ("fashion_mnist", "cifar10", "cifar100", "shakespeare"),
    "shakespeare": ("cifar10", "cifar100", "fashion_mnist", "mnist"),
    "femnist": ("fashion_mnist", "mnist", "cifar10", "cifar100", "shakespeare"),
    "tiny_imagenet": ("cifar100", "cifar10", "fashion_mnist", "mnist", "shakespeare"),
}

# Local and server rate by paper, model (none: any), algorithms and data sets.
_PRINTED = (
    (AFGA, "", "fedavg fedprox scaffold feddyn", "cifar10 cifar100", (0.1, 1.0)),
    (AFGA, "", "fedprox scaffold feddyn", "shakespeare", (0.1, 1.0)),
    (AFGA, "", "fedavg", "shakespeare", (1.0, 1.0)),
    (AFGA, "", "fedadam fedamsgrad", "cifar10 cifar100 shakespeare", (1.0, 0.01)),
    (AFGA, "", "afga cafga", "cifar10", (2.0, 0.01)),
    (AFGA, "", "afga cafga", "cifar100", (1.0, 0.01)),
    (AFGA, "", "afga cafga", "shakespeare", (10.0, 0.01)),
    (HAFED, "convmixer", "fedamsgrad", "cifar10", (0.1, 0.001)),
    (HAFED, "resnet18", "fedamsgrad", "cifar10", (0.1, 0.0005)),
    (HAFED, "convmixer", "hafed_partial", "cifar10", (0.1, 0.01)),
    (HAFED, "resnet18", "hafed_partial", "cifar10", (0.1, 0.001)),
    (HAFED, "cnn", "fedamsgrad hafed_partial", "fashion_mnist", (0.1, 0.01)),
    (HAFED, "convmixer", "fedamsgrad", "fashion_mnist", (0.1, 0.0005)),
    (HAFED, "convmixer", "hafed_partial", "fashion_mnist", (0.1, 0.001)),
    (HAFED, "convmixer", "fedamsgrad hafed_partial", "cifar100", (1.0, 0.01)),
    (HAFED, "resnet18", "fedamsgrad hafed_partial", "cifar100", (0.1, 0.001)),
    (HAFED, "convmixer", "fedadam fedyogi", "cifar10", (0.1, 0.01)),
    (HAFED, "convmixer", "fedavg", "cifar10", (0.01, 1.0)),
    # D-AMSGrad has no server, so its second rate is never read.
    (HAFED, "convmixer", "damsgrad", "cifar10", (0.001, 1.0)),
    (FEDCLUSTER, "alexnet", "fedavg", "cifar10", (0.1, 1.0)),
    (FEDCLUSTER, "alexnet", "fedavg", "mnist", (0.05, 1.0)),
    (FEDCLUSTER, "alexnet", "fedcluster sgd", "cifar10", (0.01, 1.0)),
    (FEDCLUSTER, "alexnet", "fedcluster sgd", "mnist", (0.005, 1.0)),
)
# The same by (paper, algorithm, data set), and then by model.
_TABLE: dict[tuple[str, str, str], dict[str, tuple[float, float]]] = {}
for _paper, _model, _algorithms, _datasets, _rates in _PRINTED:
    for _algo, _dataset in itertools.product(_algorithms.split(), _datasets.split()):
        _TABLE.setdefault((_paper, _algo, _dataset), {})[_model] = _rates
