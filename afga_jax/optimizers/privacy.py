"""Uploads that are clipped and joined with Gaussian noise.

How much this says about one client is another question, which the sampling answers
together with the noise: see `afga_jax.training.privacy`.
"""

import jax

from afga_jax import checks
from afga_jax.optimizers.aggregators import Aggregator, AggregatorState, norm_clipping


def noisy_mean(clip: float, noise: float) -> Aggregator:
    """The mean of clipped uploads, with noise.

        Δ = Σᵢ wᵢ·clip(Δᵢ, C) + σ·C·maxᵢwᵢ·ξ, ξ ~ 𝒩(0, I)

    so that the noise is σ times as large as the most that one upload can bring in. As
    if each of n equal uploads came with noise of size σC/√n.

    Args:
      clip: C, the norm up to which an upload stays as it is.
      noise: σ, the noise multiplier.

    Reference: McMahan et al., Learning differentially private recurrent language
    models, 2018.
    """
    checks.number("clip", clip, above=0)
    checks.number("noise", noise, above=0)
    clipped = norm_clipping(clip)

    def apply(key, deltas, weights, state, ids):
        mean, state, info = clipped.apply(key, deltas, weights, state, ids)
        size = (noise * clip * weights.max()).astype(mean.dtype)
        drawn = jax.random.normal(key, mean.shape, mean.dtype)
        return mean + size * drawn, state, {**info, "noise": size}

    return Aggregator(lambda params: AggregatorState(), apply)
