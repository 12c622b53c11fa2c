"""An algorithm in a world where things go wrong, and where less is sent or said.

What fails, who lies and what is done against it, noise on uploads, and compression are
the same for every algorithm: each function here takes an algorithm's recipe and what
the user chose, and gives the recipe in that condition.
"""

from afga_jax.algorithms.options import Options
from afga_jax.gossip import robust
from afga_jax.gossip.compressed import Compressed
from afga_jax.gossip.failing import Failing
from afga_jax.gossip.periods import repeated
from afga_jax.optimizers.compressors import with_error_feedback
from afga_jax.optimizers.privacy import noisy_mean
from afga_jax.population.faults import Thinned
from afga_jax.recipe import Recipe

# γ of CHOCO where none is given: small enough for all compressors that were tried.
_STEP = 0.3


def conditioned(recipe: Recipe, options: Options) -> Recipe:
    """The recipe in the hard conditions that were chosen; none is the recipe itself."""
    recipe = with_adversaries(with_faults(recipe, options), options)
    recipe = with_compression(with_privacy(recipe, options), options)
    if not recipe.mixing.mixes:
        return recipe
    return recipe._replace(mixing=repeated(recipe.mixing, options.mix_times))


def with_faults(recipe: Recipe, options: Options) -> Recipe:
    """The recipe with clients, links and uploads that fail; see `afga_jax.Faults`.

    What an algorithm does not have cannot fail: links where nobody mixes, uploads
    without a server, and nothing at all where one client holds all data.
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


def with_adversaries(recipe: Recipe, options: Options) -> Recipe:
    """The recipe with the liars and the defences that were chosen."""
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
    num_clients = recipe.clustering.num_clients
    guarded = robust.Guarded(recipe.mixing, defence, attack, num_clients)
    return recipe._replace(mixing=guarded)


def with_privacy(recipe: Recipe, options: Options) -> Recipe:
    """The recipe with clipped uploads and noise, where that was chosen."""
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


def with_compression(recipe: Recipe, options: Options) -> Recipe:
    """The recipe with uploads and gossip that are compressed."""
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
        _check_compressible(recipe)
        _check_known(recipe, "gossip is")
        how = (options.compress_gossip, options.gossip_step or _STEP)
        mixing = Compressed(recipe.mixing, *how, recipe.clustering.num_clients)
        recipe = recipe._replace(mixing=mixing)
    return recipe


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


def _check_known(recipe: Recipe, what: str) -> None:
    if recipe.broadcast != "all":
        raise ValueError(
            f"{what} to be compressed, as differences to the server's model, but with "
            f"broadcast = {recipe.broadcast!r} not everybody has it: take 'all'."
        )


def _check_compressible(recipe: Recipe) -> None:
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
