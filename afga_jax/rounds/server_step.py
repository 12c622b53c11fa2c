"""From the uploading clients to the next server model."""

import dataclasses
from typing import cast

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from afga_jax import rows
from afga_jax.participation import CyclePlan
from afga_jax.recipe import FederatedState, Memory, Recipe
from afga_jax.typing import Array, ClientData


def server_step(
    recipe: Recipe,
    state: FederatedState,
    ids: Array,
    weights: Array,
    changes: Array,
    memories: Memory,
) -> tuple[FederatedState, dict[str, Array]]:
    """The mean change, the server's step, and the uploading clients' new controls.

    BatchNorm statistics are averaged with the same weights, outside the server's
    optimizer.

    Args:
      recipe: The algorithm.
      state: Its `params` are where everybody started.
      ids: Who uploads, `[uploads]`; the number of clients is nobody.
      weights: In the mean, `[uploads]`; nobody's is zero.
      changes: Since the start, `[uploads, d]`: parameters and statistics as one vector,
        zero for nobody. A loop over one array compiles many times as fast as one over
        each of a model's.
      memories: Likewise, `[uploads, ...]`.
    """
    num_clients = recipe.clustering.num_clients
    start, unravel = ravel_pytree((state.params, state.stats))
    mean_change = weights.astype(changes.dtype) @ changes
    delta, delta_stats = unravel(mean_change)
    if recipe.correction.scale is not None:
        # Statistics stay a mean, whose weights sum to one.
        factors = recipe.correction.scale(weights, memories.steps.count)
        scaled = jnp.where(weights != 0, weights * factors, 0)
        mean_change = scaled.astype(changes.dtype) @ changes
        delta, _ = unravel(mean_change)

    real = ids < num_clients
    finish = jax.vmap(recipe.correction.finish, in_axes=(0, 0, 0, None))
    params = jax.vmap(lambda change: unravel(start + change)[0])(changes)
    controls = finish(memories.control, memories.steps, params, state.params)
    changed = jax.tree.map(jnp.subtract, controls, memories.control)
    moved = rows.weighted_sum(real / num_clients, changed)
    control = jax.tree.map(jnp.add, state.control, moved)

    direction = recipe.correction.aggregate(delta, control)
    optimizer = cast(optax.GradientTransformation, recipe.server)
    updates, server = optimizer.update(direction, state.server, state.params)
    state = dataclasses.replace(
        state,
        params=optax.apply_updates(state.params, updates),
        stats=jax.tree.map(jnp.add, state.stats, delta_stats),
        server=rows.with_dtypes_of(state.server, server),
        control=control,
        controls=rows.put(state.controls, ids, controls),
    )
    # Diagnostics are about parameters, which come first.
    end = sum(x.size for x in jax.tree.leaves(state.params))
    return state, _diagnostics(changes[:, :end], mean_change[:end], weights, real)


def upload_weights(
    recipe: Recipe, data: ClientData, part: CyclePlan, clusters: Array
) -> Array:
    """The weight of each upload in Δ, `[uploads]`; they sum to one, padding has zero.

    Uniform: the mean over clusters of the means over their uploads. By size: pᵢ/Σⱼpⱼ
    over the uploads of a cluster.
    """
    num_clients = recipe.clustering.num_clients
    weight = (part.upload < num_clients).astype(float)
    if recipe.weighting == "size":
        weight *= data.sizes[jnp.minimum(part.upload, num_clients - 1)]
    weight /= weight.sum(1, keepdims=True)
    of_cluster = jnp.ones(len(clusters))
    if recipe.cluster_weighting == "size":
        of_cluster = jnp.asarray(recipe.clustering.sizes, float)[clusters]
    of_cluster /= of_cluster.sum()
    return (weight * of_cluster[:, None]).reshape(-1)


def _diagnostics(
    changes: Array, delta: Array, weights: Array, real: Array
) -> dict[str, Array]:
    return {
        "delta_norm": optax.tree.norm(delta),
        "spread": rows.spread(weights, changes, delta),
        "uploads": real.sum(dtype=jnp.int32),
    }
