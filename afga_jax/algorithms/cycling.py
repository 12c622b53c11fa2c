"""FedCluster: one cluster after another, each with an update of the server's model.

Reference: Chen et al., FedCluster, 2020, Algorithm 1.
"""

from afga_jax.algorithms.options import Options, option
from afga_jax.algorithms.registry import algorithm, lookup
from afga_jax.population.sampling import in_turns
from afga_jax.recipe import Recipe


@algorithm(
    local_lr=0.01,
    server_lr=1.0,
    num_clusters=10,
    local_steps=20,
    inner=option("fedavg", algorithm=True, help="The algorithm inside the cycle."),
    shuffle=option(True, help="Whether clusters come in a new order in each round."),
)
def fedcluster(options: Options) -> Recipe:
    """FedCluster around any algorithm with a server (`inner`).

    A round is K cycles: the inner algorithm inside one cluster, then the server's step.
    Uploads are weighted by data size within their cluster, as the paper has it.
    """
    inner = lookup(options.inner, "inner")
    if inner is not fedcluster:
        recipe = inner.recipe(options.replace(weighting=options.weighting or "size"))
    if inner is fedcluster or recipe.server is None or recipe.pooled:
        raise ValueError(
            f"inner = {options.inner!r}, but a cycle must end with one step of the "
            "server: take an algorithm with a server, such as 'fedavg' or 'fedamsgrad'."
        )
    order = in_turns(recipe.clustering.num_clusters, shuffle=options.shuffle)
    return recipe._replace(order=order)
