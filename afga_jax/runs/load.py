"""A trained model from the folder of its run."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from afga_jax import models
from afga_jax.recipe import FederatedState
from afga_jax.runs import record
from afga_jax.runs.checkpoint import CheckpointError, Checkpoints, check_shapes
from afga_jax.runs.config import Config
from afga_jax.runs.experiment import from_config, model_of
from afga_jax.typing import Array, PyTree, Task


class Trained(NamedTuple):
    """What a run has learnt.

    Attributes:
      task: What it minimised.
      params: The server's model; without a server, the mean of the clients'.
      stats: The model's BatchNorm statistics.
      config: The run's settings.
      round: Rounds that it was trained for.
    """

    task: Task
    params: PyTree
    stats: PyTree
    config: Config
    round: int

    def predict(self, inputs: Array) -> Array:
        """The model's outputs, the logits of classes or characters.

        Args:
          inputs: As the clients' (images normalised).
        """
        if self.task.predict is None:
            raise ValueError("this problem has no model: its params are the answer.")
        return self.task.predict(self.params, self.stats, inputs)


def load(
    run_dir: str | Path, seed: int | None = None, *, task: Task | None = None
) -> Trained:
    """The newest saved model of a run, finished or not.

    Needs neither the data set nor the experiment's code, but for a run of one's own
    (`afga_jax.run`) its task.

    Args:
      run_dir: The run's folder.
      seed: One of the run's; None: its first.
      task: What the run minimised; None: what its record says, if a command wrote it.

    Returns:
      The model, ready to predict: `load("runs/digits_afga").predict(images)`.

    Raises:
      ValueError: There is no such run or seed, or nothing was saved yet; or the run
        is one's own and the task is missing, or another one.
    """
    run = record.read(run_dir)
    config = Config.from_dict(run.config)
    seed = config.seed if seed is None else seed
    if not config.seed <= seed < config.seed + config.num_seeds:
        raise ValueError(
            f"seed = {seed}, but the run in {str(run_dir)!r} has the seeds "
            f"{config.seed} ... {config.seed + config.num_seeds - 1}: take one of them."
        )

    def accept(about, path):
        if about.get("identity") != run.identity:
            raise CheckpointError(
                f"{path} is a state of another run than config.json beside it "
                "describes: restore what belongs together."
            )

    saved = Checkpoints(Path(run_dir) / record.STATES).restore(accept=accept)
    if saved is None:
        raise ValueError(
            f"the run in {str(run_dir)!r} has saved nothing yet: resume it, and it "
            "will when it ends or is stopped."
        )
    done, content = saved
    task = _task(config, run) if task is None else task
    params, stats = _model(task, content["state"], seed - config.seed)
    return Trained(task, params, stats, config, done)


def started_from(state: FederatedState, trained: Trained) -> FederatedState:
    """The state before the first round, with a trained model in everybody's place.

    Args:
      state: A state from `init`, for one seed or several.
      trained: A trained model of the same shapes.
    """
    models_ = {"params": trained.params, "stats": trained.stats}
    like = {"params": state.params, "stats": state.stats}

    def broadcast(leaf, new):
        # In front are the axes of seeds and of clients.
        if leaf.shape[leaf.ndim - new.ndim :] != new.shape:
            raise ValueError(
                f"the trained model has an array of shape {new.shape} where this run's "
                f"has {leaf.shape[1:]}: set model and its sizes as in that run."
            )
        return jnp.broadcast_to(jnp.asarray(new, leaf.dtype), leaf.shape)

    expected: Any = jax.tree.structure(like)
    if expected != jax.tree.structure(models_):
        raise ValueError(
            "the trained model is built of other parts than this run's: set model and "
            "its sizes as in that run."
        )
    state = dataclasses.replace(state, **jax.tree.map(broadcast, like, models_))
    if not state.clients:
        return state
    clients, memories = state.clients
    own = {"params": clients.params, "stats": clients.stats}
    clients = clients._replace(**jax.tree.map(broadcast, own, models_))
    return dataclasses.replace(state, clients=(clients, memories))


def _task(config: Config, run: record.Run) -> Task:
    """The task of a command's run, from its record."""
    if config.parts is not None:
        raise ValueError(
            f"the run in {str(run.folder)!r} is of a model of your own, which a folder "
            "cannot hold: load it with task=, the task that the run was given."
        )
    facts = run.facts or {}
    if not facts.get("classes"):
        return from_config(config).task
    model = model_of(config, facts["classes"])
    shape, dtype = facts["input_shape"], facts["input_dtype"]
    return models.classifier(model, tuple(shape), jnp.dtype(dtype), dtype=config.dtype)


def _model(task: Task, state: dict, row: int) -> tuple[PyTree, PyTree]:
    """One seed's model in the task's own structure."""
    wanted = jax.eval_shape(task.init, jax.random.key(0))
    leaves = jax.tree.leaves((state["params"], state["stats"]))
    leaves = [jnp.asarray(leaf[row]) for leaf in leaves]
    shapes, structure = jax.tree.flatten(wanted)
    if len(shapes) != len(leaves):
        raise CheckpointError(
            f"the saved model has {len(leaves)} arrays, but its task "
            f"{len(shapes)}: was it saved by another version, or of another task?"
        )
    model = jax.tree.unflatten(structure, leaves)
    try:
        check_shapes(wanted, model)
    except ValueError as error:
        raise CheckpointError(
            f"the saved model is not of this task ({error}): load it with the run's "
            "own."
        ) from error
    return model
