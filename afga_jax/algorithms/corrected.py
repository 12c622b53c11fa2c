"""Averaging with a corrected local gradient: FedProx, SCAFFOLD, FedDyn."""

from afga_jax.algorithms.compose import compose
from afga_jax.algorithms.options import Options
from afga_jax.algorithms.registry import defaults
from afga_jax.optimizers import corrections, server
from afga_jax.optimizers.corrections import Correction
from afga_jax.recipe import Recipe


@defaults(uses=("mu",), local_lr=0.1, server_lr=1.0)
def fedprox(options: Options) -> Recipe:
    """FedProx. The AFGA paper gives no μ; 0.01 is on Li et al.'s grid."""
    return _corrected(options, corrections.proximal(options.mu))


@defaults(local_lr=0.1, server_lr=1.0)
def scaffold(options: Options) -> Recipe:
    """SCAFFOLD, option II."""
    return _corrected(options, corrections.control_variates())


@defaults(uses=("feddyn_alpha",), local_lr=0.1, server_lr=1.0)
def feddyn(options: Options) -> Recipe:
    """FedDyn. The AFGA paper gives no α; 0.01 is on Acar et al.'s grid."""
    return _corrected(options, corrections.dynamic(options.feddyn_alpha))


def _corrected(options: Options, correction: Correction) -> Recipe:
    return compose(
        options,
        compute="fixed",
        server=server.average(options.server_lr),
        correction=correction,
    )
