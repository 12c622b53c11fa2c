"""A run: data, task, algorithm, and the facts.

Built from its configuration alone, or from parts of one's own.
"""

import functools
import importlib.util
import math
import warnings
import zlib
from typing import Any, NamedTuple

import jax

from afga_jax import data
from afga_jax.algorithms import ALGORITHMS, FederatedAlgorithm, build
from afga_jax.runs.config import Config
from afga_jax.runs.experiment.choices import options_of
from afga_jax.runs.experiment.parts import config_of, content
from afga_jax.runs.experiment.theory import conditions
from afga_jax.runs.experiment.workload import Workload, make_workload, model_of
from afga_jax.training import privacy
from afga_jax.training.evaluate import evaluate
from afga_jax.typing import Batch, ClientData, Task

__all__ = ["Experiment", "checksum", "from_config", "from_parts", "model_of"]


# What `load` needs to make a command's model again.
_OF_MODELS = ("input_shape", "input_dtype", "classes")


class Experiment(NamedTuple):
    """All that a run needs.

    Attributes:
      config: The run's configuration.
      task: What is minimised.
      algorithm: How it is minimised.
      clients: The clients' data.
      test: What the model is judged by.
      facts: What the record keeps, as JSON has it: `dataset`, `stand_in`, `partition`,
        `parameters`, `statistics`, `rho`, `gradients_per_round` (at most), `theory`,
        `input_shape`, `input_dtype` and `classes` (None: a problem without a model),
        `label_names` of images, `availability` (digest of a file of who is there),
        `minimum` where it is known, and `notes`, lines for the user.
    """

    config: Config
    task: Task
    algorithm: FederatedAlgorithm
    clients: ClientData
    test: Batch
    facts: dict[str, Any]


def from_config(config: Config, access: data.Access | None = None) -> Experiment:
    """Builds a run; all that is wrong with it is said here.

    Args:
      config: Complete, as `settings.resolve` gives it.
      access: Where data may come from; None: what the configuration says.

    Returns:
      The experiment.

    Raises:
      ValueError: Values do not fit together; DataError: the data cannot be had.
    """
    _check_complete(config)
    access = access or data.Access(config.data_dir, config.cache_dir, config.offline)
    workload = make_workload(config, access)
    _check_measured(config, workload)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options = options_of(config, workload)
        algorithm = build(
            config.algo, workload.task, num_clients=config.num_clients, **options
        )
    facts = _facts(config, workload, algorithm)
    facts["notes"] = [str(warning.message) for warning in caught]
    facts["notes"] += _everybody_computes(algorithm) + _without_guarantee(algorithm)
    faults = algorithm.options.faults
    if faults is not None and faults.availability is not None:
        facts["availability"] = faults.availability.digest
    return Experiment(
        config, workload.task, algorithm, workload.clients, workload.test, facts
    )


def from_parts(
    algorithm: FederatedAlgorithm, clients: ClientData, test: Batch, **settings: Any
) -> Experiment:
    """A run of a model, data and an algorithm of one's own.

    Args:
      algorithm: A built algorithm.
      clients: The clients' data.
      test: What the model is judged by.
      **settings: What else was chosen, by the names of `Config`; `dataset` names the
        data.

    Returns:
      The experiment; its configuration describes the parts (`experiment.parts`).
    """
    config = config_of(algorithm, clients, test, checksum(clients, test), **settings)
    workload = Workload(algorithm.task, clients, test, facts=dict.fromkeys(_OF_MODELS))
    _check_measured(config, workload)
    facts = _facts(config, workload, algorithm)
    facts["notes"] = _everybody_computes(algorithm)
    return Experiment(config, algorithm.task, algorithm, clients, test, facts)


def checksum(clients: ClientData, test: Batch) -> int:
    """Checksum of all arrays that the clients hold and the model is judged by."""
    total = 0
    for leaf in jax.tree.leaves((clients, test)):
        for part in content(leaf):
            total = zlib.crc32(part, total)
    return total


def most_active(algorithm: FederatedAlgorithm) -> tuple[int, ...]:
    """Cycles, steps, clusters and the most clients that compute in one of them."""
    return jax.eval_shape(algorithm.plan, jax.random.key(0), 0).cycles.active.shape


def _facts(config: Config, workload: Workload, algorithm: FederatedAlgorithm) -> dict:
    params, stats = jax.eval_shape(workload.task.init, jax.random.key(0))
    count = lambda tree: sum(x.size for x in jax.tree.leaves(tree))  # noqa: E731
    theory: dict[str, Any] = {}
    if config.algo in ALGORITHMS:  # else a function of one's own
        theory = conditions(config.algo, algorithm, config.rounds)
    return {
        "dataset": config.dataset,
        "stand_in": bool(config.stand_in and config.dataset == "digits"),
        "partition": _partition(workload),
        "parameters": count(params),
        "statistics": count(stats),
        "rho": algorithm.recipe.mixing.spectral_gap(),
        "gradients_per_round": math.prod(most_active(algorithm)),
        "theory": theory,
        **workload.facts,
    }


def _everybody_computes(algorithm: FederatedAlgorithm) -> list[str]:
    options = algorithm.options
    share = options.participation * options.num_clients
    sampled = options.active or max(1, round(share))
    computing = math.prod(most_active(algorithm)[2:])
    if computing < 2 * sampled:
        return []
    return [
        f"up to all {computing} clients compute at every step, where the sampling "
        f"algorithms have {sampled}: a round costs up to {computing / sampled:.3g} "
        "times as many gradients."
    ]


def _without_guarantee(algorithm: FederatedAlgorithm) -> list[str]:
    """Says so where noise on uploads comes with no (ε, δ)."""
    if algorithm.options.dp_noise is None:
        return []
    reason = privacy.reason_against(algorithm)
    if reason is None and importlib.util.find_spec("dp_accounting") is None:
        reason = "it needs the package dp-accounting, pip install 'afga-jax[privacy]'"
    return [] if reason is None else [f"no guarantee of privacy is computed: {reason}."]


def _partition(workload: Workload) -> dict[str, Any] | None:
    if workload.assignment is None:
        return None
    summary = data.partition.summary(workload.assignment, workload.labels)
    names = ("smallest", "mean", "largest", "classes_per_client", "commonest_share")
    about = {name: getattr(summary, name) for name in names}
    return {"clients": summary.num_clients, **about}


def _check_measured(config: Config, workload: Workload) -> None:
    """Refuses what is to be measured, or waited for, where it does not exist."""
    names = ("per_client", "target", "stop_at_target")
    asked = [name for name in names if getattr(config, name)]
    if not asked:
        return
    model = jax.eval_shape(workload.task.init, jax.random.key(0))
    judge = functools.partial(evaluate, workload.task)
    if "accuracy" not in jax.eval_shape(judge, *model, workload.test):
        raise ValueError(
            f"{asked[0]} = {getattr(config, asked[0])}, but {config.dataset} has a "
            f"loss only, no accuracy: leave {' and '.join(asked)} out."
        )


def _check_complete(config: Config) -> None:
    if config.parts is not None:
        raise ValueError(
            "this run is of parts of one's own, which no setting can name: go on with "
            "it by afga_jax.run(..., resume=True)."
        )
    needed = ["dataset", "num_clients", "rounds", "batch_size", "local_steps"]
    if missing := [name for name in needed if getattr(config, name) is None]:
        raise ValueError(
            f"the configuration leaves {', '.join(missing)} open: complete it with "
            "settings.resolve."
        )
