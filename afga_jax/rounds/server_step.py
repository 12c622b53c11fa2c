"""From the uploading clients to the next server model."""

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from afga_jax import keys, trees
from afga_jax.gossip.base import positions
from afga_jax.optimizers.aggregators import AggregatorState
from afga_jax.optimizers.attacks import Uploads
from afga_jax.recipe import FederatedState, Memory, RoundInfo
from afga_jax.rounds.cycle import Cycle
from afga_jax.rounds.update_rows import uploaded_rows
from afga_jax.typing import Array, PyTree


def apply(
    cycle: Cycle, ids: Array, weights: Array, deltas: Array, memories: Memory
) -> tuple[FederatedState, dict[str, Any]]:
    """The aggregated delta, the server's step, and the uploading clients' new controls.

    BatchNorm statistics are averaged with the same weights, outside the aggregator and
    the server's optimizer. Where nobody uploads, the server keeps what it has.

    Args:
      cycle: Where we are; the `params` of its state are the server's model.
      ids: Ids of the clients that upload, `[uploads]`; the number of clients is nobody.
      weights: Weights of the uploads in the mean, `[uploads]`; nobody's is zero.
      deltas: The delta of each uploaded model to the server's, `[uploads, d]`:
        parameters and statistics as one vector, zero for nobody. A loop over one array
        compiles many times as fast as one over each of a model's.
      memories: What the uploading clients remember, `[uploads, ...]`.
    """
    recipe, state, num_clients = cycle.recipe, cycle.state, cycle.num_clients
    left_out: PyTree = ()
    deltas = _with_lies(cycle, ids, deltas)
    if recipe.contain:
        received = _contained(cycle, ids, weights, deltas, memories)
        ids, weights, deltas, memories, left_out = received
    start, unravel = ravel_pytree((state.params, state.stats))
    aggregate, aggregator, aggregation = _aggregate(
        cycle, ids, weights, deltas, memories.steps.count
    )
    delta, delta_stats = unravel(aggregate)

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
    new = dataclasses.replace(
        state,
        params=optax.apply_updates(state.params, updates),
        stats=jax.tree.map(jnp.add, state.stats, delta_stats),
        server=trees.with_dtypes_of(state.server, server),
        control=control,
        controls=trees.put(state.controls, ids, controls),
        aggregator=aggregator,
    )
    if recipe.contain or cycle.plan.cycles.upload_count is not None:
        arrived = real.any()
        new = jax.tree.map(lambda x, old: jnp.where(arrived, x, old), new, state)
    # Diagnostics are about parameters, which come first.
    end = _num_params(state)
    diagnostics = {
        "delta_norm": optax.tree.norm(aggregate[:end]),
        "spread": trees.spread(weights, deltas[:, :end], aggregate[:end]),
        "uploads": real.sum(dtype=jnp.int32),
        "aggregation": aggregation,
        "contained": left_out,
    }
    if recipe.contain:
        # They were sent, though nobody uses them.
        diagnostics["uploads"] += (left_out < num_clients).sum(dtype=jnp.int32)
    return new, diagnostics


def uploads(
    cycle: Cycle, holders: Array | None, tree: PyTree
) -> tuple[PyTree, Array, Array]:
    """What the uploading clients hold, with their ids and weights.

    Args:
      cycle: Where we are.
      holders: Ids in row order; None: 0, 1, …, N−1.
      tree: `[rows, ...]`.
    """
    nobody = cycle.num_clients
    ids, weights = cycle.part.upload.reshape(-1), upload_weights(cycle)
    rows = positions(holders, ids, nobody)
    return uploaded_rows(tree, rows, ids, weights, nobody=nobody, mesh=cycle.mesh)


def upload_weights(cycle: Cycle) -> Array:
    """The weight of each upload in Δ, `[uploads]`; they sum to one, padding has zero.

    Uniform: the mean over clusters of the means over their uploads. By size: pᵢ/Σⱼpⱼ
    over the uploads of a cluster. A cluster in which nobody uploads is left out; where
    nobody uploads at all, all weights are zero.
    """
    recipe, data, num_clients = cycle.recipe, cycle.data, cycle.num_clients
    part, clusters = cycle.part, cycle.plan.clusters[cycle.number]
    weight = (part.upload < num_clients).astype(float)
    if recipe.weighting == "size":
        weight *= data.sizes[jnp.minimum(part.upload, num_clients - 1)]
    total = weight.sum(1, keepdims=True)
    of_cluster = jnp.ones(len(clusters))
    if recipe.cluster_weighting == "size":
        of_cluster = jnp.asarray(recipe.clustering.sizes, float)[clusters]
    if part.upload_count is None:
        weight /= total
        of_cluster /= of_cluster.sum()
    else:
        weight /= jnp.where(total > 0, total, 1)
        of_cluster = jnp.where(total[:, 0] > 0, of_cluster, 0)
        of_cluster /= jnp.maximum(of_cluster.sum(), 1e-30)
    return (weight * of_cluster[:, None]).reshape(-1)


