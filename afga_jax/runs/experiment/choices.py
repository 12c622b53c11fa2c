"""From a configuration to the options of an algorithm."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import optax

from afga_jax.algorithms import Options
from afga_jax.data import partition
from afga_jax.gossip import designed, topology
from afga_jax.gossip.kernels import KERNELS
from afga_jax.population import clustering
from afga_jax.population.clustering import Clustering
from afga_jax.runs.config import Config, fields
from afga_jax.runs.experiment import conditions
from afga_jax.runs.experiment.workload import Workload

_MOST_HISTOGRAMS = 10_000
# Of one cluster: for so many in a plane the search for weights takes two minutes.
_MOST_OPTIMISED = 100
_RANDOM = {
    "random": topology.random,
    "unbalanced_complete": topology.unbalanced_complete,
}


def options_of(config: Config, workload: Workload) -> dict[str, Any]:
    """The options of `afga_jax.build`, but for the number of clients.

    Names of clusterings, topologies and schedules become what they stand for.
    """
    given = {f.name: getattr(config, f.name) for f in fields() if f.option}
    del given["num_clients"]
    given["clustering"] = _clustering(config, workload)
    given["topology"] = _weighted(config, _topology(config, workload, given))
    given |= conditions.options(config, workload.facts.get("classes"))
    for name in ("local_lr", "server_lr"):
        given[name] = _scheduled(config, given[name])
    return {name: value for name, value in given.items() if value is not None}


def _clustering(config: Config, workload: Workload) -> str | Clustering | None:
    kind = config.clustering
    if kind in (None, "equal"):
        return kind
    if kind not in ("similar", "major_class"):
        return clustering.from_labels(_lines(kind, "one label per client and line"))
    counts = _label_counts(config, workload, "clustering", "equal")
    seed = config.clustering_seed or 0
    if kind == "similar":
        return clustering.similar(counts, config.num_clusters, seed=seed)
    major = counts.argmax(axis=1)
    return clustering.by_major_class(
        major, config.num_clusters, config.rho_cluster, seed=seed
    )


def _label_counts(
    config: Config, workload: Workload, field: str, other: str
) -> np.ndarray:
    """How many samples of each label every client holds, `[N, classes]`.

    Args:
      config: The run's configuration.
      workload: Its data.
      field: The setting that asks, for the message.
      other: What it may be instead.
    """
    if workload.labels is None or config.num_clients > _MOST_HISTOGRAMS:
        raise ValueError(
            f"{field} = {getattr(config, field)!r} looks at the labels of up to "
            f"{_MOST_HISTOGRAMS} clients, but {config.dataset} with "
            f"{config.num_clients} clients does not allow that: take {other!r}, or a "
            "file."
        )
    return partition.summary(workload.assignment, workload.labels).class_counts


def _topology(config: Config, workload: Workload, given: dict[str, Any]) -> Any:
    kind, rho = config.topology, config.topology_rho
    if rho is not None and kind not in _RANDOM:
        raise ValueError(
            f"topology_rho = {rho}, but only a random topology can reach a wanted ρ: "
            f"set topology to {' or '.join(_RANDOM)}."
        )
    if kind in _RANDOM:
        draw = functools.partial(_RANDOM[kind], seed=config.topology_seed, rho=rho)
        return lambda n: draw(n) if n > 1 else topology.complete(1)
    if kind == "label_aware":
        counts = _label_counts(config, workload, "topology", "ring")
        names = ("num_clusters", "clustering", "clustering_seed")
        chosen = {name: given[name] for name in names if given[name] is not None}
        groups = Options(num_clients=config.num_clients, **chosen).clusters()
        members = zip(groups.table(), groups.sizes, strict=True)
        return [
            designed.label_aware(counts[ids[:size]], seed=config.topology_seed)
            for ids, size in members
        ]
    if kind is None or not ("." in kind or "/" in kind):
        return kind
    try:
        return np.array(
            [line.replace(",", " ").split() for line in _lines(kind)], float
        )
    except ValueError as error:
        raise ValueError(
            f"topology = {kind!r}, but the file must hold a matrix of numbers, one row "
            "per line."
        ) from error


def _weighted(config: Config, given: Any) -> Any:
    """The topology with the weights that are asked for."""
    if config.topology_weights in (None, "named"):
        return given
    if isinstance(given, str) and given in KERNELS:
        return lambda n: _fastest(config, KERNELS[given](n).matrix())
    if given is None or isinstance(given, str):
        raise ValueError(
            f"topology_weights = 'fastest', but topology = {config.topology!r} is no "
            "graph that stays as it is: name one, such as ring or geographic."
        )
    if callable(given):
        return lambda n: _fastest(config, given(n))
    if isinstance(given, list):
        return [_fastest(config, matrix) for matrix in given]
    return _fastest(config, given)


def _fastest(config: Config, matrix: np.ndarray) -> np.ndarray:
    if len(matrix) > _MOST_OPTIMISED:
        raise ValueError(
            f"topology_weights = 'fastest' for {len(matrix)} clients of a cluster, but "
            f"it must be <= {_MOST_OPTIMISED}: raise num_clusters, or take the weights "
            "that the topology has."
        )
    if not ((matrix != 0) == (matrix != 0).T).all():
        raise ValueError(
            f"topology_weights = 'fastest', but topology = {config.topology!r} is "
            "directed: take one in which who hears is heard, such as hypercube."
        )
    return designed.fastest(matrix)


def _scheduled(config: Config, rate: float | None) -> Any:
    """The rate, or a function of the round."""
    if rate is None or config.lr_schedule == "constant":
        return rate
    rounds = config.rounds
    if config.lr_schedule == "cosine":
        return optax.cosine_decay_schedule(rate, rounds)
    if config.lr_schedule == "linear":
        return optax.linear_schedule(rate, 0.0, rounds)
    period = config.lr_decay_every or max(1, -(-rounds // 3))
    return optax.exponential_decay(rate, period, config.lr_decay, staircase=True)


def _lines(path: str, wanted: str = "one row per line") -> list[str]:
    try:
        text = Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text"
        raise ValueError(
            f"the file {path} cannot be read ({reason}): give a text file with "
            f"{wanted}."
        ) from error
    return [line.strip() for line in text.splitlines() if line.strip()]
