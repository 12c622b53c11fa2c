"""How the server steps: ordinary optax optimizers on the pseudo-gradient.

With Δ the aggregated delta of the uploading clients, the server's optimizer is given
the pseudo-gradient g = −Δ, as in FedOpt, and its updates are added to the model. So any
optax optimizer is a server's as it is, and these compose with all of optax: `chain`,
`clip_by_global_norm`, `add_decayed_weights`, schedules, `inject_hyperparams`.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from afga_jax import checks
from afga_jax.typing import Array, PyTree

Number: TypeAlias = Array | float
Rate: TypeAlias = Number | Callable[[Array], Number]


class MomentState(NamedTuple):
    """Moments of the pseudo-gradient.

    Attributes:
      count: Updates so far.
      mean: m, the first moment.
      square: v, the second moment.
      largest: v̂ = max of v over time; () where the method has none.
    """

    count: Array  # type: ignore[assignment]  # not a tuple's method
    mean: PyTree
    square: PyTree
    largest: PyTree


def average(learning_rate: Rate = 1.0) -> optax.GradientTransformation:
    """FedAvg's server: x −= η·g, which is x += η·Δ."""
    _check_rate(learning_rate)
    return _scaled(optax.identity(), learning_rate)


def fedavgm(
    learning_rate: Rate = 1.0, b1: Number = 0.9, *, nesterov: bool = False
) -> optax.GradientTransformation:
    """FedAvgM's server: m ← β₁m + g, x −= η·m; with `nesterov`, x −= η·(g + β₁m).

    Symbols: η `learning_rate`, β₁ `b1`. Reference: Hsu, Qi and Brown, Measuring the
    effects of non-identical data distribution for federated visual classification,
    2019; DiLoCo has Nesterov's form.
    """
    _check_rate(learning_rate)
    checks.number("b1", b1, at_least=0, below=1, fix="0.9 is usual")
    return optax.sgd(learning_rate, b1, nesterov=nesterov)


def slowmo(
    learning_rate: Rate, local_lr: Number, b1: Number = 0.7
) -> optax.GradientTransformation:
    """SlowMo's outer step: u ← βu + g/γ, x −= α·γ·u.

    With a constant γ it is `fedavgm`; where γ falls over rounds, u counts in steps and
    not in distances. Symbols: α `learning_rate`, γ `local_lr`, β `b1`.

    Args:
      learning_rate: α, 1 in the paper.
      local_lr: γ > 0, the clients' rate in this round.
      b1: β, in [0, 1).

    Reference: Wang et al., SlowMo: improving communication-efficient distributed SGD
    with slow momentum, 2020, Algorithm 1.
    """
    checks.number("local_lr", local_lr, above=0, fix="SlowMo divides by it")
    steps = optax.scale(1 / local_lr)
    return optax.chain(steps, fedavgm(learning_rate, b1), optax.scale(local_lr))


def fedamsgrad(
    learning_rate: Rate,
    b1: Number = 0.9,
    b2: Number = 0.99,
    eps: Number = 1e-8,
    *,
    eps_inside: bool = True,
    bias_correction: bool = False,
) -> optax.GradientTransformation:
    """AMSGrad on the pseudo-gradient, as the AFGA and HA-Fed papers have it.

        m ← β₁m + (1−β₁)g,  v ← β₂v + (1−β₂)g²,  v̂ ← max(v̂, v),  x −= η·m/√(v̂+ε)

    The papers write it with Δ = −g and x += η·m/√(v̂+ε): the same numbers. There is no
    bias correction: `optax.amsgrad` corrects m and v before the maximum and is another
    algorithm; with both its corrections off, `eps=0` and `eps_root=ε` it is this one.

    Symbols: η `learning_rate`, β₁ `b1`, β₂ `b2`, ε `eps`, g the gradient passed in.

    Args:
      learning_rate: A number or an optax schedule over server updates.
      b1: Decay of the first moment, in [0, 1).
      b2: Decay of the second moment, in [0, 1).
      eps: > 0; with 0, a coordinate that never moved would be 0/0.
      eps_inside: False gives m/(√v̂+ε), as HA-Fed's eq. 3.2 prints it.
      bias_correction: Divide m by 1−β₁ᵗ and v by 1−β₂ᵗ before the maximum.

    >>> server = fedamsgrad(0.1)
    >>> state = server.init(jnp.zeros(2))
    >>> updates, state = server.update(jnp.array([1.0, -2.0]), state)
    >>> print(updates.round(3))  # −0.1·0.1g/√(0.01g²+ε)
    [-0.1  0.1]

    Reference: Wang, Lin and Chen, Communication-efficient adaptive federated learning,
    2022; AFGA, Algorithm 1, lines 19–22.
    """

    def step(m, v):
        return m / jnp.sqrt(v + eps) if eps_inside else m / (jnp.sqrt(v) + eps)

    return _adaptive(
        learning_rate,
        b1,
        b2,
        eps,
        maximum=jnp.maximum,
        step=step,
        bias_correction=bias_correction,
    )


