"""Noise on uploads, the same for every algorithm with a server."""

from afga_jax.algorithms.options import Options
from afga_jax.optimizers.privacy import noisy_mean
from afga_jax.recipe import Recipe


def with_privacy(recipe: Recipe, options: Options) -> Recipe:
    """An algorithm's recipe with clipped uploads and noise, where that was chosen.

    Args:
      recipe: The algorithm.
      options: What the user chose.
    """
    clip, noise = options.dp_clip, options.dp_noise
    if clip is None and noise is None:
        return recipe
    if clip is None or noise is None:
        raise ValueError(
            f"dp_clip = {clip} and dp_noise = {noise}, but noise is measured by the "
            "clip: give both, or none."
        )
    if recipe.server is None:
        raise ValueError(
            f"dp_noise = {noise:g}, but without a server nobody uploads: use an "
            "algorithm with a server."
        )
    if not recipe.aggregator.linear or options.compress_uploads is not None:
        raise ValueError(
            f"dp_noise = {noise:g}, but it is made for the mean of uploads as they "
            "are: leave the aggregator and compress_uploads out."
        )
    return recipe._replace(aggregator=noisy_mean(clip, noise))
