"""Batch normalisation, alone or of a GELU, with the gradient worked out by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from afga_jax.mesh import on_cpu
from afga_jax.typing import Array


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def gelu_norm(inputs: Array, scale: Array, bias: Array, epsilon: float = 1e-5):
    """Normalise h = gelu(x) = x·Φ(x) over all axes but the last.

    y = γ·(h − μ)/√(σ² + ε) + β with μ = mean(h), σ² = mean(h²) − μ².

    A CPU keeps Φ for the backward pass, gelu′(x) = Φ(x) + x·φ(x): computing the error
    function is what a GELU costs. An accelerator computes it sooner than it reads it.

    Args:
      inputs: Values x, `[..., channels]`.
      scale: Factors γ, `[channels]`.
      bias: Summands β, `[channels]`.
      epsilon: Number ε that is added to the variance.

    Returns:
      y, μ and σ². No gradient flows through μ and σ²: they feed running statistics.
    """
    return _gelu_forward(inputs, scale, bias, epsilon)[0]


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def batch_norm(inputs: Array, scale: Array, bias: Array, epsilon: float = 1e-5):
    """`gelu_norm` without the GELU: h = x."""
    return _norm_forward(inputs, scale, bias, epsilon)[0]


def _norm_forward(inputs, scale, bias, epsilon):
    hidden = _wide(flat := _flat(inputs))
    mean = hidden.mean(0)
    # Rounding can push the difference below zero where a channel is constant.
    variance = jnp.maximum((hidden * hidden).mean(0) - mean * mean, 0)
    root = lax.rsqrt(variance + epsilon)
    slope = scale * root
    normed = hidden * slope[None] + (bias - mean * slope)[None]
    outputs = normed.reshape(inputs.shape).astype(inputs.dtype), mean, variance
    return outputs, (flat, scale, mean, root)


def _norm_backward(epsilon, saved, gradients):
    """∂h = γ/√(σ² + ε) · (∂y − mean(∂y) − ĥ·mean(∂y·ĥ)), ĥ the normalised h."""
    del epsilon  # It is in `root`.
    hidden, scale, mean, root = saved
    hidden, gradient, samples = _wide(hidden), _wide(_flat(gradients[0])), len(hidden)
    d_bias = gradient.sum(0)
    d_scale = ((gradient * hidden).sum(0) - mean * d_bias) * root
    slope = scale * root
    tilt = slope * root * d_scale / samples
    offset = slope * d_bias / samples - tilt * mean
    d_hidden = slope[None] * gradient - tilt[None] * hidden - offset[None]
    d_scale, d_bias = d_scale.astype(scale.dtype), d_bias.astype(scale.dtype)
    like = gradients[0]
    return d_hidden.reshape(like.shape).astype(like.dtype), d_scale, d_bias


@partial(jax.jit, static_argnums=3)
def _gelu_forward(inputs, scale, bias, epsilon):
    flat = _flat(inputs)
    cdf = _normal_cdf(wide := _wide(flat))
    (normed, *moments), (_, *saved) = _norm_forward(wide * cdf, scale, bias, epsilon)
    kept = cdf.astype(flat.dtype) if on_cpu() else None
    normed = normed.reshape(inputs.shape).astype(inputs.dtype)
    return (normed, *moments), (flat, kept, *saved)


@partial(jax.jit, static_argnums=0)
def _gelu_backward(epsilon, saved, gradients):
    inputs, cdf, *saved = saved
    if cdf is None:
        # Behind a barrier, or the compiler would find it computed before and keep it.
        inputs = _wide(lax.optimization_barrier(inputs))
        cdf = _normal_cdf(inputs)
    inputs, cdf, gradient = _wide(inputs), _wide(cdf), gradients[0]
    d_hidden, d_scale, d_bias = _norm_backward(
        epsilon, (inputs * cdf, *saved), (_wide(_flat(gradient)),)
    )
    d_inputs = d_hidden * (cdf + inputs * _normal_pdf(inputs))
    d_inputs = d_inputs.reshape(gradient.shape).astype(gradient.dtype)
    return d_inputs, d_scale, d_bias


gelu_norm.defvjp(_gelu_forward, _gelu_backward)
batch_norm.defvjp(_norm_forward, _norm_backward)


def _wide(values):
    """In single precision at least: sums of shorter numbers lose too much."""
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


def _flat(inputs):
    return inputs.reshape(-1, inputs.shape[-1])


# NumPy's float64 scalars would turn float32 arrays into float64 ones; these do not.
def _normal_cdf(inputs):
    return 0.5 * (1 + lax.erf(inputs * float(np.sqrt(0.5))))


def _normal_pdf(inputs):
    return float(1 / np.sqrt(2 * np.pi)) * jnp.exp(-0.5 * inputs * inputs)
