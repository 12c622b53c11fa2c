"""Figures 2 to 6 of FedCluster."""

import functools
from typing import Any

from afga_jax.runs.papers.declaration import Declaration, Panel, declared, line

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
_declared = functools.partial(
    declared, "FedCluster", metrics=("train_loss",), small=_SMALL
)


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
    return _declared(
        f"Figure {number}: heterogeneity of devices, {_DATA[dataset]}",
        panels,
        metrics=("train_loss", "test_accuracy"),
        columns=4,
        quick=((0, 0), (0, 1)),
        notes=(
            *_NOTES,
            "Centralised SGD computes a gradient of 60 samples 1000 times a round, "
            "FedAvg one of 30 samples 2000 times.",
        ),
    )


def _figure_4() -> Declaration:
    # What both have; what FedAvg, and what FedCluster has in its place. The paper's
    # Adam has a rate “small enough to ensure convergence”.
    choices: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
        "SGD with momentum": ({"local_optimizer": "momentum", "momentum": 0.5}, {}, {}),
        "Adam": ({"local_optimizer": "adam"}, {"local_lr": 1e-3}, {"local_lr": 1e-4}),
        "FedProx": ({"mu": 0.1}, {"algo": "fedprox"}, {"inner": "fedprox"}),
    }
    panels = []
    for title, (both, average, cluster) in choices.items():
        for dataset, shown in _DATA.items():
            lines = []
            for share in (0.1, 0.5):
                about = {"dataset": dataset, "rho_device": share, **both}
                for name, own in (
                    ("FedAvg", {"algo": "fedavg", **average}),
                    ("FedCluster", {"algo": "fedcluster", **cluster}),
                ):
                    lines.append(_line(f"{name}, ρ_device = {share}", **about, **own))
            panels.append(Panel(f"{title}, {shown}", tuple(lines)))
    return _declared(
        "Figure 4: local optimizers",
        tuple(panels),
        # Adam on CIFAR-10, ρ_device = 0.1.
        quick=((2, 0), (2, 1)),
        notes=(
            *_NOTES,
            "FedAvg has the same local optimizers. Adam's rate is not given: 0.001, "
            "and a tenth of it for FedCluster, are ours. FedProx in FedAvg's place has "
            "FedAvg's rate.",
        ),
    )


def _clusters(
    dataset: str, title: str, rho_device: float, what: str, name: str, values, **more
) -> Panel:
    """FedAvg, and FedCluster with each of some values of one choice."""
    run = functools.partial(_line, dataset=dataset, rho_device=rho_device)
    lines = [
        run(what.format(value), "fedcluster", **{name: value}, **more)
        for value in values
    ]
    return Panel(title, (run("FedAvg", "fedavg"), *lines))


DECLARATIONS = (
    *(_over_devices(2, "cifar10"), _over_devices(3, "mnist"), _figure_4()),
    _declared(
        "Figure 5: number of clusters",
        tuple(
            _clusters(
                dataset,
                f"{shown}, ρ_device = {share}",
                share,
                "FedCluster, {} clusters",
                "num_clusters",
                (5, 10, 20),
                smoke={"num_clusters": 4},
            )
            for dataset, shown in _DATA.items()
            for share in (0.1, 0.5)
        ),
        # 10 % of one of 20 clusters must be a client.
        small={**_SMALL, "num_clients": 200},
        notes=(*_NOTES, "Rates for 5 and 20 clusters are not given: those of 10."),
    ),
    _declared(
        "Figure 6: heterogeneity of clusters",
        tuple(
            _clusters(
                dataset,
                shown,
                0.5,
                "FedCluster, ρ_cluster = {}",
                "rho_cluster",
                (0.1, 0.5, 0.9),
                clustering="major_class",
                smoke={"num_clients": 20, "num_clusters": 10},
            )
            for dataset, shown in _DATA.items()
        ),
        quick=((0, 1), (0, 3)),
        notes=_NOTES,
    ),
)
