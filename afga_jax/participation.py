"""Who computes at each local step, who uploads, and in which order clusters take turns.

A *participation* draws one cycle: `(key, round, cycle, clusters) -> CyclePlan` for the
clusters that take part in it. An *order* says which those are: `(key, round) ->
clusters[cycles, groups]`. Together they give the `Plan` of a round. Plans hold client
ids only; they depend on the key and the round, never on gradients, so anybody can ask
for the plan of any round, before it or long after.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax.clustering import Clustering
from afga_jax.keys import Purpose, fold
from afga_jax.typing import Array


class CyclePlan(NamedTuple):
    """One cycle: from a server model to the next one.

    Groups are the clusters of the cycle. Ids equal to the number of clients are
    padding; real ids come first. A count of None says that there is no padding.

    Attributes:
      active: Who computes a gradient, `[steps, groups, width]`.
      active_count: How many really do, `[steps, groups]`.
      upload: Who sends its change to the server, `[groups, uploads]`.
      upload_count: How many really do, `[groups]`.
      members: The clients that hold a model, `[rows]`; None: all.
    """

    active: Array
    active_count: Array | None
    upload: Array
    upload_count: Array | None
    members: Array | None


class Plan(NamedTuple):
    """A round: the number, the clusters of each cycle, and the cycles' plans.

    Attributes:
      round: Counts from 0.
      clusters: `[cycles, groups]`.
      cycles: A `CyclePlan` whose arrays have a leading axis of cycles.
    """

    round: Array
    clusters: Array
    cycles: CyclePlan

    def cycle(self, number: Array | int) -> CyclePlan:
        """The plan of one cycle."""
        return jax.tree.map(lambda x: x[number], self.cycles)


Participation = Callable[[Array, Array, Array, Array], CyclePlan]
Order = Callable[[Array, Array], Array]


def make_plan(
    participation: Participation, order: Order, key: Array, round: Array
) -> Plan:
    """The plan of a round."""
    round = jnp.asarray(round, jnp.int32)
    clusters = order(key, round)
    cycles = jnp.arange(len(clusters))
    draw = jax.vmap(lambda cycle, ids: participation(key, round, cycle, ids))
    return Plan(round, clusters, draw(cycles, clusters))


def fixed(clustering: Clustering, chosen: np.ndarray, steps: int) -> Participation:
    """The same sampled clients compute at every step and upload: S_r."""

    def draw(key, round, cycle, clusters):
        upload, count = _sample(
            clustering, chosen, _key(key, Purpose.UPLOAD, round, cycle, 0), clusters
        )
        repeat = lambda x: None if x is None else jnp.stack([x] * steps)  # noqa: E731
        return CyclePlan(repeat(upload), repeat(count), upload, count, upload.ravel())

    return draw


def resampled(clustering: Clustering, chosen: np.ndarray, steps: int) -> Participation:
    """A new sample computes at every step, S_{r,t}; another uploads, S_r."""

    def draw(key, round, cycle, clusters):
        def at(step):
            key_at = _key(key, Purpose.ACTIVE, round, cycle, step)
            return _sample(clustering, chosen, key_at, clusters)

        active, active_count = jax.vmap(at)(jnp.arange(steps))
        upload, count = _sample(
            clustering, chosen, _key(key, Purpose.UPLOAD, round, cycle, 0), clusters
        )
        return CyclePlan(active, active_count, upload, count, None)

    return draw


def everyone(clustering: Clustering, chosen: np.ndarray, steps: int) -> Participation:
    """All clients of the clusters compute at every step; a sample uploads."""

    def draw(key, round, cycle, clusters):
        active = jnp.asarray(clustering.table(), jnp.int32)[clusters]
        count = None
        if not clustering.is_equal:
            count = jnp.asarray(clustering.sizes, jnp.int32)[clusters]
            count = jnp.broadcast_to(count, (steps, *count.shape))
        active = jnp.broadcast_to(active, (steps, *active.shape))
        upload, upload_count = _sample(
            clustering, chosen, _key(key, Purpose.UPLOAD, round, cycle, 0), clusters
        )
        return CyclePlan(active, count, upload, upload_count, None)

    return draw


def bernoulli(
    clustering: Clustering, chosen: np.ndarray, steps: int, probability: float
) -> Participation:
    """Each client computes with the given probability, independently at each step."""

    def draw(key, round, cycle, clusters):
        members = jnp.asarray(clustering.table(), jnp.int32)[clusters]
        members = members.reshape(-1)

        def at(step):
            key_at = _key(key, Purpose.ACTIVE, round, cycle, step)
            score = jax.vmap(
                lambda i: jax.random.uniform(jax.random.fold_in(key_at, i))
            )
            takes_part = (score(members) < probability) & (
                members < clustering.num_clients
            )
            first = jnp.argsort(~takes_part, stable=True)
            ids = jnp.where(takes_part, members, clustering.num_clients)[first]
            # One group for all clusters, so that real ids come first.
            return ids[None], takes_part.sum(dtype=jnp.int32)[None]

        active, count = jax.vmap(at)(jnp.arange(steps))
        upload, upload_count = _sample(
            clustering, chosen, _key(key, Purpose.UPLOAD, round, cycle, 0), clusters
        )
        return CyclePlan(active, count, upload, upload_count, None)

    return draw


def together(num_clusters: int) -> Order:
    """All clusters at once: one cycle, one server update per round."""
    return lambda key, round: jnp.arange(num_clusters)[None]


def in_turns(num_clusters: int, *, shuffle: bool = True) -> Order:
    """One cluster after another: as many cycles and server updates as clusters.

    Args:
      num_clusters: K.
      shuffle: A new order in each round, as FedCluster's theory assumes; otherwise
        0, 1, … as its algorithm box says.
    """

    def order(key, round):
        if not shuffle:
            return jnp.arange(num_clusters)[:, None]
        key = fold(key, Purpose.ORDER, round)
        return jax.random.permutation(key, num_clusters)[:, None]

    return order


def draw_distinct(
    key: Array, size: Array | int, count: Array | int, capacity: int, fill: int
) -> Array:
    """`count` distinct whole numbers below `size`, uniformly, in O(capacity²).

    Floyd's algorithm: for j = size − count, …, size − 1 draw t uniformly from 0 … j and
    take t, or j where t is taken already. Every subset is equally likely, and the cost
    does not depend on `size`; `jax.random.choice` without replacement sorts all of it.

    Args:
      key: Of the draw.
      size: May be traced.
      count: At most `size` and `capacity`; may be traced.
      capacity: Length of the result.
      fill: What stands behind the `count` numbers; at least `size`.

    Returns:
      The numbers in ascending order, `[capacity]`.
    """
    if isinstance(size, int) and isinstance(count, int) and size == count == capacity:
        return jnp.arange(size, dtype=jnp.int32)
    last = size - count + jnp.arange(capacity, dtype=jnp.int32)
    draws = jax.random.randint(key, (capacity,), 0, last + 1, jnp.int32)

    def take(slot, taken):
        number = jnp.where((taken == draws[slot]).any(), last[slot], draws[slot])
        return taken.at[slot].set(jnp.where(slot < count, number, fill))

    taken = jax.lax.fori_loop(0, capacity, take, jnp.full(capacity, fill, jnp.int32))
    return jnp.sort(taken)


def _key(key, purpose, round, cycle, step):
    return fold(key, purpose, round, cycle, step)


def _sample(clustering: Clustering, chosen: np.ndarray, key: Array, clusters: Array):
    """Ids `[groups, max(chosen)]` and counts (None if all are equal) of a sample."""
    capacity, fill = int(chosen.max()), clustering.num_clients
    counts = None if (chosen == chosen[0]).all() else jnp.asarray(chosen)[clusters]

    def of_cluster(cluster):
        size = jnp.asarray(clustering.sizes, jnp.int32)[cluster]
        count = jnp.asarray(chosen, jnp.int32)[cluster]
        if clustering.is_equal:
            size = clustering.width
        if counts is None:
            count = capacity
        key_of = jax.random.fold_in(key, cluster)
        places = draw_distinct(key_of, size, count, capacity, fill)
        if clustering.members is None:
            return places
        members = jnp.asarray(clustering.members, jnp.int32)[cluster]
        return members.at[places].get(mode="fill", fill_value=fill)

    return jax.vmap(of_cluster)(clusters), counts
