"""Methods without a server: everybody computes and mixes, models persist.

A round is `local_steps` steps, our choice; the mean of the models is evaluated. They
compute N gradients per step where AFGA computes M.
"""

from typing import Any

from afga_jax.algorithms.compose import compose
from afga_jax.algorithms.options import Options, option
from afga_jax.algorithms.registry import algorithm
from afga_jax.gossip import sequences
from afga_jax.gossip.periods import PeriodicAverage
from afga_jax.optimizers import client
from afga_jax.recipe import Recipe


@algorithm(local_lr=0.1)
def dsgd(options: Options) -> Recipe:
    """Decentralised SGD, x ← W(x − ηg).

    `mixing_order="before"` is Lian et al.'s form, x ← Wx − ηg.
    """
    return _serverless(options)


@algorithm(
    local_lr=0.001,
    b3=option(0.0, at_least=0, below=1, help="β₃, decay of the maximum."),
)
def dadam(options: Options) -> Recipe:
    """DAdam, x ← Wx − η·m/√v̂. Reference: Nazari et al., 2019.

    With another `local_optimizer` it is DSGD that mixes before the step.
    """
    o = options
    optimizer = client.dadam(o.local_lr, o.b1, o.b2, o.b3, o.eps)
    return _serverless(options, optimizer=optimizer, mix_first=True)


@algorithm(local_lr=0.001)
def damsgrad(options: Options) -> Recipe:
    """D-AMSGrad, which also mixes the second moment. Reference: Chen et al., 2021.

    With another `local_optimizer` it is DSGD that mixes before the step.
    """
    o = options
    optimizer = client.damsgrad(o.local_lr, o.b1, o.b2, o.eps)
    return _serverless(options, optimizer=optimizer, mix_first=True)


@algorithm(
    local_lr=0.1,
    pga_period=option(
        None, kind=int, help="H, steps between exact averages; None: `local_steps`."
    ),
)
def pga(options: Options) -> Recipe:
    """Gossip SGD with periodic global averaging. Reference: Chen et al., 2021.

    H is not given in the AFGA paper; we take 𝓘, once per round.
    """
    recipe = _serverless(options)
    period = options.pga_period or options.local_steps
    return recipe._replace(
        mixing=PeriodicAverage(recipe.mixing, options.num_clients, period)
    )


@algorithm(local_lr=0.1, momentum=0.9)
def dfedavgm(options: Options) -> Recipe:
    """DFedAvgM: local momentum, gossip once per round. Reference: Sun et al., 2023.

    The momentum begins anew in each round, and clients mix after its last step,
    whatever `mix_every` says.
    """
    once = options.replace(mix_every=options.local_steps)
    return _serverless(once, optimizer="momentum", keep_optimizer=False)


@algorithm(
    local_lr=0.1,
    peers=option(
        None, kind=int, help="s, others that each sends to; None: log₂ of their number."
    ),
)
def epidemic(options: Options) -> Recipe:
    """Epidemic Learning (EL-Local): each sends to s random others, and all average.

    A client's model and those that it receives count alike, so W is drawn at every step
    and not symmetric. s is the paper's. Reference: De Vos et al., 2023, Algorithm 1.
    """
    drawn = sequences.epidemic(options.clusters(), peers=options.peers)
    return _serverless(options, topology=drawn)


def _serverless(options: Options, topology: Any = "ring", **choices) -> Recipe:
    return compose(
        options,
        compute="everyone",
        upload="everyone",
        topology=topology,
        server=None,
        **choices,
    )
