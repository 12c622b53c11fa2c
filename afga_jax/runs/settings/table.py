"""The table of defaults: what the papers say, what we add, and two smaller sizes.

Rows go from the general to the special: a later one that fits goes before an earlier.
`small` is a CPU in minutes and `smoke` seconds; learning rates that `small` does not
tune (`tuned`) are the papers'.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from afga_jax.data.own import IMAGES
from afga_jax.data.partition import PAPER_SHARDS
from afga_jax.runs.settings.rates import AFGA, FEDCLUSTER, HAFED


class TableRow(NamedTuple):
    """Defaults of some runs.

    Attributes:
      source: Place that the values are from, a paper or ours.
      when: What a run must have, by the names of `Config`, or as `family` and `theory`
        of its algorithm; a tuple lists alternatives.
      values: Defaults by the name of the field.
    """

    source: str
    when: dict[str, str | tuple[str, ...]]
    values: dict[str, Any]

    def fits(self, run: Mapping[str, Any]) -> bool:
        """Whether the run has all that the row asks for."""
        return all(
            run.get(name) in (wanted if isinstance(wanted, tuple) else (wanted,))
            for name, wanted in self.when.items()
        )


def row(source: str, values: dict[str, Any], **when: str | tuple[str, ...]) -> TableRow:
    """A row as it is written in the tables: the values, then what a run must have."""
    return TableRow(source, when, values)


_NUMBERED = ("1", "2", "3", "4")
_CIFAR = ("cifar10", "cifar100")
_IMAGES = (*IMAGES, "digits")
_PROBLEMS = ("quadratic", "logistic")
_OURS = "ours"

_afga = functools.partial(row, AFGA, setting=_NUMBERED)
_hafed = functools.partial(row, HAFED, setting="hafed")
_fedcluster = functools.partial(row, FEDCLUSTER, setting="fedcluster")
_gaussians = functools.partial(row, "HA-Fed App. F.1", dataset="gaussians")
_untuned = functools.partial(row, "ours: untuned")
_digits = functools.partial(row, _OURS, dataset="digits")
_eps = functools.partial(row, setting=(*_NUMBERED, "fedcluster"))
_small = functools.partial(row, "ours: a CPU in minutes", scale="small")
_smoke = functools.partial(row, "ours: seconds", scale="smoke")


def _shards(dataset: str, number: int, size: int) -> TableRow:
    """So many shards of that size, three for each client."""
    values = {"num_shards": number, "shard_size": size, "shards_per_client": 3}
    return row(_OURS, values, partition="shards", dataset=dataset)


SETTING_OF = [
    row("ours: the papers' common data", {"setting": "2"}),
    row("HA-Fed's data", {"setting": "hafed"}, dataset=("fashion_mnist", "gaussians")),
    row("FedCluster's data", {"setting": "fedcluster"}, dataset="mnist"),
]

PAPERS = [
    # What the papers say of their settings.
    _afga({"num_clusters": 5, "local_steps": 24, "batch_size": 50, "rounds": 500}),
    _afga({"partition": "dirichlet", "clustering": "equal"}),
    _afga({"num_clients": 100, "participation": 0.05}, setting="1"),
    _afga({"num_clients": 50, "participation": 0.1}, setting="2"),
    _afga({"num_clients": 100, "participation": 0.1}, setting="3"),
    _afga({"num_clients": 50, "participation": 0.2}, setting="4"),
    _afga({"target": 0.78}, dataset="cifar10"),
    _afga({"rounds": 600, "target": 0.52}, dataset="cifar100"),
    _afga({"local_steps": 100, "target": 0.52}, dataset="shakespeare"),
    _hafed({"num_clients": 32, "participation": 0.25, "num_clusters": 4}),
    _hafed({"local_steps": 48, "batch_size": 50, "rounds": 500}),
    _hafed({"partition": "shards", "clustering": "equal"}),
    _fedcluster({"num_clients": 1000, "participation": 0.1, "num_clusters": 10}),
    _fedcluster({"local_steps": 20, "batch_size": 30}),
    _fedcluster({"partition": "major_class", "clustering": "equal"}),
    _fedcluster({"weighting": "size"}),
    row("ours: FedCluster gives no number", {"rounds": 100}, setting="fedcluster"),
    _fedcluster({"local_steps": 1000, "batch_size": 60}, algo="sgd"),
    row(_OURS, {"eval_every": 1, "checkpoint_every": 10}),
    # Models and the look of the data.
    row(AFGA, {"model": "convmixer"}, dataset=_CIFAR),
    row(AFGA, {"model": "lstm"}, dataset="shakespeare"),
    row(HAFED, {"model": "cnn"}, dataset="fashion_mnist"),
    row("nearest: fashion_mnist, HA-Fed §6", {"model": "cnn"}, dataset="mnist"),
    _fedcluster({"model": "alexnet"}, dataset=("cifar10", "mnist")),
    _digits({"model": "mlp"}),
    _gaussians({"model": "mlp"}),
    row("the authors' code", {"augment": True}, dataset=_CIFAR),
    row("ours: of 0.8 million", {"test_samples": 10_000}, dataset="shakespeare"),
    # Data that no paper of ours has: nothing is tuned, rates are the nearest ones.
    _untuned({"model": "cnn", "test_samples": 10_000}, dataset="femnist"),
    _untuned({"model": "resnet18", "augment": True}, dataset="tiny_imagenet"),
    _untuned({"model": "convmixer", "augment": True}, dataset="cinic10"),
    _untuned({"test_samples": 10_000}, dataset="cinic10"),
    row("LEAF: writers", {"partition": "natural"}, dataset="femnist"),
    row("LEAF", {"num_clients": 3550}, dataset="femnist", partition="natural"),
    _untuned({"participation": 0.01}, dataset="femnist", partition="natural"),
    # Partitions.
    row(AFGA, {"alpha": 0.6}, partition=("dirichlet", "dirichlet_client")),
    *(
        row(HAFED, dict(shards), partition="shards", dataset=dataset)
        for dataset, shards in PAPER_SHARDS.items()
    ),
    row(
        "nearest: fashion_mnist, HA-Fed §6",
        dict(PAPER_SHARDS["fashion_mnist"]),
        partition="shards",
        dataset="mnist",
    ),
    _shards("digits", 96, 15),
    _shards("femnist", 200, 3250),
    _shards("tiny_imagenet", 200, 500),
    _shards("cinic10", 200, 450),
    row(FEDCLUSTER, {"client_size": 500}, partition=("major_class", "overlap")),
    _digits({"client_size": 60}, partition=("major_class", "overlap")),
    row(f"{FEDCLUSTER}, Figs 4–6", {"rho_device": 0.5}, partition="major_class"),
    row(FEDCLUSTER, {"rho_cluster": 0.5}, clustering="major_class"),
    # ε: HA-Fed gives it, AFGA only its grid.
    _hafed({"eps": 1e-8}),
    _eps("ours: of AFGA's grid, which leaves it open", {"eps": 1e-6}, family="amsgrad"),
    _eps("Reddi et al., 2020; √1e-6 of FedAMSGrad", {"eps": 1e-3}, family="adam"),
    # Data that no paper has: their sizes are ours at every scale.
    row(
        _OURS,
        {"partition": None, "model": None, "dimension": 10, "client_size": 50},
        dataset=_PROBLEMS,
    ),
    row(_OURS, {"sigma_g": 1.0, "sigma": 1.0}, dataset="quadratic"),
    _gaussians({"partition": None, "num_clients": 2, "participation": 1.0}),
    _gaussians({"num_clusters": 1, "client_size": 10, "full_batch": True}),
    _gaussians({"variance": 1.0, "hidden": (10,)}),
    row(
        "ours: HA-Fed App. F.1 gives none",
        {"local_steps": 10, "rounds": 100, "batch_size": 10},
        dataset="gaussians",
    ),
]

_drawn = functools.partial(_small, dataset=("digits", *_PROBLEMS))
SMALL = [
    _small({"rounds": 100, "eval_every": 5, "target": None}),
    _small({"width": 64, "depth": 4, "patch": 4}, model="convmixer"),
    _small({"width": 16}, model="resnet18"),
    _small({"features": (16,), "hidden": (96, 48)}, model="alexnet"),
    _small({"embedding": 16, "hidden": (64,), "layers": 1}, model="lstm"),
    _small({"num_clients": 16, "local_steps": 12}, setting="hafed", dataset=_IMAGES),
    _small({"num_clients": 100}, setting="fedcluster"),
    _small({"local_steps": 100}, setting="fedcluster", algo="sgd"),
    _small({"rounds": 50}, dataset="fashion_mnist"),
    _small({"model": "cnn", "rounds": 50}, dataset="mnist"),
    _small({"features": (8, 16)}, dataset=("mnist", "femnist"), model="cnn"),
    _small({"rounds": 50}, dataset="femnist"),
    _small({"num_clients": 100}, dataset="femnist", partition="natural"),
    _small({"participation": 0.1}, dataset="femnist", partition="natural"),
    # Patches of 8 of its 64 pixels cost what patches of 4 do on CIFAR.
    _small({"model": "convmixer"}, dataset="tiny_imagenet"),
    _small({"patch": 8}, dataset="tiny_imagenet", model="convmixer"),
    _small({"local_steps": 24, "test_samples": 2000}, dataset="shakespeare"),
    _drawn({"num_clients": 20, "participation": 0.25, "num_clusters": 5}),
    _drawn({"local_steps": 8, "batch_size": 16, "rounds": 80, "eval_every": 2}),
]

SMOKE = [
    _smoke({"rounds": 3, "eval_every": 1, "local_steps": 4, "batch_size": 8}),
    _smoke({"test_samples": 200, "target": None}),
    _smoke(
        {"num_clients": 8, "participation": 0.5, "num_clusters": 2},
        dataset=(*_IMAGES, "shakespeare", *_PROBLEMS),
    ),
    _smoke({"width": 8, "depth": 1, "patch": 4}, model="convmixer"),
    _smoke({"width": 4}, model="resnet18"),
    _smoke({"features": (4, 4)}, model="cnn"),
    _smoke({"features": (4,), "hidden": (16,)}, model="alexnet"),
    _smoke({"embedding": 8, "hidden": (8,), "layers": 1}, model="lstm"),
    _smoke({"model": "cnn"}, dataset="mnist"),
    _smoke({"model": "convmixer"}, dataset="tiny_imagenet"),
    _smoke(
        {"num_shards": 40, "shard_size": 30, "shards_per_client": 3},
        partition="shards",
        dataset="digits",
    ),
]
