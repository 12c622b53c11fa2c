"""What the server makes of the uploaded deltas: aggregators.

An aggregator turns the deltas of the clients that upload into one, from which the
server's optimizer steps. The weighted mean is the papers'; robust statistics, uploads
that are compressed, and normalisations such as FedNova's are others. BatchNorm
statistics stay a weighted mean, whatever the aggregator.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from afga_jax import checks
from afga_jax.typing import Array, PyTree


class AggregatorState(NamedTuple):
    """What an aggregator remembers from round to round.

    Attributes:
      server: State of the server's own, any pytree.
      clients: State that belongs to clients: `init` gives that of one client, the
        run's state has a row for each client, `[N, ...]`, and `apply` is given the rows
        of those who upload, `[uploads, ...]`.
    """

    server: PyTree = ()
    clients: PyTree = ()


class Aggregator(NamedTuple):
    """Makes one delta of many.

    Attributes:
      init: `params -> AggregatorState`, from the parameters as one vector, `[d]`.
      apply: `(key, deltas, weights, state, ids) -> (aggregate, state, info)`: the
        deltas of the parameters, `[uploads, d]`; their weights `[uploads]`, which sum
        to one over all clusters, with zero for padding, whose delta is zero; the state,
        with the clients' rows of the uploads; and the clients' ids. It returns the
        aggregated delta `[d]`, the state, and a dictionary of numbers for the record.
        Uploads come in any order, and padding may lie between them.
      linear: Whether the aggregate is the weighted mean itself: then it is one product
        over the rows where they lie, and `apply` is not called.
      uses_steps: Whether `apply` is also given `steps=`, the number of gradients behind
        each upload, `[uploads]`.
      upload_bytes: `d -> bytes` of what one client sends in place of its d parameters;
        None: the parameters as they are.
      personal: Whether it makes sense only for deltas of a client's own steps; then
        mixing is refused.
      least_uploads: Number of uploads in a round, or a cycle, that it is made for; an
        algorithm that has fewer is refused. Fewer may still arrive.

    >>> import jax, jax.numpy as jnp
    >>> def apply(key, deltas, weights, state, ids):
    ...     real = jnp.where(weights[:, None] > 0, deltas, jnp.nan)
    ...     return jnp.nanmedian(real, axis=0), state, {}
    >>> median = Aggregator(lambda params: AggregatorState(), apply)
    >>> deltas = jnp.array([[1.0], [2.0], [90.0], [0.0]])
    >>> weights, ids = jnp.array([1 / 3] * 3 + [0.0]), jnp.arange(4)
    >>> median.apply(jax.random.key(0), deltas, weights, AggregatorState(), ids)[0]
    Array([2.], dtype=float32)
    """

    init: Callable[[Array], AggregatorState]
    apply: Callable[..., tuple[Array, AggregatorState, dict[str, Array]]]
    linear: bool = False
    uses_steps: bool = False
    upload_bytes: Callable[[int], float] | None = None
    personal: bool = False
    least_uploads: int = 1


def mean() -> Aggregator:
    """The weighted mean: Δ = Σᵢ wᵢΔᵢ."""

    def apply(key, deltas, weights, state, ids):
        return weights.astype(deltas.dtype) @ deltas, state, {}

    return _stateless(apply, linear=True)


def normalised(momentum: Array | float = 0.0) -> Aggregator:
    """FedNova: deltas per step, so that who steps more does not pull harder.

        Δ = τ_eff·Σᵢ wᵢΔᵢ/τᵢ,  τ_eff = Σᵢ wᵢτᵢ

    τᵢ is the number of gradients behind an upload. With local momentum ρ it is the sum
    of the weights that these have in Δᵢ, ‖aᵢ‖₁ = (τ − ρ(1 − ρ^τ)/(1 − ρ))/(1 − ρ). Who
    computed nothing has no delta.

    Args:
      momentum: ρ, the decay of the clients' momentum; `[N]`: of each client.

    Reference: Wang et al., Tackling the objective inconsistency problem in
    heterogeneous federated optimization, 2020, §4.
    """

    def apply(key, deltas, weights, state, ids, *, steps):
        rho = momentum
        if jnp.ndim(rho):
            rho = jnp.asarray(rho).at[ids].get(mode="fill", fill_value=0)
        total = (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
        factors = weights @ total / jnp.where(steps > 0, total, 1)
        return _weighted(weights * factors, deltas), state, {}

    return _stateless(apply, uses_steps=True, personal=True)


def median() -> Aggregator:
    """The median of each number over the uploads, each of which counts the same.

        Δ[k] = median of Δ₁[k], …, Δₙ[k]

    Whatever fewer than half of the uploads say, each number stays between the smallest
    and the largest of the others'.

    Reference: Yin et al., Byzantine-robust distributed learning, 2018.
    """

    def apply(key, deltas, weights, state, ids):
        ordered, count = _ordered(deltas, weights)
        low, high = (count - 1) // 2, count // 2
        middle = (ordered[low] + ordered[high]) / 2
        return jnp.where(count > 0, middle, 0), state, {}

    return _stateless(apply)


def trimmed_mean(b: int) -> Aggregator:
    """The mean of each number without its b largest and b smallest.

        Δ[k] = 1/(n − 2b)·Σ of Δ₍b₊₁₎[k], …, Δ₍n₋b₎[k], sorted

    Uploads count the same. Where fewer than 2b + 1 arrive, all but one or two are left
    out, which is the median.

    Args:
      b: Number of uploads that are left out at each end, one for each liar that is
        assumed.

    Reference: Yin et al., Byzantine-robust distributed learning, 2018.
    """
    checks.integer("b", b, at_least=0)

    def apply(key, deltas, weights, state, ids):
        ordered, count = _ordered(deltas, weights)
        cut = jnp.clip(b, 0, jnp.maximum(count - 1, 0) // 2)
        place = jnp.arange(len(ordered))
        kept = (place >= cut) & (place < count - cut)
        total = jnp.where(kept[:, None], ordered, 0).sum(0)
        return total / jnp.maximum(count - 2 * cut, 1), state, {"trimmed": 2 * cut}

    return _stateless(apply, least_uploads=2 * b + 1)


def krum(f: int, multi: int = 1) -> Aggregator:
    """The upload that is closest to its neighbours, or the mean of several such.

        s(i) = Σ of the n − f − 2 smallest ‖Δᵢ − Δⱼ‖², j ≠ i
        Δ = the mean of the `multi` uploads of smallest s

    Uploads count the same.

    Args:
      f: Number of liars that is assumed, at most n − 3.
      multi: m of Multi-Krum, the number of uploads that are averaged; 1 is Krum.

    Reference: Blanchard et al., Machine learning with adversaries, 2017.
    """
    checks.integer("f", f, at_least=0)
    checks.integer("multi", multi, at_least=1)

    def apply(key, deltas, weights, state, ids):
        real, place = weights > 0, jnp.arange(len(weights))
        squares = jax.lax.map(lambda x: ((deltas - x[None]) ** 2).sum(1), deltas)
        others = real[None] & (place[:, None] != place[None])
        nearest = jnp.sort(jnp.where(others, squares, jnp.inf), axis=1)
        count = real.sum()
        taken = place < jnp.clip(count - f - 2, 1, count - 1)
        scores = jnp.where(taken[None], nearest, 0).sum(1)
        order = jnp.argsort(jnp.where(real, scores, jnp.inf))
        chosen = jnp.minimum(multi, count)
        best = jnp.where((place < chosen)[:, None], deltas[order], 0).sum(0)
        return best / jnp.maximum(chosen, 1), state, {}

    return _stateless(apply, least_uploads=max(f + 3, multi))


def centred_clipping(radius: float, iterations: int = 1) -> Aggregator:
    """The mean of what is clipped around the round before's.

        v ← v + Σᵢ wᵢ·(Δᵢ − v)·min(1, τ/‖Δᵢ − v‖), `iterations` times; Δ = v

    v begins as the Δ of the round before, in the first round as zero. In an iteration
    no upload moves v by more than wᵢτ.

    Args:
      radius: τ, the distance from v up to which an upload counts in full.
      iterations: Number of iterations in a round.

    Reference: Karimireddy, He and Jaggi, Learning from history for Byzantine robust
    optimization, 2021.
    """
    checks.number("radius", radius, above=0)
    checks.integer("iterations", iterations, at_least=1, at_most=100)

    def apply(key, deltas, weights, state, ids):
        center = state.server
        for _ in range(iterations):
            clipped, _ = _clipped(deltas - center[None], radius)
            center = center + _weighted(weights, clipped)
        return center, state._replace(server=center), {}

    return Aggregator(lambda params: AggregatorState(jnp.zeros_like(params)), apply)


def norm_clipping(radius: float) -> Aggregator:
    """The mean of uploads that are at most so long: no upload moves it more than wᵢτ.

        Δ = Σᵢ wᵢΔᵢ·min(1, τ/‖Δᵢ‖)

    Args:
      radius: τ, the norm up to which an upload stays as it is.

    Reference: Sun et al., Can you really backdoor federated learning?, 2019.
    """
    checks.number("radius", radius, above=0)

    def apply(key, deltas, weights, state, ids):
        clipped, cut = _clipped(deltas, radius)
        share = (cut & (weights > 0)).sum() / jnp.maximum((weights > 0).sum(), 1)
        return _weighted(weights, clipped), state, {"clipped": share}

    return _stateless(apply)


#: Aggregators by name.
AGGREGATORS: dict[str, Callable[..., Aggregator]] = {
    make.__name__: make
    for make in (mean, median, trimmed_mean, krum, centred_clipping, norm_clipping)
}


def _stateless(apply: Callable, **more: Any) -> Aggregator:
    return Aggregator(lambda params: AggregatorState(), apply, **more)


def _ordered(deltas: Array, weights: Array) -> tuple[Array, Array]:
    """The deltas with each number sorted, padding last, and how many are real."""
    real = weights > 0
    return jnp.sort(jnp.where(real[:, None], deltas, jnp.inf), axis=0), real.sum()


def _clipped(rows: Array, radius: float) -> tuple[Array, Array]:
    """Rows that are at most so long, and which were longer."""
    norms = jnp.linalg.norm(rows, axis=1)
    long = norms > radius
    scale = jnp.where(long, radius / jnp.where(long, norms, 1), 1)
    return rows * scale[:, None].astype(rows.dtype), long


def _weighted(weights: Array, rows: Array) -> Array:
    return weights.astype(rows.dtype) @ rows
