"""An algorithm in a world where things go wrong."""

from afga_jax.algorithms.options import Options
from afga_jax.gossip.failing import Failing
from afga_jax.population.faults import Thinned
from afga_jax.recipe import Recipe


def with_faults(recipe: Recipe, options: Options) -> Recipe:
    """The recipe with clients, links and uploads that fail; see `afga_jax.Faults`.

    What an algorithm does not have cannot fail: links where nobody mixes, uploads
    without a server, and nothing at all where one client holds all data.

    Args:
      recipe: The algorithm.
      options: What it was made from; `faults` is read.
    """
    faults = options.faults
    if faults is None or recipe.pooled:
        return recipe
    if faults.straggler and options.local_steps < 2:
        raise ValueError(
            f"straggler = {faults.straggler:g}, but with local_steps = 1 nobody can "
            "take fewer steps: raise local_steps, or leave straggler out."
        )
    if faults.availability is not None:
        faults.availability.check(recipe.clustering)
    mixing, num_clients = recipe.mixing, recipe.clustering.num_clients
    if mixing.mixes and (faults.link_failure or faults.leave):
        if not mixing.symmetric:
            raise ValueError(
                "faults let links fail, but the weights of this topology are not "
                "symmetric, and what a link loses could not return to both ends: take "
                "'ring', 'torus' or another graph whose links go both ways, or pass "
                "the matrix (W + W.T) / 2."
            )
        mixing = Failing(mixing, num_clients, faults.link_failure)
    participation = recipe.participation
    if faults.thin:
        participation = Thinned(participation, faults, recipe.clustering)
    return recipe._replace(mixing=mixing, participation=participation)
