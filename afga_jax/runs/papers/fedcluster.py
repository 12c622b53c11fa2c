"""Figures 2 to 6 of FedCluster."""

import functools
from typing import Any

from afga_jax.runs.papers.declaration import Declaration, Panel, line

_DATA = {"cifar10": "CIFAR-10", "mnist": "MNIST"}
_SMALL = {"model": "cnn"}

_MODEL = "The paper's model is AlexNet; at --scale=small it is a small CNN."
_ROUNDS = (
    "Rounds, runs and error bars are not given: 100 rounds and the seeds are ours."
)
_CYCLES = (
    "A round of FedCluster is as many server updates as clusters, one after another, "
    "with 10 % of a cluster each; a round of FedAvg is one, with 10 % of all: as many "
    "gradients, more waiting. See the simulated hours in results.csv."
)
_NOTES = (_MODEL, _ROUNDS, _CYCLES)


_line = functools.partial(line, setting="fedcluster", model="alexnet")


def _over_devices(number: int, dataset: str) -> Declaration:
    panels = tuple(
        Panel(
            f"ρ_device = {share}",
            (
                _line("FedAvg", "fedavg", dataset, rho_device=share),
                _line("FedCluster", "fedcluster", dataset, rho_device=share),
                _line("centralised SGD", "sgd", dataset, rho_device=share),
            ),
        )
        for share in (0.1, 0.4, 0.7, 0.9)
    )
    return Declaration(
        f"fedcluster-figure{number}",
        f"FedCluster Figure {number}: heterogeneity of devices, {_DATA[dataset]}",
        panels,
        metrics=("train_loss", "test_accuracy"),
        columns=4,
        small=_SMALL,
        quick=((0, 0), (0, 1)),
        notes=(
            *_NOTES,
            "Centralised SGD computes a gradient of 60 samples 1000 times a round, "
            "FedAvg one of 30 samples 2000 times.",
        ),
    )


def _figure_4() -> Declaration:
    # The paper's Adam has a rate “small enough to ensure convergence”.
    choices: dict[str, tuple[dict[str, Any], tuple[float, float] | None]] = {
        "SGD with momentum": ({"local_optimizer": "momentum", "momentum": 0.5}, None),
        "Adam": ({"local_optimizer": "adam"}, (1e-3, 1e-4)),
        "FedProx": ({"mu": 0.1}, None),
    }
    panels = []
    for title, (given, rates) in choices.items():
        proximal = title == "FedProx"
        average: dict[str, Any] = {"algo": "fedprox" if proximal else "fedavg", **given}
        cluster: dict[str, Any] = {"inner": "fedprox"} if proximal else {}
        if rates:
            average["local_lr"], cluster["local_lr"] = rates
        for dataset, shown in _DATA.items():
            lines = []
            for share in (0.1, 0.5):
                about: dict[str, Any] = {"rho_device": share, "dataset": dataset}
                name = f"ρ_device = {share}"
                lines += [
                    _line(f"FedAvg, {name}", **average, **about),
                    _line(
                        f"FedCluster, {name}", "fedcluster", **given, **cluster, **about
                    ),
                ]
            panels.append(Panel(f"{title}, {shown}", tuple(lines)))
    return Declaration(
        "fedcluster-figure4",
        "FedCluster Figure 4: local optimizers",
        tuple(panels),
        metrics=("train_loss",),
        small=_SMALL,
        # Adam on CIFAR-10, ρ_device = 0.1.
        quick=((2, 0), (2, 1)),
        notes=(
            *_NOTES,
            "FedAvg has the same local optimizers. Adam's rate is not given: 0.001, "
            "and a tenth of it for FedCluster, are ours. FedProx in FedAvg's place has "
            "FedAvg's rate.",
        ),
    )


def _figure_5() -> Declaration:
    panels = tuple(
        Panel(
            f"{shown}, ρ_device = {share}",
            (
                _line("FedAvg", "fedavg", dataset, rho_device=share),
                *(
                    _line(
                        f"FedCluster, {number} clusters",
                        "fedcluster",
                        dataset,
                        rho_device=share,
                        num_clusters=number,
                        smoke={"num_clusters": 4},
                    )
                    for number in (5, 10, 20)
                ),
            ),
        )
        for dataset, shown in _DATA.items()
        for share in (0.1, 0.5)
    )
    return Declaration(
        "fedcluster-figure5",
        "FedCluster Figure 5: number of clusters",
        panels,
        metrics=("train_loss",),
        # 10 % of one of 20 clusters must be a client.
        small={**_SMALL, "num_clients": 200},
        notes=(*_NOTES, "Rates for 5 and 20 clusters are not given: those of 10."),
    )


def _figure_6() -> Declaration:
    panels = tuple(
        Panel(
            shown,
            (
                _line("FedAvg", "fedavg", dataset, rho_device=0.5),
                *(
                    _line(
                        f"FedCluster, ρ_cluster = {share}",
                        "fedcluster",
                        dataset,
                        rho_device=0.5,
                        clustering="major_class",
                        rho_cluster=share,
                        smoke={"num_clients": 20, "num_clusters": 10},
                    )
                    for share in (0.1, 0.5, 0.9)
                ),
            ),
        )
        for dataset, shown in _DATA.items()
    )
    return Declaration(
        "fedcluster-figure6",
        "FedCluster Figure 6: heterogeneity of clusters",
        panels,
        metrics=("train_loss",),
        small=_SMALL,
        quick=((0, 1), (0, 3)),
        notes=_NOTES,
    )


DECLARATIONS = (
    _over_devices(2, "cifar10"),
    _over_devices(3, "mnist"),
    _figure_4(),
    _figure_5(),
    _figure_6(),
)
