"""AFGA and its relatives: clients gossip between local steps and take turns.

Reference: AFGA, Algorithms 1 and 2, §5 and footnote 4.
"""

from afga_jax.algorithms.compose import compose
from afga_jax.algorithms.fedopt import amsgrad_server
from afga_jax.algorithms.options import Options
from afga_jax.algorithms.registry import algorithm
from afga_jax.recipe import Recipe


@algorithm(theory="afga", local_lr=2.0, server_lr=0.01)
def afga(options: Options) -> Recipe:
    """AFGA: M re-sampled clients compute at each step, all N mix over a ring."""
    return compose(
        options, compute="resampled", topology="ring", server=amsgrad_server(options)
    )


@algorithm(theory="afga", local_lr=2.0, server_lr=0.01, num_clusters=5)
def cafga(options: Options) -> Recipe:
    """CAFGA: AFGA with the sampling and the ring inside each of K clusters."""
    return afga.recipe(options)


@algorithm(like="afga", theory="afga", local_lr=2.0, server_lr=0.01)
def afga_adapted(options: Options) -> Recipe:
    """AFGA(a): only the selected clients mix, over a new ring at each step.

    Footnote 4 reads literally as one ring over S_r for the whole round, without
    re-sampling: `adapted="per_round"`. Table 4 hints that re-sampling stays, which is
    our default, `per_step`.
    """
    return compose(
        options,
        compute="resampled",
        topology="ring",
        adapted="per_step",
        server=amsgrad_server(options),
    )


@algorithm(like="cafga", theory="afga", local_lr=2.0, server_lr=0.01, num_clusters=5)
def cafga_adapted(options: Options) -> Recipe:
    """CAFGA(a): AFGA(a) inside each of K clusters."""
    return afga_adapted.recipe(options)
