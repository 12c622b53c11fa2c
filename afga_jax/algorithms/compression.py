"""Fewer bits: uploads and gossip that are compressed, the same for every algorithm."""

from afga_jax.algorithms.options import Options
from afga_jax.gossip.compressed import Compressed
from afga_jax.optimizers.compressors import with_error_feedback
from afga_jax.recipe import Recipe

# γ of CHOCO where none is given: small enough for all compressors that were tried.
_STEP = 0.3


def with_compression(recipe: Recipe, options: Options) -> Recipe:
    """An algorithm's recipe with what is to be compressed.

    Args:
      recipe: The algorithm.
      options: What the user chose.
    """
    if options.compress_uploads is not None:
        if recipe.server is None:
            raise ValueError(
                "uploads are to be compressed, but without a server nobody uploads: "
                "compress gossip, or use an algorithm with a server."
            )
        _check_known(recipe, "uploads are")
        aggregator = with_error_feedback(recipe.aggregator, options.compress_uploads)
        recipe = recipe._replace(aggregator=aggregator)
    if options.compress_gossip is not None:
        _check_mixing(recipe)
        _check_known(recipe, "gossip is")
        mixing = Compressed(
            recipe.mixing,
            options.compress_gossip,
            options.gossip_step or _STEP,
            recipe.clustering.num_clients,
        )
        recipe = recipe._replace(mixing=mixing)
    return recipe


def _check_known(recipe: Recipe, what: str) -> None:
    if recipe.broadcast != "all":
        raise ValueError(
            f"{what} to be compressed, as differences to the server's model, but with "
            f"broadcast = {recipe.broadcast!r} not everybody has it: take 'all'."
        )


def _check_mixing(recipe: Recipe) -> None:
    if not recipe.mixing.mixes:
        raise ValueError(
            "gossip is to be compressed, but nobody mixes: compress uploads, or use an "
            "algorithm with gossip, such as 'afga'."
        )
    if not recipe.mixing.linear:
        raise ValueError(
            "gossip is to be compressed, but it is robust or lied to, and neighbours "
            "follow a client's model by differences that all must get: leave one out."
        )
    if recipe.mixing.degrees() is None:
        raise ValueError(
            "gossip is to be compressed, but who mixes with whom changes from step to "
            "step, and neighbours follow a client's model by all its differences: "
            "take a fixed topology without links that fail, such as 'ring'."
        )
