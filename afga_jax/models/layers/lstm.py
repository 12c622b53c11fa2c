"""The recurrence of an LSTM, with one weight gradient for all time steps."""

import jax
import jax.numpy as jnp
from jax import lax

from afga_jax.typing import Array


@jax.custom_vjp
def lstm(projected: Array, kernel: Array) -> Array:
    """Run an LSTM over time from a zero state.

    [i, f, g, o] = a_t + h_{t−1} U
    c_t = σ(f)·c_{t−1} + σ(i)·tanh(g),  h_t = σ(o)·tanh(c_t)

    The caller projects all inputs at once, a = x W + b, and the weight gradient is one
    matmul over all steps, Uᵀ: only what has to wait for the step before is in the loop.

    Args:
      projected: a, `[time, batch, 4·hidden]`.
      kernel: U, `[hidden, 4·hidden]`.

    Returns:
      h, `[time, batch, hidden]`.
    """
    return _forward(projected, kernel)[0]


def _forward(projected, kernel):
    batch, hidden = projected.shape[1], kernel.shape[0]

    def step(state, drive):
        output, cell = state
        gates = drive + output @ kernel
        enter, forget, new, leave = jnp.split(gates, 4, axis=1)
        enter, forget, leave = map(jax.nn.sigmoid, (enter, forget, leave))
        new = jnp.tanh(new)
        cell = forget * cell + enter * new
        output = leave * jnp.tanh(cell)
        return (output, cell), (output, cell, enter, forget, new, leave)

    zeros = jnp.zeros((batch, hidden), projected.dtype)
    _, trace = lax.scan(step, (zeros, zeros), projected)
    return trace[0], (kernel, trace)


def _backward(saved, gradient):
    kernel, (outputs, cells, *gates) = saved
    transposed = kernel.T
    cells_before = _shift(cells)

    def step(state, now):
        d_output, d_cell = state
        grad, cell, cell_before, enter, forget, new, leave = now
        squashed = jnp.tanh(cell)
        d_output = d_output + grad
        d_cell = d_cell + d_output * leave * (1 - squashed * squashed)
        d_gates = jnp.concatenate(
            [
                d_cell * new * enter * (1 - enter),
                d_cell * cell_before * forget * (1 - forget),
                d_cell * enter * (1 - new * new),
                d_output * squashed * leave * (1 - leave),
            ],
            axis=1,
        )
        return (d_gates @ transposed, d_cell * forget), d_gates

    zeros = jnp.zeros_like(gradient[0])
    inputs = (gradient, cells, cells_before, *gates)
    _, d_gates = lax.scan(step, (zeros, zeros), inputs, reverse=True)
    flat = d_gates.reshape(-1, d_gates.shape[-1])
    d_kernel = _shift(outputs).reshape(-1, kernel.shape[0]).T @ flat
    return d_gates, d_kernel


lstm.defvjp(_forward, _backward)


def _shift(sequence):
    """What each step started from: the step before it, zeros at first."""
    return jnp.concatenate([jnp.zeros_like(sequence[:1]), sequence[:-1]])
