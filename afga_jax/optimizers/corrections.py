"""What a client adds to its gradient to stay close to the others.

SCAFFOLD's control variates and FedDyn's dynamic regularisation give every client a
vector of its own, its `control`, that outlives the round; the server knows their mean
over all clients. Both change in the same way: who uploads gets a new control, and the
mean moves by what they changed. So a correction is a few small functions.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from afga_jax import checks
from afga_jax.typing import Array, PyTree


class Steps(NamedTuple):
    """What a client did in the round.

    Attributes:
      gradients: Sum of its raw gradients; () for a correction that does not need it.
      count: Number of gradients it computed.
    """

    gradients: PyTree
    count: Array  # type: ignore[assignment]  # not a tuple's method


class Correction(NamedTuple):
    """A correction, for one client; x is its model, x_r the round's start.

    Attributes:
      init: `params -> control`, () for none.
      gradient: `(gradient, x, x_r, control, mean control) -> gradient`.
      finish: `(control, steps, x, x_r) -> control`, for a client that uploads.
      aggregate: `(mean delta, mean control) -> delta` for the server's step.
      needs_gradients: Whether `steps.gradients` is kept.
      personal: Whether the control is made from the client's own steps: then mixing is
        refused, after which a model has moved by what others did.
    """

    init: Callable[[PyTree], PyTree]
    gradient: Callable[[PyTree, PyTree, PyTree, PyTree, PyTree], PyTree]
    finish: Callable[[PyTree, Steps, PyTree, PyTree], PyTree]
    aggregate: Callable[[PyTree, PyTree], PyTree]
    needs_gradients: bool = False
    personal: bool = False

    def begin(self, params: PyTree) -> Steps:
        """What a client has done before its first step."""
        kept = optax.tree.zeros_like(params) if self.needs_gradients else ()
        return Steps(kept, jnp.zeros((), jnp.int32))

    def record(self, steps: Steps, gradient: PyTree) -> Steps:
        """Adds one gradient."""
        kept = steps.gradients
        if self.needs_gradients:
            kept = jax.tree.map(jnp.add, kept, gradient)
        return Steps(kept, steps.count + 1)


def none() -> Correction:
    """The plain gradient."""
    return Correction(
        init=lambda params: (),
        gradient=lambda gradient, x, start, control, mean: gradient,
        finish=lambda control, steps, x, start: control,
        aggregate=lambda delta, mean: delta,
    )


def proximal(mu: Array | float) -> Correction:
    """FedProx: gradient + μ(x − x_r).

    Args:
      mu: μ ≥ 0; 0 is FedAvg.

    Reference: Li et al., Federated optimization in heterogeneous networks, 2020.
    """
    checks.number("mu", mu, at_least=0, fix="0 is FedAvg")

    def gradient(gradient, x, start, control, mean):
        return jax.tree.map(lambda g, a, b: g + mu * (a - b), gradient, x, start)

    return none()._replace(gradient=gradient)


def control_variates() -> Correction:
    """SCAFFOLD, option II: gradient − cᵢ + c.

    The paper's cᵢ⁺ = cᵢ − c + (x_r − x)/(steps·η_l) is, for plain SGD, the mean raw
    gradient of the client's steps; that is what we store, because it is defined for any
    local optimizer. A client that took no step keeps its cᵢ.

    Reference: Karimireddy et al., SCAFFOLD, 2020.
    """

    def gradient(gradient, x, start, control, mean):
        return jax.tree.map(lambda g, own, c: g - own + c, gradient, control, mean)

    def finish(control, steps, x, start):
        stepped = steps.count > 0

        def new(own, total):
            return jnp.where(stepped, total / jnp.maximum(steps.count, 1), own)

        return jax.tree.map(new, control, steps.gradients)

    return none()._replace(
        init=optax.tree.zeros_like,
        gradient=gradient,
        finish=finish,
        needs_gradients=True,
        personal=True,
    )


def dynamic(alpha: Array | float) -> Correction:
    """FedDyn: gradient + α(x − x_r) − gᵢ.

    gᵢ ← gᵢ − α(xᵢ − x_r); with h the mean of all gᵢ, the server takes mean xᵢ − h/α.

    Args:
      alpha: α > 0.

    Reference: Acar et al., Federated learning based on dynamic regularization, 2021.
    """
    checks.number("feddyn_alpha", alpha, above=0, fix="FedAvg is the limit without it")

    def gradient(gradient, x, start, control, mean):
        new = lambda g, a, b, own: g + alpha * (a - b) - own  # noqa: E731
        return jax.tree.map(new, gradient, x, start, control)

    def finish(control, steps, x, start):
        return jax.tree.map(lambda own, a, b: own - alpha * (a - b), control, x, start)

    def aggregate(delta, mean):
        return jax.tree.map(lambda d, h: d - h / alpha, delta, mean)

    init = optax.tree.zeros_like
    return Correction(init, gradient, finish, aggregate, personal=True)
