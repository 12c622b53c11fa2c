"""The rates on trial: how ‖∇f‖² falls with R, 𝓘, M and ρ where all is known.

On quadratics with given σ_g and σ, FedAMSGrad and AFGA run with the rates of the
theory, η_l = 1/(√R·𝓘) and η = √(𝓘·M) (FedAMSGrad), η = N·√(𝓘/M) (AFGA), all constants
one; ε = 1 keeps the adaptive step between constants, as the proofs do. What the theory
bounds is the mean over the rounds of ‖∇f(x_r)‖²: by O(√𝓘/√(R·M)) for FedAMSGrad, and by
O(1/√(R·𝓘·M)) for AFGA where ρ ≤ M/(M+N) and R ≥ 𝓘·M. One of R, 𝓘, M, ρ changes at a
time; slopes are fitted in logarithms. The bounds have further terms, which fall faster
with R, so 𝓘 and M are varied at two R. A slope over a finite range can agree or not
with a bound's leading term; it cannot refute the bound.

Reference: AFGA, Theorem 4.6 and Corollary 4.7; Wang, Lin and Chen, 2022.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax.config import Config
from afga_jax.experiment import Experiment, from_config
from afga_jax.record import write_json
from afga_jax.settings import resolve
from experiments.grid import fingerprint

#: Of ‖∇f‖² in logarithms, by the theory.
SLOPES = {
    "fedamsgrad": {"R": -0.5, "𝓘": 0.5, "M": -0.5},
    "afga": {"R": -0.5, "𝓘": -0.5, "M": -0.5},
}
_CLIENTS = 32
_BASE = {"R": 256, "𝓘": 8, "M": 4, "topology": "complete"}
_AXES = {
    "R": (64, 128, 256, 512, 1024, 2048, 4096),
    "𝓘": (2, 4, 8, 16, 32),
    "M": (1, 2, 4, 8, 16),
}
_TOPOLOGIES = ("complete", "exponential", "torus", "star", "ring")
#: R at which 𝓘 and M are varied.
ROUNDS = (256, 4096)
_SEEDS = {"paper": 32, "small": 8, "smoke": 2}


class Point(NamedTuple):
    """A measurement.

    Attributes:
      axis: What was varied: `R`, `𝓘`, `M` or `ρ`.
      algo: Name of the algorithm.
      rounds: R.
      x: The value of what was varied; None: the algorithm has none.
      values: Mean over rounds of ‖∇f‖², one for each seed.
      topology: Its name; None: there is none.
      holds: Whether all that the theory asks for holds; None: it asks for nothing.
    """

    axis: str
    algo: str
    rounds: int
    x: float | None
    values: np.ndarray
    topology: str | None
    holds: bool | None


def cells(scale: str) -> list[tuple[str, Config]]:
    """What is measured: the axis that it is for, and the run."""
    if scale == "smoke":
        return [("R", _config(algo, {**_BASE, "R": 8}, scale)) for algo in SLOPES]
    found = []
    for algo in SLOPES:
        for axis, values in _AXES.items():
            for rounds in ROUNDS if axis != "R" else ROUNDS[:1]:
                at = {**_BASE, "R": rounds}
                found += [(axis, _config(algo, {**at, axis: x}, scale)) for x in values]
    for topology in _TOPOLOGIES:
        found.append(("ρ", _config("afga", {**_BASE, "topology": topology}, scale)))
    return [*found, ("ρ", _config("fedamsgrad", _BASE, scale))]


class Bench:
    """Measures runs; those that differ in rates and rounds only share a program.

    Args:
      kept: Where measurements are, by configuration, as runs are.
    """

    def __init__(self, kept: Path):
        self._kept, self._programs = kept, {}

    def point(self, axis: str, config: Config) -> Point:
        """Measured, or read if it was measured before."""
        path = self._kept / fingerprint(config) / "gradient.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, self._measured(config))
        content = json.loads(path.read_text())
        x = {
            "R": config.rounds,
            "𝓘": config.local_steps,
            "M": config.active,
            "ρ": content["rho"],
        }[axis]
        holds = None
        if content["theory"]:
            holds = all(one["holds"] for one in content["theory"].values())
        squares = np.array(content["squares"])
        x = None if x is None else float(x)
        about = (axis, config.algo, config.rounds, x)
        return Point(*about, squares, config.topology, holds)

    def _measured(self, config: Config) -> dict[str, Any]:
        # The facts depend on the number of rounds; what is compiled does not.
        name = fingerprint(config, but_for=("local_lr", "server_lr", "rounds"))
        experiment = from_config(config)
        program = self._programs.setdefault(name, _program(experiment))
        keys = jax.vmap(jax.random.key)(jnp.arange(config.num_seeds))
        numbers = {
            name: getattr(config, name) for name in ("local_lr", "server_lr", "eps")
        }
        given = (experiment.clients, experiment.test)
        squares = program(keys, numbers, config.rounds, *given)
        return {
            "config": config.to_dict(),
            "squares": squares.tolist(),
            "rho": experiment.facts["rho"] if config.algo == "afga" else None,
            "theory": experiment.facts["theory"],
        }


def _program(experiment: Experiment) -> Callable[..., jax.Array]:
    """The mean over rounds of ‖∇f(x_r)‖², for each seed."""
    task, algorithm = experiment.task, experiment.algorithm

    def run(keys, numbers, rounds, clients, every):
        def square(params):
            gradient = jax.grad(lambda x: task.loss(x, (), every, None, False)[0])
            return jnp.sum(gradient(params) ** 2)

        def one(key):
            def add(_, carry):
                state, total = carry
                total += square(state.params)
                return algorithm.round(key, state, clients)[0], total

            start = (algorithm.init(key, **numbers), jnp.zeros(()))
            return jax.lax.fori_loop(0, rounds, add, start)[1] / rounds

        return jax.vmap(one)(keys)

    return jax.jit(run)


def _config(algo: str, at: dict[str, Any], scale: str) -> Config:
    rounds, steps, active = at["R"], at["𝓘"], at["M"]
    rate = math.sqrt(steps * active)
    given = {
        "algo": algo,
        "dataset": "quadratic",
        "scale": "small",
        "num_clients": _CLIENTS,
        "active": active,
        "num_clusters": 1,
        "local_steps": steps,
        "rounds": rounds,
        "batch_size": 1,
        "sigma_g": 2.0,
        "sigma": 2.0,
        "local_lr": 1 / (math.sqrt(rounds) * steps),
        "server_lr": rate if algo == "fedamsgrad" else _CLIENTS * rate / active,
        "eps": 1.0,
        "num_seeds": _SEEDS[scale],
        "engine": "dense",
    }
    if algo == "afga":
        given["topology"] = at["topology"]
    return resolve(given, dataset="quadratic").config
