"""What noise on uploads says about one client: (ε, δ), or why nothing can be said.

The guarantee is for a client's whole data, exchanged for any other's, after all rounds,
and against who sees the server's models. Each round is a Gaussian mechanism on a sample
of fixed size, drawn without replacement from each cluster, as the plan does it; the
noise is σ/2 times the sensitivity, since exchanging a client can change the sum by 2C.
The accountant is that of `dp-accounting` (Rényi divergences).
"""

import jax
import numpy as np

from afga_jax import checks
from afga_jax.algorithms import ALGORITHMS, FederatedAlgorithm


def reason_against(algorithm: FederatedAlgorithm) -> str | None:
    """Why no guarantee can be computed for an algorithm; None: it can.

    Args:
      algorithm: From `build`, with `dp_clip` and `dp_noise`.
    """
    recipe, options = algorithm.recipe, algorithm.options
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    reasons = {
        "uploads have no noise": options.dp_noise is None,
        "with gossip one client's data is in many uploads": recipe.mixing.mixes,
        "BatchNorm statistics are uploaded without noise": jax.tree.leaves(state.stats),
        "the correction's controls are made without noise": jax.tree.leaves(
            state.control
        ),
        "uploads are weighted by size": recipe.weighting != "uniform",
        "one client holds all data": recipe.pooled,
        "liars may send what they know of others": options.attack is not None,
        "faults decide who uploads": getattr(options, "faults", None) is not None,
        "how an algorithm of your own samples is not known": not _is_ours(algorithm),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def epsilon(algorithm: FederatedAlgorithm, rounds: int, delta: float) -> float:
    """ε of an algorithm with noise on its uploads after so many rounds.

    Args:
      algorithm: From `build`, with `dp_clip` and `dp_noise`.
      rounds: Number of rounds.
      delta: δ.

    Raises:
      ValueError: No guarantee can be computed, or `dp-accounting` is not installed.
    """
    checks.integer("rounds", rounds)
    checks.number("delta", delta, above=0, below=1)
    if reason := reason_against(algorithm):
        raise ValueError(f"no guarantee of privacy can be computed: {reason}.")
    plan = algorithm.plan(jax.random.key(0), 0)
    sizes = algorithm.recipe.clustering.sizes[np.asarray(plan.clusters)]
    count = plan.cycles.upload_count
    sampled = plan.cycles.upload.shape[-1] if count is None else np.asarray(count)
    # The client of which the largest share is sampled: all others know less of it.
    worst = np.argmax(np.broadcast_to(sampled / sizes, sizes.shape))
    clients = int(sizes.flat[worst])
    sample = int(np.broadcast_to(sampled, sizes.shape).flat[worst])
    try:
        import dp_accounting
    except ImportError as error:
        raise ValueError(
            "ε needs the package dp-accounting: pip install 'afga-jax[privacy]'."
        ) from error
    event = dp_accounting.GaussianDpEvent(float(algorithm.options.dp_noise or 0) / 2)
    if sample < clients:
        event = dp_accounting.SampledWithoutReplacementDpEvent(clients, sample, event)
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(event, rounds)
    return float(accountant.get_epsilon(delta))


def _is_ours(algorithm: FederatedAlgorithm) -> bool:
    made = ALGORITHMS.get(algorithm.name)
    return getattr(made, "__module__", "").startswith("afga_jax.algorithms")
