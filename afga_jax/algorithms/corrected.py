"""Averaging with a corrected local gradient: FedProx, SCAFFOLD, FedDyn."""

from afga_jax.algorithms.compose import compose
from afga_jax.algorithms.options import Options, option
from afga_jax.algorithms.registry import algorithm
from afga_jax.optimizers import corrections, server
from afga_jax.optimizers.corrections import Correction
from afga_jax.recipe import Recipe


@algorithm(
    local_lr=0.1,
    server_lr=1.0,
    mu=option(
        0.01,
        per_client=True,
        at_least=0,
        fix="0 is FedAvg",
        help="μ, the weight of the proximal term.",
    ),
)
def fedprox(options: Options) -> Recipe:
    """FedProx. The AFGA paper gives no μ; 0.01 is on Li et al.'s grid."""
    return _corrected(options, corrections.proximal(options.mu))


@algorithm(local_lr=0.1, server_lr=1.0)
def scaffold(options: Options) -> Recipe:
    """SCAFFOLD, option II."""
    return _corrected(options, corrections.control_variates())


@algorithm(
    local_lr=0.1,
    server_lr=1.0,
    feddyn_alpha=option(
        0.01,
        above=0,
        fix="its limit is FedAvg",
        help="α, the weight of the regularisation.",
    ),
)
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
