"""Seconds of a pass over memory and of arithmetic on this machine.

Measured when first asked for, in a few milliseconds, once per process. Every figure is
rounded to a power of two, so that two processes on one machine nearly always find the
same, and with it make the same choices.
"""

import functools
import math
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

# Passes are measured over arrays between these sizes; larger ones take in proportion.
_LEAST, _MOST = 2**16, 2**24
# What a program frees, the allocator keeps up to about this size.
_KEPT = 2**25
# Each is the best of so many, so that a busy moment does not count.
_REPEATS = 4
# Short passes are repeated until they touch so much, since clocks are coarse.
_TOUCHED = 2**20
# Of a matrix product: small enough that NumPy takes one thread, as a gradient does.
_PRODUCT = {"cpu": 64, "other": 2048}


def pass_seconds(count: float) -> float:
    """Seconds of x ← x + y over arrays of so many bytes, in fast memory or slow.

    Args:
      count: Bytes of x.
    """
    size = min(max(int(count), _LEAST), _MOST)
    return count * _pass_rate(1 << (size - 1).bit_length())


def fresh_seconds(count: float) -> float:
    """Seconds that the system takes to hand out so many bytes for the first time.

    Little is handed out again by the allocator itself, at no cost.
    """
    if count < _KEPT or jax.default_backend() != "cpu":
        return 0.0
    return count * _fresh_rate()


@functools.cache
def operation_seconds() -> float:
    """Seconds of one floating-point operation in a matrix product, on one core."""
    on_cpu = jax.default_backend() == "cpu"
    width = _PRODUCT["cpu" if on_cpu else "other"]
    numpy = np if on_cpu else jnp
    x = numpy.ones((width, width), numpy.float32)
    multiply = (lambda: x @ x) if on_cpu else _finished(lambda: x @ x)
    return rounded(_best(multiply, 4) / (2 * width**3))


def rounded(value: float) -> float:
    """The nearest power of two.

    >>> rounded(0.3), rounded(5.0)
    (0.25, 4.0)
    """
    return 2.0 ** round(math.log2(value))


@functools.cache
def _pass_rate(size: int) -> float:
    """Seconds per byte at a power of two of bytes."""
    if jax.default_backend() != "cpu":
        x = jnp.ones(size // 4, jnp.float32)
        add = jax.jit(lambda x, y: x + y)
        return rounded(_best(_finished(lambda: add(x, x)), 1) / size)
    # On CPU NumPy moves memory as fast as a compiled program, and starts at once.
    here, other = np.zeros(size // 4, np.float32), np.ones(size // 4, np.float32)
    in_place = lambda: np.add(here, other, out=here)  # noqa: E731
    return rounded(_best(in_place, -(-_TOUCHED // size)) / size)


@functools.cache
def _fresh_rate() -> float:
    """Seconds per byte."""
    size = _KEPT + _KEPT // 4
    return rounded(_best(lambda: np.empty(size, np.int8).fill(1), 1) / size)


def _finished(function: Callable) -> Callable:
    """The function, waited for."""
    jax.block_until_ready(function())
    return lambda: jax.block_until_ready(function())


def _best(function: Callable, times: int) -> float:
    function()
    laps = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        for _ in range(times):
            function()
        laps.append((time.perf_counter() - start) / times)
    return min(laps)
