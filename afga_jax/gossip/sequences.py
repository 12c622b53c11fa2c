"""Graphs that change from step to step: a fixed sequence, or drawn anew.

A sequence mixes everybody exactly in a few steps of which each is cheap: its product
W_p ⋯ W_1 is 11ᵀ/n, though no single graph is connected. Steps are counted over rounds,
so a sequence goes on where the last round left it.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # `scipy.sparse` is imported where it is used first

from afga_jax import checks
from afga_jax.gossip import topology
from afga_jax.gossip.base import Contraction, Mixing
from afga_jax.gossip.kernels import Average, Kernel, Matrix, Shifts
from afga_jax.gossip.messages import StepMessages
from afga_jax.gossip.mixing import RandomMixing, WithinClusters
from afga_jax.gossip.operators import Operator, by_blocks
from afga_jax.mesh import blocks_of
from afga_jax.population.clustering import Clustering
from afga_jax.population.sampling import draw_distinct

# Random graphs from which ρ is estimated.
_DRAWS = 64


@dataclass(frozen=True, eq=False)
class Periodic(Mixing):
    """Several mixings one after another, over and over.

    Attributes:
      phases: The mixing of each step of a period; all are of the same clustering.
    """

    phases: tuple[WithinClusters, ...]

    def rows(self, plan, cycle=0):
        return self.phases[0].rows(plan, cycle)

    @property
    def symmetric(self):
        return all(mixing.symmetric for mixing in self.phases)

    def fixed_rows(self):
        return self.phases[0].fixed_rows()

    def holders(self, participants):
        return self.phases[0].holders(participants)

    def at(self, plan, step, cycle=0):
        operators = [mixing.at(plan, step, cycle) for mixing in self.phases]
        return self._in_turn(operators, plan, step)

    def over(self, links, plan, step, cycle=0):
        operators = [mixing.over(links, plan, step, cycle) for mixing in self.phases]
        return self._in_turn(operators, plan, step)

    def _in_turn(self, operators, plan, step) -> Operator:
        phase = self._phase(plan.round, plan.cycles.active.shape[1], step)

        def apply(tree, mesh=None):
            mix = lambda operator: lambda tree: operator.apply(tree, mesh)  # noqa: E731
            return jax.lax.switch(phase, [mix(o) for o in operators], tree)

        def matrix():
            return jnp.stack([operator.matrix() for operator in operators])[phase]

        return Operator(apply, matrix)

    def spectral_gap(self):
        """ρ of a whole period, the largest over clusters: ‖W_p ⋯ W_1 − 11ᵀ/n‖₂."""
        clusters = zip(*(mixing.kernels for mixing in self.phases), strict=True)
        return max(
            topology.mean_square_gap([kernel.matrix() for kernel in sequence], 0.0)
            for sequence in set(clusters)
        )

    def contraction(self, link_failure=0.0, every=1):
        # Steps are counted, not mixings: every second step of an even period sees only
        # half of its graphs.
        period = len(self.phases)
        steps = range(every - 1, math.lcm(period, every), every)
        seen = [self.phases[step % period].kernels for step in steps]
        gaps = [
            topology.mean_square_gap([k.matrix() for k in kernels], link_failure)
            for kernels in set(zip(*seen, strict=True))
        ]
        return Contraction(max(gaps), every * len(seen))

    def messages(self, participants):
        each = [mixing.messages(participants) for mixing in self.phases]

        def at(round, step, plan):
            phase = self._phase(round, participants.steps, step)
            return each[phase].at(round, step, plan)

        return StepMessages(at)

    def sparse(self, plan, step, cycle, ids):
        steps = plan.cycles.active.shape[1]
        phase = int(self._phase(plan.round, steps, step))
        return self.phases[phase].sparse(plan, step, cycle, ids)

    def matrix_entries(self, num_rows):
        return sum(mixing.matrix_entries(num_rows) for mixing in self.phases)

    def _phase(self, round, steps, step):
        return (round * steps + step) % len(self.phases)


@dataclass(frozen=True)
class Matchings(Mixing):
    """At every step each client averages with one random other of its cluster.

    Pairs are drawn from the run's key, so every seed, round and step has its own; in a
    cluster of an odd number one client is left out.

    Attributes:
      clustering: Who may be paired with whom.
    """

    clustering: Clustering

    def rows(self, plan, cycle=0):
        return None

    def at(self, plan, step, cycle=0):
        return self._pairs(self.partners(plan, step, cycle))

    def over(self, links, plan, step, cycle=0):
        partner = self.partners(plan, step, cycle)
        clients = jnp.arange(len(partner), dtype=partner.dtype)
        up = links.up(clients, partner)
        return self._pairs(jnp.where(up, partner, clients))

    def _pairs(self, partner) -> Operator:
        def apply(tree, mesh=None):
            if mesh is None or blocks_of(mesh) == 1:
                return jax.tree.map(lambda x: x + (x[partner] - x) * 0.5, tree)
            return by_blocks(_pair_weights, partner, tree, mesh)

        clients = jnp.arange(len(partner))
        return Operator(apply, lambda: _pair_weights(partner, clients, clients))

    def partners(self, plan, step, cycle=0):
        """The client with which each averages, `[N]`; its own number for nobody."""
        table = jnp.asarray(self.clustering.table(), jnp.int32)[plan.clusters[cycle]]
        num_clients, (clusters, width) = self.clustering.num_clients, table.shape
        draws = jax.random.uniform(plan.mixing_key(step, cycle), (num_clients,))
        # Padding is nobody's: it comes last and drops out.
        order = jnp.argsort(jnp.append(draws, 2.0)[table], axis=1)
        drawn = jnp.take_along_axis(table, order, axis=1)
        drawn = jnp.pad(drawn, ((0, 0), (0, width % 2)), constant_values=num_clients)
        pairs = drawn.reshape(clusters, -1, 2)
        alone = pairs[..., 1:] >= num_clients
        others = jnp.where(alone, pairs, pairs[..., ::-1])
        clients = jnp.arange(num_clients, dtype=jnp.int32)
        return clients.at[pairs].set(others, mode="drop")

    def spectral_gap(self):
        return None

    def contraction(self, link_failure=0.0, every=1):
        """W is a projection, so E[WᵀW] = E[W], which is the same for all pairs.

        ρ² = (n − 2)/(2(n − 1)) for an even number of clients, 1/2 for an odd one.
        """
        sizes = self.clustering.sizes[self.clustering.sizes > 1]
        gained = (sizes - sizes % 2) / (2 * (sizes - 1))
        squared = 1 - (1 - link_failure) * gained
        return Contraction(math.sqrt(squared.max(initial=0)), every)

    def sparse(self, plan, step, cycle, ids):
        partner = np.asarray(self.partners(plan, step, cycle))
        clients = np.arange(len(partner))
        half = np.full(len(partner), 0.5)
        entries = (
            np.concatenate([half, half]),
            (np.tile(clients, 2), np.concatenate([clients, partner])),
        )
        return scipy.sparse.csr_array(entries, shape=(len(partner),) * 2)

    def matrix_entries(self, num_rows):
        return 2 * num_rows


def one_peer_exponential(clustering: Clustering) -> Periodic:
    """Each client averages with the one 1, 2, 4, … behind it, one distance a step.

    W = (I + P^(2ᵏ))/2 with the shift P: one message for each client and step. In a
    cluster of 2ᵈ clients d steps are an exact average.

    Reference: Ying et al., Exponential graph is provably efficient for decentralized
    deep training, 2021.
    """

    def kernels(n: int) -> list[Kernel]:
        if n == 1:
            return [Average(1)]
        behind = topology.exponential_offsets(n)[1:]
        return [
            Shifts((n,), ((0,), (k,)), functools.partial(_half_behind, k))
            for k in behind
        ]

    return periodic(clustering, kernels)


def base_graph(clustering: Clustering, *, peers: int = 1) -> Periodic:
    """An exact average of any number of clients in O(log n) steps of few peers.

    n = Σ aₗ(k+1)^pₗ: clients are split into sets of these sizes, which average among
    themselves over complete graphs of at most k+1. Then, one set after another, a set
    exchanges with all smaller ones along a matching, with the weight that gives its
    sum the overall mean, and averages once more. With n = (k+1)^p this is the
    hyper-hypercube.

    Args:
      clustering: Each cluster has a sequence of its own.
      peers: k, the most clients that one hears in a step.

    Reference: Takezawa et al., Beyond exponential graph: communication-efficient
    topologies for decentralized learning via finite-time convergence, 2023; its simple
    form, with one exchange for each pair of sets.
    """
    checks.integer("peers", peers)

    def kernels(n: int) -> list[Kernel]:
        return [Matrix(weights) for weights in base_matrices(n, peers)]

    return periodic(clustering, kernels)


def matchings(clustering: Clustering) -> Matchings:
    """A random matching at every step; see `Matchings`."""
    return Matchings(clustering)


@dataclass(frozen=True, eq=False)
class RandomGraphs(RandomMixing):
    """A random matrix of each cluster at every step.

    Attributes:
      clustering: Who belongs together.
      symmetric: Whether W = Wᵀ.
    """

    clustering: Clustering
    symmetric: bool = True

    def contraction(self, link_failure=0.0, every=1):
        """From the same draws every time; ρ is a little above what more would give."""
        labels = self.clustering.labels()
        together = labels[:, None] == labels[None]
        average = together / together.sum(1)
        apart, draw = np.eye(len(labels)) - average, jax.jit(self.matrix_at)
        squared = np.zeros(together.shape)
        for key in jax.random.split(jax.random.key(0), _DRAWS):
            matrix = np.asarray(draw(key), np.float64)
            squared += topology.mean_square(matrix, link_failure, apart) / _DRAWS
        return Contraction(math.sqrt(np.linalg.norm(squared, 2)), every)


def erdos_renyi(clustering: Clustering, *, density: float | None = None) -> Mixing:
    """A new random graph with Metropolis weights at every step.

    Args:
      clustering: Edges are drawn within clusters only.
      density: Probability of each edge; None: 2·ln(n)/n of the largest cluster, at most
        1, which connects most draws.
    """
    largest = int(clustering.sizes.max())
    if density is None:
        density = min(1.0, 2 * math.log(largest) / largest) if largest > 1 else 1.0
    checks.number("density", density, above=0, at_most=1)
    labels = clustering.labels()
    together = labels[:, None] == labels[None]

    def matrix_at(key):
        draws = jnp.triu(jax.random.uniform(key, together.shape), 1)
        edges = (draws > 1 - density) & together
        edges = edges | edges.T
        degree = edges.sum(1)
        weights = edges / (1.0 + jnp.maximum(degree[:, None], degree[None]))
        return weights + jnp.diag(1 - weights.sum(1))

    return RandomGraphs(matrix_at, clustering)


def epidemic(clustering: Clustering, *, peers: int | None = None) -> Mixing:
    """Each client sends to random others, and averages what it receives with its own.

    How many a client hears is left to chance, so W's rows sum to one and its columns do
    not: the mean of all models moves, though not in expectation.

    Args:
      clustering: Clients send within their cluster only.
      peers: s, to how many each sends, or to all where its cluster has no more; None:
        ⌈log₂ n⌉ of the largest cluster.

    Reference: De Vos et al., Epidemic learning: boosting decentralized learning with
    randomized communication, 2023; its variant EL-Local.
    """
    largest, num_clients = int(clustering.sizes.max()), clustering.num_clients
    most = max(largest - 1, 1)
    if peers is None:
        peers = min(max(math.ceil(math.log2(largest)), 1), most)
    checks.integer("peers", peers, at_most=most)
    labels, table = clustering.labels(), clustering.table()
    others = clustering.sizes[labels].astype(np.int32) - 1
    place = (table[labels] == np.arange(num_clients)[:, None]).argmax(1)

    def matrix_at(key):
        def sends_to(client):
            count = jnp.asarray(others)[client]
            own, number = jax.random.fold_in(key, client), jnp.minimum(peers, count)
            drawn = draw_distinct(own, count, number, peers, table.shape[1])
            drawn += drawn >= jnp.asarray(place)[client]  # not to itself
            members = jnp.asarray(table, jnp.int32)[jnp.asarray(labels)[client]]
            return members.at[drawn].get(mode="fill", fill_value=num_clients)

        clients = jnp.arange(num_clients)
        to = jax.vmap(sends_to)(clients)
        heard = jnp.eye(num_clients).at[to, clients[:, None]].set(1, mode="drop")
        return heard / heard.sum(1, keepdims=True)

    return RandomGraphs(matrix_at, clustering, symmetric=False)


def periodic(
    clustering: Clustering, kernels: Callable[[int], Sequence[Kernel]]
) -> Periodic:
    """A sequence of kernels in each cluster.

    Args:
      clustering: Who belongs together.
      kernels: From the number of clients to the kernels of a period; where clusters
        have periods of other lengths, the shorter ones begin again.
    """
    by_size = {int(n): list(kernels(int(n))) for n in np.unique(clustering.sizes)}
    sequences = [by_size[int(n)] for n in clustering.sizes]
    steps = range(max(map(len, sequences)))
    each = [[sequence[t % len(sequence)] for sequence in sequences] for t in steps]
    return Periodic(tuple(WithinClusters(clustering, kernels) for kernels in each))


def base_matrices(n: int, peers: int = 1) -> list[np.ndarray]:
    """The matrices of `base_graph` for n clients, whose product is 11ᵀ/n."""
    sizes = _digits(n, peers + 1)
    inner = [_hyper_hypercube(size, peers + 1) for size in sizes]
    first = max(map(len, inner))
    if len(sizes) == 1:
        return inner[0] or [np.eye(n)]
    length = max(first + j + len(steps) for j, steps in enumerate(inner, 1))
    matrices = [np.eye(n) for _ in range(length)]
    start = 0
    for j, (size, steps) in enumerate(zip(sizes, inner, strict=True)):
        inside = slice(start, start + size)
        for begin in (0, first + j + 1):
            for t, weights in enumerate(steps, begin):
                matrices[t][inside, inside] = weights
        if start + size < n:
            _exchange(matrices[first + j], start, size)
        start += size
    return matrices


def _digits(n: int, base: int) -> list[int]:
    """N as a sum of aₗ·baseᵖₗ with 0 < aₗ < base, the largest first."""
    powers = [1]
    while powers[-1] * base <= n:
        powers.append(powers[-1] * base)
    return [part for p in reversed(powers) if (part := n % (p * base) // p * p)]


def _exchange(matrix: np.ndarray, start: int, size: int) -> None:
    """A set and all behind it meet in pairs, so that the set's mean is that of all.

    All have the mean A of their set. With weight w the set's sum moves by
    w·Σ(B − A) over those behind it, the overall mean is Σ(B − A)/(size + others) away.
    """
    n = len(matrix)
    others = np.arange(start + size, n)
    own = start + np.arange(len(others))
    weight = size / (n - start)
    matrix[own, own] = matrix[others, others] = 1 - weight
    matrix[own, others] = matrix[others, own] = weight


def _hyper_hypercube(n: int, base: int) -> list[np.ndarray]:
    """Complete graphs of at most `base` clients, one digit of their numbers a step."""
    factors, rest = [], n
    while rest > 1:
        factor = max(d for d in range(1, base + 1) if rest % d == 0)
        factors.append(factor)
        rest //= factor
    matrices, stride = [], 1
    clients = np.arange(n)
    for factor in factors:
        digit = clients // stride % factor
        group = clients - digit * stride
        matrices.append((group[:, None] == group[None]) / factor)
        stride *= factor
    return matrices


def _half_behind(behind: int, n: int) -> np.ndarray:
    return (np.eye(n) + np.roll(np.eye(n), behind, axis=0)) / 2


def _pair_weights(partner, to, source):
    own = (to[:, None] == source[None]) * 0.5
    return own + (partner[to][:, None] == source[None]) * 0.5


#: Mixings that change with the step, by the names that `topology` takes; a function of
#: the clustering. Add your own.
SEQUENCES: dict[str, Callable[[Clustering], Mixing]] = {
    "one_peer_exponential": one_peer_exponential,
    "base_graph": base_graph,
    "matchings": matchings,
    "erdos_renyi": erdos_renyi,
    "epidemic": epidemic,
}
