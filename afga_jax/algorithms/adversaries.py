"""Liars, and what is done against them: the same for every algorithm."""

from afga_jax.algorithms.options import Options
from afga_jax.gossip import robust
from afga_jax.recipe import Recipe


def with_adversaries(recipe: Recipe, options: Options) -> Recipe:
    """An algorithm's recipe with the liars and the defences that were chosen.

    Args:
      recipe: The algorithm.
      options: What the user chose.
    """
    attack, contain = options.attack, options.contain
    if contain is None:
        contain = attack is not None
    contain = contain and recipe.server is not None
    recipe = recipe._replace(attack=attack, contain=contain)
    _check_attack(recipe)
    defence = options.gossip_defence
    if defence is not None:
        if not recipe.mixing.mixes:
            raise ValueError(
                "a defence in gossip is given, but nobody mixes: set topology, or use "
                "an algorithm with gossip, such as 'afga'."
            )
        robust.check_neighbours(recipe.mixing, defence)
    if defence is None and (attack is None or attack.dissensus is None):
        return recipe
    guarded = robust.Guarded(
        recipe.mixing, defence, attack, recipe.clustering.num_clients
    )
    return recipe._replace(mixing=guarded)


def _check_attack(recipe: Recipe) -> None:
    attack, num_clients = recipe.attack, recipe.clustering.num_clients
    if attack is None:
        return
    if not attack.count(num_clients):
        raise ValueError(
            f"{attack.share:g} of {num_clients} clients lie, which is nobody: raise "
            "the share of liars, or leave the attack out."
        )
    if attack.upload is not None and recipe.server is None:
        raise ValueError(
            "the attack is on uploads, but without a server nobody uploads: take "
            "label_flip or dissensus, or an algorithm with a server."
        )
    if attack.dissensus is not None and not recipe.mixing.mixes:
        raise ValueError(
            "the attack is on gossip, but nobody mixes: take an attack on uploads, or "
            "an algorithm with gossip, such as 'afga'."
        )
