"""An optimizer inside and one outside: everybody trains alone, then a slow step.

They are from data centres, where all workers take part; `fedavgm` is their like with
sampled clients.
"""

import numpy as np

from afga_jax.algorithms.compose import compose
from afga_jax.algorithms.options import Options
from afga_jax.algorithms.registry import algorithm
from afga_jax.optimizers import server
from afga_jax.recipe import Recipe


@algorithm(local_lr=0.1, server_lr=1.0, momentum=0.9, b1=0.7, local_steps=12)
def slowmo(options: Options) -> Recipe:
    """SlowMo around Nesterov's SGD. Reference: Wang et al., 2020.

    β is `b1` and α `server_lr`; they and τ are the paper's for CIFAR-10. Of its
    strategies for the clients' momentum we take a fresh one in each round.
    """
    if np.ndim(options.local_lr):
        raise ValueError(
            f"local_lr has shape {np.shape(options.local_lr)}, but SlowMo's server "
            "divides by one rate: give one number, or use 'fedavgm'."
        )
    outer = server.slowmo(options.server_lr, options.local_lr, options.b1)
    return compose(
        options,
        compute="everyone",
        upload="everyone",
        optimizer="nesterov",
        server=outer,
    )


@algorithm(local_lr=4e-4, server_lr=0.7, weight_decay=0.1, local_steps=500)
def diloco(options: Options) -> Recipe:
    """DiLoCo: AdamW that persists, Nesterov on the server. Reference: Douillard et al.

    Values are those of 2023 for language models; with another `local_optimizer`, that
    one's state persists.
    """
    outer = server.fedavgm(options.server_lr, options.b1, nesterov=True)
    return compose(
        options,
        compute="everyone",
        upload="everyone",
        optimizer="adamw",
        keep_optimizer=True,
        server=outer,
    )
