"""The conditions under which the papers prove their rates, checked for a run."""

import math
from typing import Any

import numpy as np

from afga_jax.algorithms import FederatedAlgorithm, lookup


def conditions(
    algo: str, algorithm: FederatedAlgorithm, rounds: int, rho: float | None = None
) -> dict[str, dict[str, Any]]:
    """What the theory asks for, met or not, with both sides.

    AFGA: ρ ≤ M/(M+N), CAFGA: ρ_max ≤ m/(m+n), both R ≥ 𝓘·M. HA-Fed: T > τ·M (full:
    τ·N), and with partial participation ρ_max ≤ 1/(2√(n−m)), K < n (Cor. 5.11). The
    papers' own settings do not meet all of them.

    Args:
      algo: Name of the algorithm.
      algorithm: The built algorithm.
      rounds: Number of rounds, R.
      rho: ρ to judge by; None: the mixing's, where it has one.

    Returns:
      By condition: `holds`, `left`, `right`; empty for algorithms without such theory.
    """
    paper = lookup(algo).theory
    if paper is None:
        return {}
    options, clusters = algorithm.options, algorithm.recipe.clustering
    rho = algorithm.recipe.mixing.spectral_gap() if rho is None else rho
    sizes = clusters.sizes
    chosen = sizes if algo == "hafed" else options.chosen(clusters)
    active, steps = int(chosen.sum()), options.local_steps
    checked = {}
    if paper == "afga":
        if rho is not None:
            name = "ρ ≤ M/(M+N)" if len(sizes) == 1 else "ρ_max ≤ m/(m+n)"
            share = float(np.min(chosen / (chosen + sizes)))
            checked[name] = _sides(rho <= share, rho, share)
        checked["R ≥ 𝓘·M"] = _sides(rounds >= steps * active, rounds, steps * active)
        return checked
    name = "T > τ·N" if algo == "hafed" else "T > τ·M"
    checked[name] = _sides(rounds > steps * active, rounds, steps * active)
    idle, smallest = int((sizes - chosen).max()), int(sizes.min())
    if idle:
        if rho is not None:
            bound = 1 / (2 * math.sqrt(idle))
            checked["ρ_max ≤ 1/(2√(n−m))"] = _sides(rho <= bound, rho, bound)
        checked["n > K"] = _sides(smallest > len(sizes), smallest, len(sizes))
    return checked


def _sides(holds: bool, left: float, right: float) -> dict[str, Any]:
    return {"holds": bool(holds), "left": left, "right": right}
