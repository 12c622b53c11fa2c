"""An LSTM layer, with one weight gradient for all time steps."""

import jax
import jax.numpy as jnp
from jax import lax

from afga_jax.models.layers.boundary import transposed
from afga_jax.typing import Array


@jax.custom_vjp
def lstm(inputs: Array, kernel: Array, recurrent_kernel: Array, bias: Array) -> Array:
    """Run an LSTM over time from a zero state.

    [i, f, g, o] = x_t W + h_{t−1} U + b
    c_t = σ(f)·c_{t−1} + σ(i)·tanh(g),  h_t = σ(o)·tanh(c_t)

    Only what has to wait for the step before is in the loop: all inputs are projected
    at once, and the gradient of W and U is one matmul over all steps.

    Args:
      inputs: Sequence x, `[time, batch, features]`.
      kernel: Weights W of the inputs, `[features, 4·hidden]`.
      recurrent_kernel: Weights U of the outputs before, `[hidden, 4·hidden]`.
      bias: Bias b, `[4·hidden]`.

    Returns:
      Outputs h, `[time, batch, hidden]`. (Hochreiter and Schmidhuber, 1997; Gers et
      al., 2000.)
    """
    return _forward(inputs, kernel, recurrent_kernel, bias)[0]


def _forward(inputs, kernel, recurrent_kernel, bias):
    time, batch, _ = inputs.shape
    projected = _rows(inputs) @ kernel + bias[None]

    def step(state, drive):
        output, cell = state
        gates = drive + output @ recurrent_kernel
        enter, forget, new, leave = jnp.split(gates, 4, axis=1)
        enter, forget, leave = map(jax.nn.sigmoid, (enter, forget, leave))
        new = jnp.tanh(new)
        cell = forget * cell + enter * new
        output = leave * jnp.tanh(cell)
        return (output, cell), (output, cell, enter, forget, new, leave)

    zeros = jnp.zeros((batch, recurrent_kernel.shape[0]), inputs.dtype)
    _, trace = lax.scan(step, (zeros, zeros), projected.reshape(time, batch, -1))
    return trace[0], (inputs, kernel, recurrent_kernel, trace)


def _backward(saved, gradient):
    inputs, kernel, recurrent_kernel, (outputs, cells, *gates) = saved
    back = transposed(recurrent_kernel)

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
        return (d_gates @ back, d_cell * forget), d_gates

    zeros = jnp.zeros_like(gradient[0])
    steps = (gradient, cells, _before(cells), *gates)
    d_gates = _rows(lax.scan(step, (zeros, zeros), steps, reverse=True)[1])
    sources = jnp.concatenate([_rows(inputs), _rows(_before(outputs))], axis=1)
    d_kernels = transposed(sources) @ d_gates
    d_inputs = (d_gates @ transposed(kernel)).reshape(inputs.shape)
    d_kernel, d_recurrent = jnp.split(d_kernels, [kernel.shape[0]])
    return d_inputs, d_kernel, d_recurrent, d_gates.sum(0)


lstm.defvjp(_forward, _backward)


def _rows(sequence):
    return sequence.reshape(-1, sequence.shape[-1])


def _before(sequence):
    """What each step started from: the step before it, zeros at first."""
    return jnp.concatenate([jnp.zeros_like(sequence[:1]), sequence[:-1]])
