"""Which choices have no effect, because another one leaves them out."""

from collections.abc import Iterable

from afga_jax.config import Config

# A field, and the field with the values that make use of it.
_USED_WITH = {
    "mu": ("algo", ("fedprox",)),
    "feddyn_alpha": ("algo", ("feddyn",)),
    "b3": ("algo", ("dadam",)),
    "active_prob": ("algo", ("hafed_active",)),
    "pga_period": ("algo", ("pga",)),
    "inner": ("algo", ("fedcluster",)),
    "shuffle": ("algo", ("fedcluster",)),
    "alpha": ("partition", ("dirichlet", "dirichlet_client")),
    "num_shards": ("partition", ("shards",)),
    "shard_size": ("partition", ("shards",)),
    "shards_per_client": ("partition", ("shards",)),
    "rho_device": ("partition", ("major_class",)),
    "rho_cluster": ("clustering", ("major_class",)),
    "dimension": ("dataset", ("quadratic", "logistic")),
    "sigma_g": ("dataset", ("quadratic", "logistic")),
    "sigma": ("dataset", ("quadratic", "logistic")),
    "variance": ("dataset", ("gaussians",)),
    "momentum": ("local_optimizer", ("momentum",)),
    "lr_decay": ("lr_schedule", ("step",)),
    "lr_decay_every": ("lr_schedule", ("step",)),
}


def unused(config: Config, given: Iterable[str]) -> list[str]:
    """A line for each given field that changes nothing.

    >>> unused(Config(algo="afga", mu=0.1), ["mu"])
    ["mu has no effect with algo = 'afga'; it needs fedprox."]
    """
    lines = []
    for name in given:
        other, values = _USED_WITH.get(name, ("", ()))
        if not other or getattr(config, other) in values:
            continue
        # Inside FedCluster's cycle another algorithm may make use of it.
        if other == "algo" and config.algo == "fedcluster" and config.inner in values:
            continue
        lines.append(
            f"{name} has no effect with {other} = {getattr(config, other)!r}; it needs "
            f"{' or '.join(values)}."
        )
    return lines
