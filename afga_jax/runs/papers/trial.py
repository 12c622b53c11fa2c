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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax.runs.config import Config
from afga_jax.runs.experiment import Experiment, from_config
from afga_jax.runs.grid import fingerprint
from afga_jax.runs.papers.cells import RATES
from afga_jax.runs.papers.declaration import Study
from afga_jax.runs.record import write_json
from afga_jax.runs.report import figures
from afga_jax.runs.report.tables import markdown
from afga_jax.runs.settings import resolve

#: Slopes of ‖∇f‖² in logarithms, by the theory.
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
_LABELS = {"fedamsgrad": "FedAMSGrad", "afga": "AFGA"}
_NAMES = {
    "R": "rounds R",
    "𝓘": "local steps",
    "M": "active clients M",
    "ρ": "ρ of AFGA's topology",
}


class Point(NamedTuple):
    """A measurement.

    Attributes:
      axis: What was varied: `R`, `𝓘`, `M` or `ρ`.
      algo: Name of the algorithm.
      rounds: Number of rounds, R.
      x: The value of what was varied; None: the algorithm has none.
      values: Mean over rounds of ‖∇f‖², one for each seed.
      topology: The topology's name; None: there is none.
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
    runs = []
    for algo in SLOPES:
        for axis, values in _AXES.items():
            for rounds in ROUNDS if axis != "R" else ROUNDS[:1]:
                at = {**_BASE, "R": rounds}
                runs += [(axis, _config(algo, {**at, axis: x}, scale)) for x in values]
    for topology in _TOPOLOGIES:
        runs.append(("ρ", _config("afga", {**_BASE, "topology": topology}, scale)))
    return [*runs, ("ρ", _config("fedamsgrad", _BASE, scale))]


def measure(scale: str, out: Path, kept: Path) -> list[Point]:
    """All measurements; those that were made before are read.

    Runs that differ in rates and rounds only share a program.

    Args:
      scale: The size, which decides the number of seeds.
      out: Not used: there is nothing else to write.
      kept: The folder of measurements, by configuration, as runs are.
    """
    del out
    points, programs = [], dict[str, Callable[..., jax.Array]]()
    for axis, config in cells(scale):
        path = kept / fingerprint(config) / "gradient.json"
        if not path.exists():
            write_json(path, _measured(config, programs))
        content = json.loads(path.read_text())
        along = {"R": config.rounds, "𝓘": config.local_steps, "M": config.active}
        x = {**along, "ρ": content["rho"]}[axis]
        holds = None
        if content["theory"]:
            holds = all(condition["holds"] for condition in content["theory"].values())
        about = (axis, config.algo, config.rounds, None if x is None else float(x))
        squares = np.array(content["squares"])
        points.append(Point(*about, squares, config.topology, holds))
    return points


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Slope of a line through the logarithms.

    >>> round(slope([1, 2, 4], [8, 4, 2]), 6)
    -1.0
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _measured(config: Config, programs: dict[str, Callable]) -> dict[str, Any]:
    # The facts depend on the number of rounds; what is compiled does not.
    name = fingerprint(config, but_for=("local_lr", "server_lr", "rounds"))
    experiment = from_config(config)
    program = programs.setdefault(name, _program(experiment))
    keys = jax.vmap(jax.random.key)(jnp.arange(config.num_seeds))
    numbers = {name: getattr(config, name) for name in RATES}
    data = (experiment.clients, experiment.test)
    squares = program(keys, numbers, config.rounds, *data)
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

        def per_seed(key):
            def add(_, carry):
                state, total = carry
                total += square(state.params)
                return algorithm.round(key, state, clients)[0], total

            start = (algorithm.init(key, **numbers), jnp.zeros(()))
            return jax.lax.fori_loop(0, rounds, add, start)[1] / rounds

        return jax.vmap(per_seed)(keys)

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


def _table(points: Sequence[Point]) -> list[str]:
    parts = []
    fits = [
        [
            _NAMES[axis] + (f", R = {rounds}" if axis != "R" else ""),
            _LABELS[algo],
            f"{ours:+.2f} ± {error:.2f}",
            f"{SLOPES[algo][axis]:+.1f}",
        ]
        for axis, algo, rounds, ours, error in _fits(points)
    ]
    if fits:
        head = ["slope of ‖∇f‖² against", "", "measured", "bound's leading term"]
        parts.append(markdown(head, fits))
        parts.append("± is the standard error over seeds of slopes fitted to each.")
    lines = [
        [
            point.axis,
            _LABELS[point.algo],
            f"{point.rounds}",
            "–" if point.x is None else f"{point.x:.4g}",
            f"{point.values.mean():.4f} ± {point.values.std(ddof=1):.4f}",
            {True: "yes", False: "no", None: "–"}[point.holds],
        ]
        for point in points
    ]
    head = ["axis", "", "R", "value", "mean ‖∇f‖²", "theory's conditions hold"]
    parts.append(markdown(head, lines))
    parts.append(__doc__.split("\n\n")[1].replace("\n", " "))
    return ["\n\n".join(parts)]


def _fits(points: Sequence[Point]) -> list[tuple[str, str, int, float, float]]:
    """Axis, algorithm, R, the slope's mean over seeds and its standard error."""
    fits = []
    for curve in _curves(points):
        first = curve[0]
        if first.axis in SLOPES[first.algo] and len(curve) > 1:
            x = [point.x for point in curve]
            each = [slope(x, y) for y in np.array([point.values for point in curve]).T]
            error = np.std(each, ddof=1) / np.sqrt(len(each))
            about = (first.axis, first.algo, first.rounds)
            fits.append((*about, float(np.mean(each)), float(error)))
    return fits