def idle_uploads(cycle: Cycle, reached: Array | None) -> dict[str, Array]:
    """How many uploads no gradient has a part in, for `info`.

    Args:
      cycle: Where we are.
      reached: Whether one has a part in each upload, `[uploads]`; None: in all.
    """
    ids = cycle.part.upload.reshape(-1)
    idle = jnp.zeros(ids.shape, bool)
    if reached is not None:
        idle = (ids < cycle.num_clients) & ~reached
    return {"idle_uploads": idle.sum(dtype=jnp.int32)}


def info(
    cycle: Cycle,
    sums: tuple[Array, dict[str, Array]],
    needed: Array,
    planned: Array,
    diagnostics: dict[str, Any],
) -> RoundInfo:
    """Diagnostics of a cycle, from sums over the gradients that were computed."""
    loss, metrics = jax.tree.map(lambda x: x / jnp.maximum(needed, 1), sums)
    toll, taken = cycle.part.toll, ("away", "invited", "lost")
    faults = {} if toll is None else {name: getattr(toll, name) for name in taken}
    return RoundInfo(
        loss, metrics, gradients=planned, needed=needed, faults=faults, **diagnostics
    )


def _with_lies(cycle: Cycle, ids: Array, deltas: Array) -> Array:
    """The deltas with liars' lies, which are about parameters; off unless chosen."""
    attack = cycle.recipe.attack
    if attack is None or attack.upload is None or cycle.liars is None:
        return deltas
    real = ids < cycle.num_clients
    lying = real & cycle.liars.at[ids].get(mode="fill", fill_value=False)
    end = _num_params(cycle.state)
    params = deltas[:, :end]
    place = (cycle.key, keys.Purpose.LIE, cycle.state.round, cycle.number)
    lies = attack.upload(
        keys.place_key(*place), Uploads(params, lying, real & ~lying, ids)
    )
    params = jnp.where(lying[:, None], lies.astype(params.dtype), params)
    return jnp.concatenate([params, deltas[:, end:]], axis=1)


def _contained(
    cycle: Cycle, ids: Array, weights: Array, deltas: Array, memories: Memory
) -> tuple[Array, Array, Array, Memory, Array]:
    """Leaves out uploads that are not finite; off unless chosen.

    Returns:
      The others, whose weights are scaled to sum to one again, and the ids of the
      clients that were left out, `[uploads]`, with nobody's for those that were not.
    """
    nobody = jnp.asarray(cycle.num_clients, ids.dtype)
    good = jnp.isfinite(deltas).all(1)
    left = jnp.where(good, weights, 0)
    total = left.sum()
    # Where all are good, not even rounding may change a weight.
    weights = jnp.where(good.all(), weights, left / jnp.where(total > 0, total, 1))

    def kept(x):
        return jnp.where(good.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.zeros_like(x))

    arrived = jnp.where(good, ids, nobody)
    deltas, memories = jax.tree.map(kept, (deltas, memories))
    return arrived, weights, deltas, memories, jnp.where(good, nobody, ids)


def _aggregate(
    cycle: Cycle, ids: Array, weights: Array, deltas: Array, steps: Array
) -> tuple[Array, AggregatorState, dict[str, Array]]:
    """One delta of parameters and statistics, `[d]`; see `apply` for the arguments."""
    aggregator, state = cycle.recipe.aggregator, cycle.state
    if aggregator.linear:
        return weights.astype(deltas.dtype) @ deltas, state.aggregator, {}
    end, number = _num_params(state), cycle.number
    key = keys.place_key(cycle.key, keys.Purpose.AGGREGATE, state.round, number)
    all_rows = state.aggregator.clients
    given = state.aggregator._replace(clients=cycle.rows_at(all_rows, ids))
    more = {"steps": steps} if aggregator.uses_steps else {}
    delta, new, info = aggregator.apply(
        key, deltas[:, :end], weights, given, ids, **more
    )
    server, rows = trees.with_dtypes_of((given.server, given.clients), tuple(new))
    # Statistics stay a mean, whatever the aggregator.
    stats = weights.astype(deltas.dtype) @ deltas[:, end:]
    aggregate = jnp.concatenate([delta.astype(deltas.dtype), stats])
    return aggregate, AggregatorState(server, trees.put(all_rows, ids, rows)), info


def _num_params(state: FederatedState) -> int:
    return sum(x.size for x in jax.tree.leaves(state.params))
