"""Everybody computes and clusters gossip: HA-Fed, whose server adapts, and TT-HF.

They compute N gradients per step where FedAMSGrad computes M: four times as many in
HA-Fed's setting. Reference: HA-Fed, Algorithms 1 and 2, Appendix F.3.
"""

from typing import Any

from afga_jax.algorithms.compose import compose
from afga_jax.algorithms.fedopt import amsgrad_server
from afga_jax.algorithms.options import Options, option
from afga_jax.algorithms.registry import algorithm
from afga_jax.optimizers import server
from afga_jax.recipe import Recipe

# What all of HA-Fed have in common.
_RATES: dict[str, Any] = {"local_lr": 0.1, "server_lr": 0.01}
_HAFED = {**_RATES, "num_clusters": 4, "local_steps": 48}


@algorithm(like="hafed_partial", theory="hafed", **_HAFED)
def hafed(options: Options) -> Recipe:
    """HA-Fed with full participation (Algorithm 1): everybody uploads."""
    return compose(
        options,
        compute="everyone",
        topology="ring",
        upload="everyone",
        server=amsgrad_server(options),
    )


@algorithm(theory="hafed", participation=0.25, **_HAFED)
def hafed_partial(options: Options) -> Recipe:
    """HA-Fed with partial participation (Algorithm 2): m of each cluster upload."""
    return compose(
        options, compute="everyone", topology="ring", server=amsgrad_server(options)
    )


@algorithm(
    like="hafed_partial",
    theory="hafed",
    participation=0.25,
    active_prob=option(
        0.5,
        above=0,
        at_most=1,
        traced=False,
        help="p_c, probability that a client computes.",
    ),
    mix_every=4,
    **_HAFED,
)
def hafed_active(options: Options) -> Recipe:
    """HA-Fed partial-active (Appendix F.3): each computes with p_c, mixing every q.

    The paper pairs p_c = 1/2 with q = 4 and 1/4 with 8. That idle clients mix is our
    reading.
    """
    return compose(
        options,
        compute="bernoulli",
        probability=options.active_prob,
        topology="ring",
        server=amsgrad_server(options),
    )


@algorithm(
    local_lr=0.1,
    server_lr=1.0,
    num_clusters=25,
    local_steps=20,
    cluster_weighting="size",
)
def tthf(options: Options) -> Recipe:
    """TT-HF: clusters gossip, one sampled client of each uploads, models are averaged.

    Clusters count by their clients. D2D rounds Γ are `mix_times`, at every
    `mix_every`-th step. Reference: Lin et al., 2021.
    """
    return compose(
        options,
        compute="everyone",
        topology="ring",
        upload="one",
        server=server.average(options.server_lr),
    )
