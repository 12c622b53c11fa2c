"""From the uploading clients to the next server model."""

import jax
import jax.numpy as jnp
import optax

from afga_jax import rows
from afga_jax.participation import CyclePlan
from afga_jax.recipe import FederatedState, Memory, Model, Recipe
from afga_jax.typing import Array, ClientData, PyTree


def server_step(
    recipe: Recipe,
    state: FederatedState,
    data: ClientData,
    part: CyclePlan,
    clusters: Array,
    models: Model,
    memories: Memory,
) -> tuple[FederatedState, dict[str, Array]]:
    """The mean change, the server's step, and the uploading clients' new controls.

    BatchNorm statistics are averaged with the same weights, outside the server's
    optimizer.

    Args:
      recipe: The algorithm.
      state: Its `params` are where everybody started.
      data: For weights by size.
      part: Says who uploads.
      clusters: The clusters of the cycle, `[groups]`.
      models: Of the uploading clients, `[uploads, ...]`.
      memories: Likewise.
    """
    num_clients = recipe.clustering.num_clients
    ids = part.upload.reshape(-1)
    weights = upload_weights(recipe, data, part, clusters)
    changes = jax.tree.map(
        lambda x, start: x - start[None],
        (models.params, models.stats),
        (state.params, state.stats),
    )
    delta, delta_stats = rows.weighted_sum(weights, changes)

    real = ids < num_clients
    finish = jax.vmap(recipe.correction.finish, in_axes=(0, 0, 0, None))
    controls = finish(memories.control, memories.steps, models.params, state.params)
    changed = jax.tree.map(jnp.subtract, controls, memories.control)
    moved = rows.weighted_sum(real / num_clients, changed)
    control = jax.tree.map(jnp.add, state.control, moved)

    direction = recipe.correction.aggregate(delta, control)
    updates, server = recipe.server.update(direction, state.server, state.params)
    state = state.replace(
        params=optax.apply_updates(state.params, updates),
        stats=jax.tree.map(jnp.add, state.stats, delta_stats),
        server=rows.with_dtypes_of(state.server, server),
        control=control,
        controls=rows.put(state.controls, ids, controls),
    )
    return state, _diagnostics(changes[0], delta, weights, real)


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
    changes: PyTree, delta: PyTree, weights: Array, real: Array
) -> dict[str, Array]:
    unmoved = [(x == 0).reshape(len(x), -1).all(1) for x in jax.tree.leaves(changes)]
    idle = jnp.stack(unmoved).all(0) & real
    return {
        "delta_norm": optax.tree.norm(delta),
        "spread": rows.spread(weights, changes, delta),
        "uploads": real.sum(dtype=jnp.int32),
        "idle_uploads": idle.sum(dtype=jnp.int32),
    }
