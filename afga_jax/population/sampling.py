"""Who computes at each local step, who uploads, and in which order clusters take turns.

A *participation* draws one cycle: `(key, round, cycle, clusters) -> CyclePlan` for the
clusters that take part in it. An *order* says which those are: `(key, round) ->
clusters[cycles, groups]`. Together they give the `Plan` of a round. Plans hold client
ids only; they depend on the key and the round, never on gradients, so anybody can ask
for the plan of any round, before it or long after.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import checks
from afga_jax.keys import MAX_CYCLES, Purpose, place_key
from afga_jax.population.clustering import Clustering
from afga_jax.typing import Array


class Toll(NamedTuple):
    """What faults took of a cycle; see `afga_jax.population.faults`.

    Attributes:
      until: The local step before which each client leaves, `[N]`: 0 for who is away,
        the number of steps for who stays; None: everybody stays.
      away: Number of clients that would hold a model and are not there at the start.
      invited: Number of clients that were to upload and are there at the start.
      lost: Number of uploads that were sent and did not arrive.
    """

    until: Array | None
    away: Array
    invited: Array
    lost: Array


class CyclePlan(NamedTuple):
    """One cycle: from a server model to the next one.

    Groups are the clusters of the cycle. Ids equal to the number of clients are
    padding; real ids come first. A count of None says that there is no padding.

    Attributes:
      active: Ids of the clients that compute a gradient, `[steps, groups, width]`.
      active_count: How many of `active` are no padding, `[steps, groups]`.
      upload: Ids of the clients that send their delta to the server, `[groups,
        uploads]`.
      upload_count: How many of `upload` are no padding, `[groups]`.
      members: Ids of the clients that hold a model, `[rows]`; None: all clients hold
        one.
      toll: What faults took; None: nothing can fail.
    """

    active: Array
    active_count: Array | None
    upload: Array
    upload_count: Array | None
    members: Array | None
    toll: Toll | None = None

    def all_upload(self, num_clients: int) -> bool:
        """Whether it is known without the ids that all who compute upload."""
        if self.upload_count is not None:
            return False
        return self.members is not None or self.upload.size == num_clients

    def flat_active(self, num_clients: int) -> tuple[Array, Array | None]:
        """Active ids `[steps, width]`, real ones first, and their number; None: all."""
        ids = self.active.reshape(len(self.active), -1)
        if self.active_count is None:
            return ids, None
        if self.active.shape[1] > 1:
            order = jnp.argsort(ids >= num_clients, axis=1, stable=True)
            ids = jnp.take_along_axis(ids, order, axis=1)
        return ids, self.active_count.sum(1)


class Plan(NamedTuple):
    """A round: the number, the clusters of each cycle, and the cycles' plans.

    Attributes:
      round: Number of the round, from 0.
      clusters: Clusters that take part in each cycle, `[cycles, groups]`.
      cycles: A `CyclePlan` whose arrays have a leading axis of cycles.
      key_data: The run's key as plain numbers, for what is drawn beside the plan.
    """

    round: Array
    clusters: Array
    cycles: CyclePlan
    key_data: Array

    def cycle(self, number: Array | int) -> CyclePlan:
        """The plan of one cycle."""
        return jax.tree.map(lambda x: x[number], self.cycles)

    def mixing_key(self, step: Array | int, cycle: Array | int = 0) -> Array:
        """The key of what is drawn for the mixing of one local step."""
        return place_key(self.key, Purpose.MIXING, self.round, cycle, step)

    def link_key(self, step: Array | int, cycle: Array | int = 0) -> Array:
        """The key of the links that fail at one local step."""
        return link_key(self.key_data, self.round, step, cycle)

    @property
    def key(self) -> Array:
        """The run's key."""
        return _run_key(self.key_data)


class Participants(NamedTuple):
    """How many take part in any round of an algorithm, without drawing its plan.

    Attributes:
      num_clients: N.
      steps: Number of local steps of a cycle.
      active: Number of clients that compute in each group and step; None: it is drawn,
        or groups differ.
      clusters: Clusters of each cycle, `[cycles, groups]`.
      sizes: Number of clients in each of these clusters, `[cycles, groups]`.
      members: Number of clients that a cycle's plan is about, `[cycles, groups]`: those
        that upload where only they compute, otherwise all of the cluster.
      uploads: Number of clients that upload, `[cycles, groups]`.
    """

    num_clients: int
    steps: int
    active: int | None
    clusters: np.ndarray
    sizes: np.ndarray
    members: np.ndarray
    uploads: np.ndarray