def fedams(
    learning_rate: Rate, b1: Number = 0.9, b2: Number = 0.99, eps: Number = 1e-8
) -> optax.GradientTransformation:
    """FedAMS: v̂ ← max(v̂, v, ε), x −= η·m/√v̂.

    Symbols and arguments as `fedamsgrad`. Reference: Wang, Lin and Chen, 2022.
    """
    return _adaptive(
        learning_rate,
        b1,
        b2,
        eps,
        maximum=lambda old, v: jnp.maximum(jnp.maximum(old, v), eps),
        step=lambda m, v: m / jnp.sqrt(v),
    )


def fedadam(
    learning_rate: Rate, b1: Number = 0.9, b2: Number = 0.99, eps: Number = 1e-3
) -> optax.GradientTransformation:
    """FedAdam: v ← β₂v + (1−β₂)g², x −= η·m/(√v+τ), v₀ = τ².

    Symbols: τ `eps`, the others as `fedamsgrad`. No bias correction. Reference: Reddi
    et al., Adaptive federated optimization, 2020; their τ is 1e-3, HA-Fed's 1e-8.
    """
    return _reddi(learning_rate, b1, b2, eps)


def fedyogi(
    learning_rate: Rate, b1: Number = 0.9, b2: Number = 0.99, eps: Number = 1e-3
) -> optax.GradientTransformation:
    """FedYogi: v ← v − (1−β₂)g²·sign(v−g²), the rest as `fedadam`."""

    def accumulate(v, g):
        return v - (1 - b2) * g * g * jnp.sign(v - g * g)

    return _reddi(learning_rate, b1, b2, eps, accumulate)


def fedadagrad(
    learning_rate: Rate, b1: Number = 0.0, eps: Number = 1e-3
) -> optax.GradientTransformation:
    """FedAdagrad: v ← v + g², the rest as `fedadam`; Reddi et al. use β₁ = 0."""
    return _reddi(learning_rate, b1, 0.0, eps, lambda v, g: v + g * g)


def _reddi(learning_rate, b1, b2, eps, accumulate=None) -> optax.GradientTransformation:
    """The family of Reddi et al.: v starts at τ², and the step is m/(√v+τ)."""
    return _adaptive(
        learning_rate,
        b1,
        b2,
        eps,
        accumulate=accumulate,
        step=lambda m, v: m / (jnp.sqrt(v) + eps),
        start=lambda x: jnp.full_like(x, eps) ** 2,
    )


def _adaptive(
    learning_rate: Rate,
    b1: Number,
    b2: Number,
    eps: Number,
    *,
    step: Callable[[Array, Array], Array],
    accumulate: Callable[[Array, Array], Array] | None = None,
    maximum: Callable[[Array, Array], Array] | None = None,
    start: Callable[[Array], Array] = jnp.zeros_like,
    bias_correction: bool = False,
) -> optax.GradientTransformation:
    """What all adaptive servers share.

        m ← β₁m + (1−β₁)g,  v ← accumulate(v, g),  v̂ ← maximum(v̂, v),  x −= η·step(m, v̂)

    Without a maximum, v̂ is v and is not stored; otherwise not said, v is accumulated
    as β₂v + (1−β₂)g².
    """
    _check_rate(learning_rate)
    checks.number("b1", b1, at_least=0, below=1, fix="0.9 is usual")
    checks.number("b2", b2, at_least=0, below=1, fix="0.99 is usual")
    checks.number("eps", eps, above=0, fix="the papers sweep 1e-10 ... 1e-4")

    accumulate = accumulate or (lambda v, g: b2 * v + (1 - b2) * g * g)

    def init(params):
        zeros = optax.tree.zeros_like(params)
        square = jax.tree.map(start, params)
        largest = zeros if maximum else ()
        return MomentState(jnp.zeros((), jnp.int32), zeros, square, largest)

    def update(gradient, state, params=None):
        count = state.count + 1
        mean = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mean, gradient)
        square = jax.tree.map(accumulate, state.square, gradient)
        mean_hat, largest = mean, square
        if bias_correction:
            mean_hat = optax.tree.bias_correction(mean, b1, count)
            largest = optax.tree.bias_correction(square, b2, count)
        if maximum:
            largest = jax.tree.map(maximum, state.largest, largest)
        updates = jax.tree.map(step, mean_hat, largest)
        kept = largest if maximum else ()
        return updates, MomentState(count, mean, square, kept)

    return _scaled(optax.GradientTransformation(init, update), learning_rate)


def _scaled(transformation, learning_rate) -> optax.GradientTransformation:
    return optax.chain(transformation, optax.scale_by_learning_rate(learning_rate))


def _check_rate(learning_rate) -> None:
    checks.number("learning_rate", learning_rate, at_least=0, fix="try 0.01")
