"""From the uploading clients to the next server model."""

import dataclasses
from typing import cast

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from afga_jax import trees
from afga_jax.gossip.mixing import positions
from afga_jax.recipe import FederatedState, Memory, Recipe, RoundInfo
from afga_jax.rounds.cycle import Cycle
from afga_jax.rounds.update_rows import uploaded_rows
from afga_jax.typing import Array, PyTree


def apply(
    recipe: Recipe,
    state: FederatedState,
    ids: Array,
    weights: Array,
    deltas: Array,
    memories: Memory,
) -> tuple[FederatedState, dict[str, Array]]:
    """The mean delta, the server's step, and the uploading clients' new controls.

    BatchNorm statistics are averaged with the same weights, outside the server's
    optimizer.

    Args:
      recipe: The algorithm.
      state: Its `params` are where everybody started.
      ids: Ids of the clients that upload, `[uploads]`; the number of clients is nobody.
      weights: Weights of the uploads in the mean, `[uploads]`; nobody's is zero.
      deltas: The change of each uploaded model since the start, `[uploads, d]`:
        parameters and statistics as one vector, zero for nobody. A loop over one array
        compiles many times as fast as one over each of a model's.
      memories: What the uploading clients remember, `[uploads, ...]`.
    """
    num_clients = recipe.clustering.num_clients
    start, unravel = ravel_pytree((state.params, state.stats))
    mean_delta = weights.astype(deltas.dtype) @ deltas
    delta, delta_stats = unravel(mean_delta)
    if recipe.correction.scale is not None:
        # Statistics stay a mean, whose weights sum to one.
        factors = recipe.correction.scale(weights, memories.steps.count)
        scaled = jnp.where(weights != 0, weights * factors, 0)
        mean_delta = scaled.astype(deltas.dtype) @ deltas
        delta, _ = unravel(mean_delta)

    real = ids < num_clients
    finish = jax.vmap(recipe.correction.finish, in_axes=(0, 0, 0, None))
    params = jax.vmap(lambda delta: unravel(start + delta)[0])(deltas)
    controls = finish(memories.control, memories.steps, params, state.params)
    changed = jax.tree.map(jnp.subtract, controls, memories.control)
    moved = trees.weighted_sum(real / num_clients, changed)
    control = jax.tree.map(jnp.add, state.control, moved)

    delta = recipe.correction.aggregate(delta, control)
    pseudo_gradient = jax.tree.map(jnp.negative, delta)
    optimizer = cast(optax.GradientTransformation, recipe.server)
    updates, server = optimizer.update(pseudo_gradient, state.server, state.params)
    state = dataclasses.replace(
        state,
        params=optax.apply_updates(state.params, updates),
        stats=jax.tree.map(jnp.add, state.stats, delta_stats),
        server=trees.with_dtypes_of(state.server, server),
        control=control,
        controls=trees.put(state.controls, ids, controls),
    )
    # Diagnostics are about parameters, which come first.
    end = sum(x.size for x in jax.tree.leaves(state.params))
    return state, _diagnostics(deltas[:, :end], mean_delta[:end], weights, real)


def uploads(
    cycle: Cycle, holders: Array | None, tree: PyTree
) -> tuple[PyTree, Array, Array]:
    """What the uploading clients hold, with their ids and weights.

    Args:
      cycle: Where we are.
      holders: Ids in row order; None: 0, 1, …, N−1.
      tree: `[rows, ...]`.
    """
    part, nobody = cycle.plan.cycle(cycle.number), cycle.recipe.clustering.num_clients
    ids, weights = part.upload.reshape(-1), upload_weights(cycle)
    rows = positions(holders, ids, nobody)
    return uploaded_rows(tree, rows, ids, weights, nobody=nobody, mesh=cycle.mesh)


def upload_weights(cycle: Cycle) -> Array:
    """The weight of each upload in Δ, `[uploads]`; they sum to one, padding has zero.

    Uniform: the mean over clusters of the means over their uploads. By size: pᵢ/Σⱼpⱼ
    over the uploads of a cluster.
    """
    recipe, data, plan = cycle.recipe, cycle.data, cycle.plan
    part, clusters = plan.cycle(cycle.number), plan.clusters[cycle.number]
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


def idle_uploads(cycle: Cycle, reached: Array | None) -> dict[str, Array]:
    """How many uploads no gradient has a part in, for `info`.

    Args:
      cycle: Where we are.
      reached: Whether one has a part in each upload, `[uploads]`; None: in all.
    """
    ids = cycle.plan.cycle(cycle.number).upload.reshape(-1)
    idle = jnp.zeros(ids.shape, bool)
    if reached is not None:
        idle = (ids < cycle.recipe.clustering.num_clients) & ~reached
    return {"idle_uploads": idle.sum(dtype=jnp.int32)}


def info(
    sums: tuple[Array, dict[str, Array]],
    needed: Array,
    planned: Array,
    diagnostics: dict[str, Array],
) -> RoundInfo:
    """Diagnostics from sums over the gradients that were computed."""
    mean = jax.tree.map(lambda x: x / jnp.maximum(needed, 1), sums)
    loss, metrics = mean
    return RoundInfo(loss, metrics, gradients=planned, needed=needed, **diagnostics)


def _diagnostics(
    deltas: Array, delta: Array, weights: Array, real: Array
) -> dict[str, Array]:
    return {
        "delta_norm": optax.tree.norm(delta),
        "spread": trees.spread(weights, deltas, delta),
        "uploads": real.sum(dtype=jnp.int32),
    }
