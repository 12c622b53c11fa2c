"""How a client steps: optimizers that may share a part of their state with neighbours.

Any optax transformation is a local optimizer. Its state is the client's own: it starts
with the round, advances only when the client computes, and is never mixed.
Decentralised adaptive methods go further and gossip a second-moment estimate beside the
model; that part is `shared`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from afga_jax import checks
from afga_jax.optimizers.server import Number
from afga_jax.typing import PyTree


class LocalOptimizer(NamedTuple):
    """A local optimizer, for one client.

    Attributes:
      init: `params -> (memory, shared)`: private state, and state that is mixed.
      update: `(gradient, memory, shared, params) -> (updates, memory, change)`, where
        `change` is what to add to `shared`.
    """

    init: Callable[[PyTree], tuple[PyTree, PyTree]]
    update: Callable[[PyTree, PyTree, PyTree, PyTree], tuple[PyTree, PyTree, PyTree]]


def from_optax(transformation: optax.GradientTransformation) -> LocalOptimizer:
    """Any optax transformation; nothing of its state is mixed."""

    def update(gradient, memory, shared, params):
        updates, memory = transformation.update(gradient, memory, params)
        return updates, memory, shared

    return LocalOptimizer(lambda params: (transformation.init(params), ()), update)


LOCAL_OPTIMIZERS = ("sgd", "momentum", "nesterov", "adam", "adamw")


def by_name(
    name: str, learning_rate: Any, *, momentum: Any = 0.5, weight_decay: Any = 0.0
) -> optax.GradientTransformation:
    """The papers' local optimizers.

    Args:
      name: `sgd` (AFGA, HA-Fed), `momentum` (FedCluster, DFedAvgM), `nesterov`
        (SlowMo), `adam` (FedCluster, with 0.9, 0.999 and 1e-8) or `adamw` (DiLoCo).
      learning_rate: η_l.
      momentum: Decay of `momentum` and `nesterov`; 0.5 in FedCluster.
      weight_decay: L2 penalty, added to the gradient; of `adamw` to the step.
    """
    checks.choice("local_optimizer", name, LOCAL_OPTIMIZERS)
    optimizer = {
        "sgd": lambda: optax.sgd(learning_rate),
        "momentum": lambda: optax.sgd(learning_rate, momentum),
        "nesterov": lambda: optax.sgd(learning_rate, momentum, nesterov=True),
        "adam": lambda: optax.adam(learning_rate),
        "adamw": lambda: optax.adamw(learning_rate, weight_decay=weight_decay),
    }[name]()
    unused = checks.is_concrete(weight_decay) and weight_decay == 0
    if unused or name == "adamw":
        return optimizer
    return optax.chain(optax.add_decayed_weights(weight_decay), optimizer)


class AMSGradMemory(NamedTuple):
    """First moment, second moment and its running maximum."""

    mean: PyTree
    square: PyTree
    largest: PyTree


def dadam(
    learning_rate: Number,
    b1: Number = 0.9,
    b2: Number = 0.99,
    b3: Number = 0.0,
    eps: Number = 1e-8,
) -> LocalOptimizer:
    """DAdam's local part: −η·m/√v̂ with v̂ ← β₃v̂ + (1−β₃)·max(v̂, v), v̂₀ = ε.

    Symbols: η `learning_rate`, β `b1` `b2` `b3`, ε `eps`. β₃ = 0 is AMSGrad. The model
    is mixed before the step. Reference: Nazari et al., DADAM, 2019.
    """

    def init(params):
        zeros = optax.tree.zeros_like(params)
        return AMSGradMemory(zeros, zeros, optax.tree.full_like(params, eps)), ()

    def update(gradient, memory, shared, params):
        mean, square = _moments(gradient, memory, b1, b2)
        largest = jax.tree.map(
            lambda old, v: b3 * old + (1 - b3) * jnp.maximum(old, v),
            memory.largest,
            square,
        )
        updates = jax.tree.map(
            lambda m, v: -learning_rate * m / jnp.sqrt(v), mean, largest
        )
        return updates, AMSGradMemory(mean, square, largest), shared

    return LocalOptimizer(init, update)


def damsgrad(
    learning_rate: Number, b1: Number = 0.9, b2: Number = 0.99, eps: Number = 1e-8
) -> LocalOptimizer:
    """D-AMSGrad's local part, whose second moment ũ is mixed beside the model.

        v̂ₜ = max(v̂ₜ₋₁, vₜ),  u = max(ũ, ε),  x += −η·m/√u,  ũ += v̂ₜ − v̂ₜ₋₁

    where x and ũ have just been mixed, and ũ₀ = v̂₀ = ε. Symbols: η `learning_rate`, ε
    `eps`. Reference: Chen et al., On the convergence of decentralized adaptive gradient
    methods, 2021.
    """

    def init(params):
        zeros = optax.tree.zeros_like(params)
        start = optax.tree.full_like(params, eps)
        return AMSGradMemory(zeros, zeros, start), start

    def update(gradient, memory, shared, params):
        mean, square = _moments(gradient, memory, b1, b2)
        largest = jax.tree.map(jnp.maximum, memory.largest, square)
        updates = jax.tree.map(
            lambda m, u: -learning_rate * m / jnp.sqrt(jnp.maximum(u, eps)),
            mean,
            shared,
        )
        change = jax.tree.map(jnp.subtract, largest, memory.largest)
        return updates, AMSGradMemory(mean, square, largest), change

    return LocalOptimizer(init, update)


def _moments(gradient, memory, b1, b2):
    mean = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, memory.mean, gradient)
    square = jax.tree.map(
        lambda v, g: b2 * v + (1 - b2) * g * g, memory.square, gradient
    )
    return mean, square