Participation = Callable[[Array, Array, Array, Array], CyclePlan]
Order = Callable[[Array, Array | int], Array]


def make_plan(
    participation: Participation, order: Order, key: Array, round: Array | int
) -> Plan:
    """The plan of a round."""
    round = jnp.asarray(round, jnp.int32)
    clusters = order(key, round)
    cycles = jnp.arange(len(clusters))
    draw = jax.vmap(lambda cycle, ids: participation(key, round, cycle, ids))
    drawn = draw(cycles, clusters)
    return Plan(round, clusters, drawn, jax.random.key_data(key))


def fixed(clustering: Clustering, chosen: np.ndarray, steps: int) -> Participation:
    """The same sampled clients compute at every step and upload: S_r."""

    def draw(key, round, cycle, clusters):
        upload, count = _uploads(clustering, chosen, key, round, cycle, clusters)
        active = (_repeated(upload, steps), _repeated(count, steps))
        return CyclePlan(*active, upload, count, upload.reshape(-1))

    return draw


def resampled(clustering: Clustering, chosen: np.ndarray, steps: int) -> Participation:
    """A new sample computes at every step, S_{r,t}; another uploads, S_r."""

    def draw(key, round, cycle, clusters):
        # One draw for all samples of the round, the uploads' last: it compiles once.
        purpose = jnp.array([Purpose.ACTIVE] * steps + [Purpose.UPLOAD])
        step = jnp.array([*range(steps), 0])
        keys = jax.vmap(lambda p, t: place_key(key, p, round, cycle, t))(purpose, step)
        ids, count = _samples(clustering, chosen, keys, clusters)
        if count is None:
            return CyclePlan(ids[:-1], None, ids[-1], None, None)
        return CyclePlan(ids[:-1], count[:-1], ids[-1], count[-1], None)

    return draw


def everyone(clustering: Clustering, chosen: np.ndarray, steps: int) -> Participation:
    """All clients of the clusters compute at every step; a sample uploads."""

    def draw(key, round, cycle, clusters):
        active = jnp.asarray(clustering.table(), jnp.int32)[clusters]
        count = None
        if not clustering.is_equal:
            count = jnp.asarray(clustering.sizes, jnp.int32)[clusters]
        count, active = _repeated(count, steps), _repeated(active, steps)
        uploads = _uploads(clustering, chosen, key, round, cycle, clusters)
        return CyclePlan(active, count, *uploads, None)

    return draw


def bernoulli(
    clustering: Clustering, chosen: np.ndarray, steps: int, probability: float
) -> Participation:
    """Each client computes with the given probability, independently at each step."""

    def draw(key, round, cycle, clusters):
        members = jnp.asarray(clustering.table(), jnp.int32)[clusters]

        def at(step):
            key_at = place_key(key, Purpose.ACTIVE, round, cycle, step)
            score = jax.vmap(
                lambda i: jax.random.uniform(jax.random.fold_in(key_at, i))
            )
            scores = score(members.reshape(-1)).reshape(members.shape)
            return kept(members, scores < probability, clustering.num_clients)

        active, count = jax.vmap(at)(jnp.arange(steps))
        uploads = _uploads(clustering, chosen, key, round, cycle, clusters)
        return CyclePlan(active, count, *uploads, None)

    return draw


def limited(
    participation: Participation, client_steps: Sequence[int], num_clients: int
) -> Participation:
    """Client i computes only in the first τᵢ local steps; who uploads stays the same.

    Args:
      participation: Who would compute without the limits.
      client_steps: τ, one number for each client.
      num_clients: N.
    """
    # Padding takes no step.
    limits = np.append(client_steps, 0).astype(np.int32)

    def computes(key, round, cycle, step, ids):
        return step < jnp.asarray(limits)[ids]

    return thinned(participation, num_clients, computes=computes)