def _curves(points: Sequence[Point]) -> list[list[Point]]:
    """Points that differ in what is varied only."""
    groups: dict[tuple, list[Point]] = {}
    for point in points:
        rounds = None if point.axis == "R" else point.rounds
        groups.setdefault((point.axis, point.algo, rounds), []).append(point)
    return [sorted(some, key=lambda point: point.x or 0) for some in groups.values()]


def _row(point: Point) -> dict[str, object]:
    return {
        "axis": point.axis,
        "algorithm": point.algo,
        "R": point.rounds,
        "value": point.x,
        "mean": point.values.mean(),
        "std": point.values.std(ddof=1),
        "seeds": len(point.values),
        "conditions": point.holds,
    }


def _draw(points: Sequence[Point], path: Path) -> None:
    figure = figures.blank(9.0, 7.5)
    axes = figure.subplots(2, 2, sharey=True).ravel()
    by_axis = dict(zip(_NAMES, axes, strict=True))
    for curve in _curves(points):
        _draw_curve(by_axis[curve[0].axis], curve)
    for axis, panel in by_axis.items():
        left = axis in ("R", "M")
        figures.label_axes(panel, _NAMES[axis], "mean of ‖∇f‖²" if left else "")
        panel.set_yscale("log")
        if axis != "ρ":
            panel.set_xscale("log", base=2)
    figures.legend(figure)
    figure.suptitle("Theory on trial: quadratics with σ_g = σ = 2, 32 clients", size=11)
    figure.savefig(path, dpi=150)


def _draw_curve(panel: "figures.Axes", curve: Sequence[Point]) -> None:
    """Points with their deviation, and the bound's slope through the middle one."""
    first, means = curve[0], np.array([point.values.mean() for point in curve])
    color = figures.color(list(SLOPES).index(first.algo))
    # R is an axis of its own in the first panel.
    long = first.axis != "R" and first.rounds > ROUNDS[0]
    label = _LABELS[first.algo] + (f", R = {first.rounds}" if first.axis != "R" else "")
    if first.axis == "ρ":
        for point in curve:
            _name(panel, point)
    if first.x is None:  # no ρ: the same whatever the graph
        panel.axhline(means[0], color=color)
        return
    x = np.array([point.x for point in curve])
    deviations = [point.values.std(ddof=1) for point in curve]
    shape = ("s" if long else "o") + ("" if first.axis == "ρ" else "-")
    face = "white" if long else color
    panel.errorbar(x, means, deviations, fmt=shape, color=color, mfc=face, label=label)
    theirs = SLOPES[first.algo].get(first.axis)
    if theirs is not None and len(curve) > 1:
        middle = len(curve) // 2
        bound = means[middle] * (x / x[middle]) ** theirs
        text = f"{_LABELS[first.algo]}, the bound's slope"
        panel.plot(x, bound, "--", color=color, linewidth=1, label=text)


def _name(panel: "figures.Axes", point: Point) -> None:
    if point.x is not None:
        where = (point.x, point.values.mean())
        side = "left" if point.x < 0.5 else "right"
        near = {"xytext": (0, -14), "textcoords": "offset points", "ha": side}
        panel.annotate(point.topology, where, fontsize=8, **near)


STUDY = Study(
    "theory",
    "Theory on trial: how ‖∇f‖² falls with R, 𝓘, M and ρ on quadratics",
    measure,
    _row,
    _table,
    lambda scale: f"{len(cells(scale))} measurements, minutes on a CPU",
    _draw,
)
