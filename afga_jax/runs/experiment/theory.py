"""The conditions under which the papers prove their rates, checked for a run."""

import math
from typing import Any

import numpy as np

from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.settings.families import AFGA, HAFED


def conditions(
    algo: str, algorithm: FederatedAlgorithm, rounds: int
) -> dict[str, dict[str, Any]]:
    """What the theory asks for, met or not, with both sides.

    AFGA: ρ ≤ M/(M+N), CAFGA: ρ_max ≤ m/(m+n), both R ≥ 𝓘·M. HA-Fed: T > τ·M (full:
    τ·N), and with partial participation ρ_max ≤ 1/(2√(n−m)), K < n (Cor. 5.11). The
    papers' own settings do not meet all of them.

    Args:
      algo: Name of the algorithm.
      algorithm: The built algorithm.
      rounds: R.

    Returns:
      By condition: `holds`, `left`, `right`; empty for algorithms without such theory.
    """
    if algo not in AFGA + HAFED:
        return {}
    options, clusters = algorithm.options, algorithm.recipe.clustering
    rho = algorithm.recipe.mixing.spectral_gap()
    sizes = clusters.sizes
    chosen = sizes if algo == "hafed" else options.chosen(clusters)
    active, steps = int(chosen.sum()), options.local_steps
    found = {}
    if algo in AFGA:
        if rho is not None:
            name = "ρ ≤ M/(M+N)" if len(sizes) == 1 else "ρ_max ≤ m/(m+n)"
            found[name] = _at_most(rho, float(np.min(chosen / (chosen + sizes))))
        found["R ≥ 𝓘·M"] = _at_least(rounds, steps * active)
        return found
    name = "T > τ·N" if algo == "hafed" else "T > τ·M"
    found[name] = _above(rounds, steps * active)
    idle = int((sizes - chosen).max())
    if idle:
        if rho is not None:
            found["ρ_max ≤ 1/(2√(n−m))"] = _at_most(rho, 1 / (2 * math.sqrt(idle)))
        found["n > K"] = _above(int(sizes.min()), len(sizes))
    return found


def _at_most(left, right):
    return {"holds": bool(left <= right), "left": left, "right": right}


def _at_least(left, right):
    return {"holds": bool(left >= right), "left": left, "right": right}


def _above(left, right):
    return {"holds": bool(left > right), "left": left, "right": right}
