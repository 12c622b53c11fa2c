"""Initial values, as PyTorch draws them: uniform in ±1/√(fan in).

The parameters of a model are cut from one draw. A draw for each of them would be as
good, but XLA on CPU takes a tenth of a second to compile a draw.
"""

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from afga_jax.typing import Array, PyTree

Take = Callable[[tuple[int, ...]], Array]

# What cuts a parameter from the model's draw; None: each draws its own.
_TAKE = contextvars.ContextVar[Take | None]("take", default=None)


def bounded(fan_in: int) -> Callable[..., Array]:
    """Initial values uniform in ±1/√(fan in), for `flax.linen.Module.param`."""

    def init(key, shape, dtype=jnp.float32):
        take, bound = _TAKE.get(), fan_in**-0.5
        if take is None:
            return jax.random.uniform(key, shape, dtype, -bound, bound)
        return (bound * take(shape)).astype(dtype)

    return init


def from_one_draw(init: Callable[[Array], PyTree]) -> Callable[[Array], PyTree]:
    """The same initial variables, up to the draw, with one draw for all `bounded`.

    Args:
      init: From a key to a model's variables; called twice, first for the sizes.
    """

    def at_once(key: Array) -> PyTree:
        sizes: list[int] = []

        def count(shape):
            sizes.append(math.prod(shape))
            return jnp.zeros(shape, jnp.float32)

        with _taking(count):
            # A new function each time: shapes of a known one are not traced again.
            jax.eval_shape(lambda key: init(key), key)
        ends = iter([sum(sizes[: place + 1]) for place in range(len(sizes))])
        numbers = jax.random.uniform(key, (sum(sizes),), jnp.float32, -1.0, 1.0)

        def cut(shape):
            end = next(ends)
            return numbers[end - math.prod(shape) : end].reshape(shape)

        with _taking(cut):
            return init(key)

    return at_once


@contextlib.contextmanager
def _taking(take: Take) -> Iterator[None]:
    token = _TAKE.set(take)
    try:
        yield
    finally:
        _TAKE.reset(token)