def thinned(
    participation: Participation,
    num_clients: int,
    *,
    computes: Callable[..., Array] | None = None,
    uploads: Callable[..., Array] | None = None,
) -> Participation:
    """Leaves out some of those who would take part: clients that drop out or are slow.

    What is left keeps its weights' meaning: they sum to one over who uploads, a cluster
    in which nobody does is left out, and where nobody at all does the server waits.

    Args:
      participation: Who would take part.
      num_clients: N, which is also the id of padding.
      computes: `(key, round, cycle, step, ids) -> bool`, of the shape of `ids`: whether
        clients compute at their steps, `[steps, 1, 1]`; None: all do.
      uploads: `(key, round, cycle, ids) -> bool`: whether clients upload; None: all do.
    """

    def draw(key, round, cycle, clusters):
        part = participation(key, round, cycle, clusters)
        if computes is not None:
            step = jnp.arange(len(part.active))[:, None, None]
            stays = computes(key, round, cycle, step, part.active)
            active, count = kept(part.active, stays, num_clients)
            part = part._replace(active=active, active_count=count)
        if uploads is not None:
            stays = uploads(key, round, cycle, part.upload)
            upload, count = kept(part.upload, stays, num_clients)
            part = part._replace(upload=upload, upload_count=count)
        return part

    return draw


def kept(ids: Array, stays: Array, num_clients: int) -> tuple[Array, Array]:
    """Those of some clients that stay, first, and how many they are.

    Args:
      ids: Ids of clients, `[..., width]`; `num_clients` is padding.
      stays: Whether each of them stays, of the same shape.
      num_clients: N.
    """
    stays &= ids < num_clients
    first = jnp.argsort(~stays, axis=-1, stable=True)
    ids = jnp.where(stays, ids, num_clients)
    ids = jnp.take_along_axis(ids, first, axis=-1)
    return ids, stays.sum(-1, dtype=jnp.int32)


def link_key(
    key_data: Array, round: Array, step: Array | int, cycle: Array | int = 0
) -> Array:
    """The key of the links that fail at one local step, from a plan's numbers."""
    return place_key(_run_key(key_data), Purpose.LINK_FAILURE, round, cycle, step)


def _run_key(key_data: Array) -> Array:
    # Any generator does that all engines share; a key's words say which it can be.
    impl = {2: "threefry2x32", 4: "rbg"}[key_data.shape[-1]]
    return jax.random.wrap_key_data(jnp.asarray(key_data), impl=impl)


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
    checks.integer("num_clusters", num_clusters, at_most=MAX_CYCLES)

    def order(key, round):
        if not shuffle:
            return jnp.arange(num_clusters)[:, None]
        key = place_key(key, Purpose.ORDER, round)
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
      key: Key of the draw.
      size: Bound of the numbers; may be traced.
      count: How many numbers, at most `size` and `capacity`; may be traced.
      capacity: Length of the result.
      fill: Padding behind the `count` numbers; at least `size`.

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


def _repeated(x: Array | None, count: int) -> Any:
    return None if x is None else jnp.broadcast_to(x, (count, *x.shape))


def _uploads(clustering, chosen, key, round, cycle, clusters):
    key = place_key(key, Purpose.UPLOAD, round, cycle)
    ids, count = _samples(clustering, chosen, key[None], clusters)
    return ids[0], None if count is None else count[0]


def _samples(clustering: Clustering, chosen: np.ndarray, keys: Array, clusters: Array):
    """A sample of each cluster for each key.

    Returns:
      Ids `[keys, groups, max(chosen)]`, and counts `[keys, groups]`, or None if all
      clusters give the same number.
    """
    capacity, fill = int(chosen.max()), clustering.num_clients
    counts = None
    if not (chosen == chosen[0]).all():
        counts = _repeated(jnp.asarray(chosen, jnp.int32)[clusters], len(keys))

    def of_cluster(key, cluster):
        size, count = clustering.width, capacity
        if not clustering.is_equal:
            size = jnp.asarray(clustering.sizes, jnp.int32)[cluster]
        if counts is not None:
            count = jnp.asarray(chosen, jnp.int32)[cluster]
        key = jax.random.fold_in(key, cluster)
        numbers = draw_distinct(key, size, count, capacity, fill)
        if clustering.members is None:
            return numbers
        members = jnp.asarray(clustering.members, jnp.int32)[cluster]
        return members.at[numbers].get(mode="fill", fill_value=fill)

    of_clusters = jax.vmap(of_cluster, (None, 0))
    return jax.vmap(of_clusters, (0, None))(keys, clusters), counts
