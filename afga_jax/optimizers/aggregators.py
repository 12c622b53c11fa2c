"""What the server makes of the uploaded deltas: aggregators.

An aggregator turns the deltas of the clients that upload into one, from which the
server's optimizer steps. The weighted mean is the papers'; robust statistics, uploads
that are compressed, and normalisations such as FedNova's are others. BatchNorm
statistics stay a weighted mean, whatever the aggregator.
"""

from collections.abc import Callable
from typing import NamedTuple

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


def mean() -> Aggregator:
    """The weighted mean: Δ = Σᵢ wᵢΔᵢ."""

    def apply(key, deltas, weights, state, ids):
        return weights.astype(deltas.dtype) @ deltas, state, {}

    return Aggregator(lambda params: AggregatorState(), apply, linear=True)
