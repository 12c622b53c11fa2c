"""Algorithms with options drawn at random, and what they should compute."""

import contextlib
from typing import Any, NamedTuple

import jax
import numpy as np

import afga_jax
import toy
from afga_jax.gossip import topology
from afga_jax.testing import Draws, parts

# Who computes, and in how many cycles; all else is an option.
ALGORITHMS = ("cafga", "cafga", "hafed_partial", "hafed_active", "hafed", "fedcluster")
GRAPHS = ("ring", "ring", "torus", "exponential", "star", "complete", "random", "none")
SERVERS = ("average", "fedamsgrad", "fedams", "fedadam", "fedyogi")
# Of the first sixty, so that every value is drawn, and most pairs of them.
SEEDS = (0, 1, 11, 21, 47, 42, 2, 31, 36, 55, 59, 9, 16, 45)


class Generated(NamedTuple):
    """A case of the family.

    Attributes:
      algorithm: A name of the registry.
      options: Given to `build`, but for the server optimizer.
      server: The name of the server optimizer.
      norm: With normalisation statistics.
      seed: Of the run's key.
    """

    algorithm: str
    options: dict[str, Any]
    server: str
    norm: bool
    seed: int

    def build(self, **changes):
        """The algorithm, with other options where they are given."""
        return afga_jax.build(
            self.algorithm,
            toy.logistic(norm=self.norm),
            server_optimizer=getattr(afga_jax, self.server)(self.rate, **self.moments),
            **{**self.options, **changes},
        )

    @property
    def rate(self) -> float:
        """η."""
        return 1.0 if self.server == "average" else 0.1

    @property
    def moments(self) -> dict[str, float]:
        # ε is so large that rounding is amplified by 1/√ε = 30 at most.
        return {} if self.server == "average" else {"b1": 0.8, "b2": 0.9, "eps": 1e-3}

    @property
    def data(self):
        return toy.clients(len(self.labels), sizes=np.arange(len(self.labels)) % 5 + 2)

    @property
    def key(self):
        return jax.random.key(self.seed)

    @property
    def labels(self) -> np.ndarray:
        return np.asarray(self.options["clustering"])

    @property
    def numbers(self) -> dict[str, Any]:
        """What `boxes.by_matrices` is told."""
        return {
            "matrix_at": self.matrix_at,
            "local_lr": self.options["local_lr"],
            "server_lr": self.rate,
            "server": lambda: getattr(parts, self.server)(**self.moments),
            "local": getattr(parts, self.options["local_optimizer"]),
            "mixing_order": self.options["mixing_order"],
            "by_size": self.options["weighting"] == "size",
            "by_members": self.options["cluster_weighting"] == "size",
        }

    def matrix_at(self, draws: Draws, step: int) -> np.ndarray:
        """W of all clients at a local step, written down from the options."""
        options, everybody = self.options, set(range(len(self.labels)))
        graph = options.get("topology", "ring")
        if (step + 1) % options["mix_every"] or graph == "none":
            return np.eye(len(everybody))
        mixing = {
            None: everybody,
            "per_step": draws.active[step],
            "per_round": draws.upload,
        }[options.get("adapted")]
        groups = [
            [int(i) for i in np.flatnonzero(self.labels == k) if i in mixing]
            for k in np.unique(self.labels)
        ]
        make = parts.ring if graph == "ring" else getattr(topology, graph)
        matrix = parts.within(len(everybody), groups, make)
        return np.linalg.matrix_power(matrix, options["mix_times"])


def generated(seed: int) -> Generated:
    """A case; every seed is another one."""
    rng = np.random.default_rng(seed)

    def pick(*values):
        return values[rng.integers(len(values))]

    num_clients, num_clusters = pick(9, 12, 16), pick(1, 1, 2, 3)
    # At least two clients in each cluster, so that half of them is somebody.
    others = rng.integers(num_clusters, size=num_clients - 2 * num_clusters)
    labels = rng.permutation([*range(num_clusters), *range(num_clusters), *others])
    steps = pick(2, 3, 4, 5)
    options = {
        "num_clients": num_clients,
        "clustering": labels.tolist(),
        "participation": pick(0.3, 0.5, 0.8, 1.0),
        "local_steps": steps,
        "mixing_order": pick("after", "before"),
        "mix_every": pick(1, 1, 2),
        "mix_times": 2 if seed % 4 == 3 else 1,
        "weighting": pick("uniform", "size"),
        "cluster_weighting": pick("uniform", "size"),
        "local_optimizer": pick("sgd", "sgd", "momentum", "adam"),
        "local_lr": pick(0.1, 0.5),
    }
    algorithm = pick(*ALGORITHMS)
    if algorithm == "cafga":
        options["resample"] = pick(True, True, False)
    if algorithm == "fedcluster":
        options |= {"inner": "afga", "shuffle": pick(True, False)}
    elif adapted := pick(None, None, "per_step", "per_round"):
        options["adapted"] = adapted
    if "adapted" not in options:
        options["topology"] = pick(*GRAPHS)
    # Who has taken its steps leaves a step's ring; a round's ring says nothing of that.
    if options.get("adapted") != "per_round" and pick(False, False, True):
        options["client_steps"] = rng.integers(1, steps + 1, num_clients).tolist()
    return Generated(algorithm, options, pick(*SERVERS), pick(False, True), seed)


def assert_every_value(seeds, wanted=lambda case: True):
    """Of all that the first sixty cases have, some cases have each at least once."""
    every = set().union(*map(_values, filter(wanted, map(generated, range(60)))))
    assert set().union(*map(_values, map(generated, seeds))) == every


def _values(case: Generated) -> set:
    options = {**case.options, "clustering": len(set(case.labels))}
    options |= {"client_steps": "client_steps" in options}
    return {case.algorithm, case.server, case.norm, *options.items()}


@contextlib.contextmanager
def saying(case: Generated):
    """What fails inside says for which options."""
    try:
        yield
    except Exception as error:
        error.add_note(f"{case}")
        raise
