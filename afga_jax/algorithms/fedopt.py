"""FedAvg and its relatives: sampled clients, no mixing, another server or mean.

Each function returns a `Recipe`; see `afga_jax.algorithms.build` for the options.
"""

from afga_jax.algorithms.compose import compose
from afga_jax.algorithms.options import Options
from afga_jax.algorithms.registry import algorithm
from afga_jax.optimizers import aggregators, server
from afga_jax.population.clustering import single
from afga_jax.recipe import Recipe


@algorithm(local_lr=0.1, server_lr=1.0)
def fedavg(options: Options) -> Recipe:
    """FedAvg: x += η·Δ. Reference: McMahan et al., 2017."""
    return compose(options, compute="fixed", server=server.average(options.server_lr))


@algorithm(local_lr=0.1, server_lr=1.0)
def fedavgm(options: Options) -> Recipe:
    """FedAvgM: momentum β₁ = 0.9 on the server. Reference: Hsu, Qi and Brown, 2019.

    The paper weights uploads by data: `weighting="size"`.
    """
    optimizer = server.fedavgm(options.server_lr, options.b1)
    return compose(options, compute="fixed", server=optimizer)


@algorithm(local_lr=0.1, server_lr=1.0)
def fednova(options: Options) -> Recipe:
    """FedNova: x += η·τ_eff·Σᵢ pᵢΔᵢ/τᵢ, by data. Reference: Wang et al., 2020.

    τᵢ are the steps that client i took (`client_steps`, stragglers); with
    `local_optimizer="momentum"`, ‖aᵢ‖₁.
    """
    momentum = 0.0
    if options.local_optimizer == "momentum":
        momentum = options.momentum
    return compose(
        options,
        compute="fixed",
        server=server.average(options.server_lr),
        aggregator=aggregators.normalised(momentum),
        weighting="size",
    )


@algorithm(local_lr=1.0, server_lr=0.01)
def fedamsgrad(options: Options) -> Recipe:
    """FedAMSGrad: AMSGrad on the server. Reference: Wang, Lin and Chen, 2022."""
    return compose(options, compute="fixed", server=amsgrad_server(options))


@algorithm(local_lr=1.0, server_lr=0.01)
def fedams(options: Options) -> Recipe:
    """FedAMS: AMSGrad with max(v̂, v, ε). Reference: Wang, Lin and Chen, 2022."""
    optimizer = server.fedams(options.server_lr, options.b1, options.b2, options.eps)
    return compose(options, compute="fixed", server=optimizer)


@algorithm(local_lr=1.0, server_lr=0.01)
def fedadam(options: Options) -> Recipe:
    """FedAdam. Reference: Reddi et al., 2020."""
    optimizer = server.fedadam(options.server_lr, options.b1, options.b2, options.eps)
    return compose(options, compute="fixed", server=optimizer)


@algorithm(local_lr=1.0, server_lr=0.01)
def fedyogi(options: Options) -> Recipe:
    """FedYogi. Reference: Reddi et al., 2020."""
    optimizer = server.fedyogi(options.server_lr, options.b1, options.b2, options.eps)
    return compose(options, compute="fixed", server=optimizer)


@algorithm(local_lr=1.0, server_lr=0.01, b1=0.0)
def fedadagrad(options: Options) -> Recipe:
    """FedAdagrad. Reference: Reddi et al., 2020."""
    optimizer = server.fedadagrad(options.server_lr, options.b1, options.eps)
    return compose(options, compute="fixed", server=optimizer)


@algorithm(local_lr=0.1, server_lr=1.0)
def sgd(options: Options) -> Recipe:
    """Centralised SGD: one client holds all data; FedCluster's reference line."""
    alone = options.replace(
        num_clients=1,
        active=1,
        num_clusters=1,
        clustering=single(1),
        client_steps=None,
        topology="none",
    )
    return fedavg.recipe(alone)._replace(pooled=True)


def amsgrad_server(options: Options):
    """The server of AFGA, HA-Fed and FedAMSGrad."""
    return server.fedamsgrad(options.server_lr, options.b1, options.b2, options.eps)
