"""Learning rates by paper, algorithm and data set, and the nearest where there is none.

The papers disagree with themselves: AFGA's Table 9 prints (η_l, η) = (0.01, 2.0) for
AFGA and η = 1 for FedAMSGrad, its §6 says η = 0.01 for adaptive methods and η_l of 1, 2
or 10. We follow §6.
"""

from collections.abc import Iterator
from typing import NamedTuple

AFGA, HAFED, FEDCLUSTER = "AFGA §6", "HA-Fed §6", "FedCluster §5"
#: The paper of each setting.
PAPER = {"hafed": HAFED, "fedcluster": FEDCLUSTER} | dict.fromkeys("1234", AFGA)


class Rates(NamedTuple):
    """Learning rates and where they are from.

    Attributes:
      local_lr: η_l.
      server_lr: η.
      source: A paper's section, or which of its rates is the nearest.
      exact: Whether the paper gives them for just this run.
    """

    local_lr: float
    server_lr: float
    source: str
    exact: bool = True


def find(setting: str, algo: str, dataset: str, model: str) -> Rates | None:
    """The rates of a run, or the nearest: other data first, then the same family.

    Args:
      setting: Its paper comes first.
      algo: Name of the algorithm.
      dataset: Name of the data set.
      model: Name of the model.

    Returns:
      The rates; None: no paper has any of a related algorithm.

    >>> find("2", "afga", "cifar10", "convmixer")
    Rates(local_lr=2.0, server_lr=0.01, source='AFGA §6', exact=True)
    >>> find("2", "fedams", "cifar10", "convmixer").source
    'nearest: fedamsgrad on cifar10, AFGA §6'
    """
    paper = PAPER[setting]
    for place in _by_distance(paper, algo, dataset):
        if by_model := _TABLE.get(place):
            fitting = [one for one in (model, "") if one in by_model]
            known_model = (fitting or list(by_model))[0]
            exact = bool(fitting) and place == (paper, algo, dataset)
            source = paper if exact else _nearest(place, known_model)
            return Rates(*by_model[known_model], source, exact)
    return None


def _by_distance(paper: str, algo: str, dataset: str) -> Iterator[tuple[str, str, str]]:
    papers = [paper, *(one for one in (AFGA, HAFED, FEDCLUSTER) if one != paper)]
    for algorithm in (algo, *_FAMILY.get(algo, ())):
        for data in (dataset, *_ALIKE.get(dataset, ("cifar10", *_ALIKE["cifar10"]))):
            for one in papers:
                yield one, algorithm, data


def _nearest(place: tuple[str, str, str], model: str) -> str:
    paper, algo, dataset = place
    of_model = f" with {model}" if model else ""
    return f"nearest: {algo} on {dataset}{of_model}, {paper}"


# Whose rates to take where an algorithm has none of its own, nearest first.
_FAMILY = {
    "fedams": ("fedamsgrad",),
    "fedyogi": ("fedadam", "fedamsgrad"),
    "fedadagrad": ("fedadam", "fedamsgrad"),
    "fedadam": ("fedamsgrad",),
    "afga_adapted": ("afga",),
    "cafga_adapted": ("cafga",),
    "hafed": ("hafed_partial",),
    "hafed_active": ("hafed_partial",),
    "fedprox": ("fedavg",),
    "scaffold": ("fedavg",),
    "feddyn": ("fedavg",),
    "dsgd": ("fedavg",),
    "pga": ("fedavg",),
    "dadam": ("damsgrad",),
    "sgd": ("fedavg",),
}

# Other data sets by likeness: size of the images and number of classes.
_ALIKE = {
    "cifar10": ("cifar100", "fashion_mnist", "mnist", "shakespeare"),
    "cifar100": ("cifar10", "fashion_mnist", "mnist", "shakespeare"),
    "fashion_mnist": ("mnist", "cifar10", "cifar100", "shakespeare"),
    "mnist": ("fashion_mnist", "cifar10", "cifar100", "shakespeare"),
    "shakespeare": ("cifar10", "cifar100", "fashion_mnist", "mnist"),
}

_CIFAR = ("cifar10", "cifar100")


def _table() -> dict[tuple[str, str, str], dict[str, tuple[float, float]]]:
    """Rates by (paper, algorithm, data set) and model; no model: any."""
    table = {}
    for dataset in (*_CIFAR, "shakespeare"):
        for algo in ("fedavg", "fedprox", "scaffold", "feddyn"):
            table[AFGA, algo, dataset] = {"": (0.1, 1.0)}
        for algo in ("fedadam", "fedamsgrad"):
            table[AFGA, algo, dataset] = {"": (1.0, 0.01)}
    table[AFGA, "fedavg", "shakespeare"] = {"": (1.0, 1.0)}
    for algo in ("afga", "cafga"):
        table[AFGA, algo, "cifar10"] = {"": (2.0, 0.01)}
        table[AFGA, algo, "cifar100"] = {"": (1.0, 0.01)}
        table[AFGA, algo, "shakespeare"] = {"": (10.0, 0.01)}
    table[HAFED, "fedamsgrad", "cifar10"] = {
        "convmixer": (0.1, 0.001),
        "resnet18": (0.1, 0.0005),
    }
    table[HAFED, "hafed_partial", "cifar10"] = {
        "convmixer": (0.1, 0.01),
        "resnet18": (0.1, 0.001),
    }
    table[HAFED, "fedamsgrad", "fashion_mnist"] = {
        "cnn": (0.1, 0.01),
        "convmixer": (0.1, 0.0005),
    }
    table[HAFED, "hafed_partial", "fashion_mnist"] = {
        "cnn": (0.1, 0.01),
        "convmixer": (0.1, 0.001),
    }
    for algo in ("fedamsgrad", "hafed_partial"):
        table[HAFED, algo, "cifar100"] = {
            "convmixer": (1.0, 0.01),
            "resnet18": (0.1, 0.001),
        }
    table[HAFED, "fedadam", "cifar10"] = {"convmixer": (0.1, 0.01)}
    table[HAFED, "fedyogi", "cifar10"] = {"convmixer": (0.1, 0.01)}
    table[HAFED, "fedavg", "cifar10"] = {"convmixer": (0.01, 1.0)}
    # D-AMSGrad has no server, so its second rate is never read.
    table[HAFED, "damsgrad", "cifar10"] = {"convmixer": (0.001, 1.0)}
    table[FEDCLUSTER, "fedavg", "cifar10"] = {"alexnet": (0.1, 1.0)}
    table[FEDCLUSTER, "fedavg", "mnist"] = {"alexnet": (0.05, 1.0)}
    table[FEDCLUSTER, "fedcluster", "cifar10"] = {"alexnet": (0.01, 1.0)}
    table[FEDCLUSTER, "fedcluster", "mnist"] = {"alexnet": (0.005, 1.0)}
    table[FEDCLUSTER, "sgd", "cifar10"] = {"alexnet": (0.01, 1.0)}
    table[FEDCLUSTER, "sgd", "mnist"] = {"alexnet": (0.005, 1.0)}
    return table


_TABLE = _table()
