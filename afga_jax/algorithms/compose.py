"""From five choices to a recipe: what is common to all algorithms."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import optax

from afga_jax import checks
from afga_jax.algorithms.options import Options
from afga_jax.gossip import mixing, sequences
from afga_jax.gossip.base import Mixing
from afga_jax.gossip.kernels import as_kernels
from afga_jax.optimizers import aggregators, client, corrections
from afga_jax.optimizers.aggregators import Aggregator
from afga_jax.optimizers.client import LocalOptimizer
from afga_jax.optimizers.corrections import Correction
from afga_jax.population import sampling
from afga_jax.population.clustering import Clustering
from afga_jax.recipe import Recipe
from afga_jax.typing import Array

_COMPUTE: dict[str, Callable[..., sampling.Participation]] = {
    "fixed": sampling.fixed,
    "resampled": sampling.resampled,
    "everyone": sampling.everyone,
    "bernoulli": sampling.bernoulli,
}
# How many upload of each cluster, `[K]`.
_UPLOAD: dict[str, Callable[[Options, Clustering], np.ndarray]] = {
    "sample": lambda options, clusters: options.chosen(clusters),
    "one": lambda options, clusters: np.ones_like(clusters.sizes),
    "everyone": lambda options, clusters: clusters.sizes,
}


def compose(
    options: Options,
    *,
    compute: str | sampling.Participation,
    probability: Array | float = 0.5,
    server: optax.GradientTransformation | None,
    aggregator: Aggregator | None = None,
    topology: Any = "none",
    adapted: str | None = None,
    upload: str = "sample",
    optimizer: LocalOptimizer | optax.GradientTransformation | str | None = None,
    keep_optimizer: bool | None = None,
    correction: Correction | None = None,
    mix_first: bool = False,
    weighting: str = "uniform",
) -> Recipe:
    """An algorithm as a row; what the user chose goes before the algorithm's own.

    Args:
      options: What the user chose.
      compute: Who takes a gradient: `fixed`, `resampled`, `everyone` or `bernoulli`, or
        a participation of your own, which then also says who uploads.
      probability: With which a client computes at a step, for `bernoulli`.
      server: The server's optimizer, which is given the pseudo-gradient −Δ: any of
        optax's; None: there is no server.
      aggregator: How uploaded deltas become one; None: their weighted mean.
      topology: Who mixes with whom; see `Options`.
      adapted: Mix only among those who compute, `per_step` or `per_round`.
      upload: Who uploads: a `sample` of each cluster, `one` of each, or `everyone`.
      optimizer: How a client steps: any of optax's, or a name of
        `client.LOCAL_OPTIMIZERS`; None: SGD.
      keep_optimizer: Whether a client's optimizer keeps its state from round to round;
        None: without a server, where everything persists.
      correction: What is added to the local gradient; None: nothing.
      mix_first: Whether clients mix before the step.
      weighting: How uploads are weighted, `uniform` or by data `size`.
    """
    checks.choice("upload", upload, _UPLOAD)
    if not callable(compute):
        checks.choice("compute", compute, _COMPUTE)
    clusters = options.clusters()
    adapted = options.adapted or adapted
    if compute in ("fixed", "resampled") and options.resample is not None:
        compute = "resampled" if options.resample else "fixed"
    if adapted == "per_round":
        compute = "fixed"
    chosen = _UPLOAD[upload](options, clusters)
    if options.mixing_order is not None:
        mix_first = options.mixing_order == "before"
    if server is not None:
        _check_transformation("server", server)
        # Ours work number by number, so the model may be one vector to them, which
        # compiles faster; the user's own may look at layers.
        own = options.server_optimizer
        server = optax.flatten(server) if own is None else own
        _check_transformation("server_optimizer", server)
    mixes = _mixing(options, clusters, topology, adapted)
    recipe = Recipe(
        clustering=clusters,
        participation=_participation(options, clusters, compute, probability, chosen),
        order=sampling.together(clusters.num_clusters),
        optimizer=_local(options, optimizer),
        correction=correction or corrections.none(),
        mixing=mixes,
        server=server,
        aggregator=options.aggregator or aggregator or aggregators.mean(),
        keep_optimizer=server is None if keep_optimizer is None else keep_optimizer,
        mix_first=mix_first,
        weighting=options.weighting or weighting,
        cluster_weighting=options.cluster_weighting,
        broadcast=options.broadcast,
        full_batch=options.full_batch,
    )
    _check_correction(recipe, correction)
    if recipe.broadcast != "all":
        _check_broadcast(recipe, correction)
    return recipe


def warn_if_nothing_mixes(recipe: Recipe, width: int) -> None:
    """Says so where mixing among the selected has only one client to mix."""
    if isinstance(recipe.mixing, mixing.AmongSelected) and width == 1:
        warnings.warn(
            "one client is selected per cluster and step, so mixing among the selected "
            "mixes nothing: raise active or participation, or lower num_clusters.",
            stacklevel=3,
        )


def check_uploads(recipe: Recipe, uploads: int) -> None:
    """Refuses an aggregator that is made for more uploads than a cycle has."""
    least = recipe.aggregator.least_uploads
    if uploads < least:
        raise ValueError(
            f"the aggregator needs at least {least} uploads, but up to {uploads} "
            "arrive at once: raise active or participation, or assume fewer liars."
        )


def _participation(
    options: Options,
    clusters: Clustering,
    compute: str | sampling.Participation,
    probability: Array | float,
    chosen: np.ndarray,
) -> sampling.Participation:
    if callable(compute):
        drawn = compute
    else:
        more = {"probability": probability} if compute == "bernoulli" else {}
        drawn = _COMPUTE[compute](clusters, chosen, options.local_steps, **more)
    if options.client_steps is None:
        return drawn
    return sampling.limited(drawn, options.client_steps, clusters.num_clients)


def _mixing(
    options: Options, clusters: Clustering, topology: Any, adapted: str | None
) -> Mixing:
    given = topology if options.topology is None else options.topology
    if isinstance(given, str) and given == "none":
        return mixing.NoMixing(clusters.num_clients)
    if adapted:
        if options.topology not in (None, "ring"):
            raise ValueError(
                f"topology = {options.topology!r}, but mixing among the selected is "
                "over a ring: leave topology out, or adapted."
            )
        who: Mixing = mixing.AmongSelected(clusters.num_clients)
    elif isinstance(given, str) and given in sequences.SEQUENCES:
        who = sequences.SEQUENCES[given](clusters)
    elif hasattr(given, "at"):
        who = given
    else:
        who = mixing.WithinClusters(clusters, as_kernels(given, clusters.sizes))
    return mixing.every(who, options.mix_every, options.local_steps)


def _local(
    options: Options,
    default: LocalOptimizer | optax.GradientTransformation | str | None,
) -> LocalOptimizer:
    given = options.local_optimizer
    if given is None:
        given = default
    if isinstance(given, LocalOptimizer):
        return given
    if given is None or isinstance(given, str):
        given = client.by_name(
            given or "sgd",
            options.local_lr,
            momentum=options.momentum,
            weight_decay=options.weight_decay,
        )
    elif callable(given) and not isinstance(given, optax.GradientTransformation):
        given = given(options.local_lr)
    if not isinstance(given, optax.GradientTransformation):
        raise ValueError(
            f"local_optimizer = {given!r}, but it must be a name, an optax "
            "transformation, or a function from the learning rate to one: for example "
            "optax.adam(1e-3)."
        )
    return client.from_optax(given)


def _check_transformation(name: str, value: Any) -> None:
    if not isinstance(value, optax.GradientTransformation):
        raise ValueError(
            f"{name} = {value!r}, but it must be an optax optimizer: for example "
            "optax.adam(1e-2) or afga_jax.fedamsgrad(0.01)."
        )


def _check_correction(recipe: Recipe, correction: Correction | None) -> None:
    if recipe.correction.personal and recipe.mixing.mixes:
        raise ValueError(
            "topology sets mixing, but the correction (control variates, FedDyn) needs "
            "it to be 'none': a mixed model has not moved by its client's own steps. "
            "Leave topology out, or use FedProx."
        )
    if recipe.aggregator.personal and recipe.mixing.mixes:
        raise ValueError(
            "topology sets mixing, but the aggregator needs it to be 'none': it asks "
            "how many steps of its own a client took. Leave topology out."
        )
    if recipe.server is None and not recipe.aggregator.linear:
        raise ValueError(
            "an aggregator is given, but without a server nobody uploads: use an "
            "algorithm with a server."
        )
    if recipe.server is None and correction is not None:
        raise ValueError(
            "a correction is given, but without a server there is no common start of "
            "the round that it could refer to: use an algorithm with a server."
        )


def _check_broadcast(recipe: Recipe, correction: Correction | None) -> None:
    said = f"broadcast = {recipe.broadcast!r}, but "
    if recipe.server is None:
        raise ValueError(
            f"{said}there is no server whose model could be sent: leave it out, or use "
            "an algorithm with a server."
        )
    if correction is not None or recipe.aggregator.personal:
        raise ValueError(
            f"{said}the correction or the aggregator measures how far a client has "
            "moved from the server's model, which not everybody has: take 'all', or "
            "an algorithm without one, such as 'tthf'."
        )
