"""A run of one's own: from a built algorithm and data to the same value as a command's.

What a folder's record can hold is written down as settings: options that are plain
values by their names, others described. What a round computes is compared by its trace
(`traced_round`): a model, a loss, an optimizer or a topology of one's own that is
another function than before is noticed, whether or not it has a name.
"""

import functools
import hashlib
import re
from typing import Any

import jax
import numpy as np

from afga_jax.algorithms import FederatedAlgorithm
from afga_jax.algorithms.options import COMMON
from afga_jax.population.clustering import Clustering
from afga_jax.runs.config import Config, fields
from afga_jax.runs.record import Run
from afga_jax.training.evaluate import mean_metrics
from afga_jax.typing import Batch, ClientData, PyTree, Task

_PLAIN = bool | int | float | str


def config_of(
    algorithm: FederatedAlgorithm,
    clients: ClientData,
    test: Batch,
    data_checksum: int,
    **settings: Any,
) -> Config:
    """The settings of a run of one's own.

    Args:
      algorithm: What is trained, as it was built.
      clients: The clients' data.
      test: What the model is judged by.
      data_checksum: Checksum of both (`experiment.checksum`).
      **settings: What the user chose beside these, by the names of `Config`.
    """
    known = {field.name for field in fields() if field.name in COMMON}
    plain, parts = {}, {}
    for name, value in vars(algorithm.options).items():
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, _PLAIN) and name in known:
            plain[name] = value
        elif value is not None:
            parts[name] = value if isinstance(value, _PLAIN) else described(value)
    plain["num_clusters"] = algorithm.recipe.clustering.num_clusters
    if "active" in plain:
        plain.pop("participation", None)
    batch_size = getattr(clients, "batch_size", None)
    if isinstance(batch_size, int):
        plain["batch_size"] = batch_size
    parts |= {
        "model": _shapes(algorithm.task),
        "data": f"checksum {data_checksum:08x}",
        "traced_round": traced_round(algorithm, clients, test),
        "traced_by": traced_by(),
    }
    return Config(**{"algo": algorithm.name, **plain, **settings}, parts=parts)


def traced_round(
    algorithm: FederatedAlgorithm, clients: ClientData, test: Batch
) -> str:
    """A digest of what a round computes, and of how its model starts and is judged.

    Numbers that are traced, and the data, are arguments of the round: runs that differ
    in their values only have the same digest.

    Args:
      algorithm: The built algorithm.
      clients: The clients' data.
      test: What the model is judged by.
    """
    key, task = jax.random.key(0), algorithm.task
    state = jax.eval_shape(algorithm.init, key)
    judge = functools.partial(mean_metrics, task)
    digest = hashlib.sha256()
    for function, arguments in (
        (task.init, (key,)),
        (algorithm.round, (key, state, clients)),
        (judge, (*jax.eval_shape(task.init, key), test)),
    ):
        trace = jax.make_jaxpr(function)(*arguments)
        # Where functions happen to lie in memory says nothing.
        digest.update(re.sub(r"0x[0-9a-f]+", "", str(trace)).encode())
        for constant in trace.consts:
            digest.update(b"".join(content(constant)))
    return digest.hexdigest()[:16]


def traced_by() -> str:
    """What a trace depends on beside what is traced."""
    kind = jax.devices()[0].device_kind
    return f"jax {jax.__version__}, {jax.device_count()} x {kind}"


def comparable(config: Config, before: Run) -> tuple[Config, list[str]]:
    """The settings to go on with, and notes, where a trace cannot be compared.

    Args:
      config: The settings of the run that is to go on.
      before: What the folder holds.

    Raises:
      ValueError: It is a command's run.
    """
    own, begun = dict(config.parts or {}), before.config.get("parts")
    if begun is None:
        raise ValueError(
            f"out = {str(before.folder)!r} holds a run of a command: go on with it by "
            "that command, or choose another folder."
        )
    if begun.get("traced_by") in (None, own["traced_by"]):
        return config, []
    note = (
        f"the run was begun with {begun['traced_by']}, this is {own['traced_by']}: "
        "whether model, loss and functions compute the same as then cannot be compared."
    )
    kept = {name: begun.get(name) for name in ("traced_round", "traced_by")}
    return config.replace(parts=own | kept), [note]


def described(value: Any) -> str:
    """What a record says of a value that is not plain.

    >>> described(np.eye(2)), described(len), described([1, "a"])
    ('array (2, 2), ce0c32a2', 'len', "[1, 'a']")
    """
    if isinstance(value, Clustering):
        members = value.sizes if value.members is None else value.members
        return f"{value.num_clusters} clusters, {_digest(members)}"
    if isinstance(value, np.ndarray | jax.Array):
        return f"array {value.shape}, {_digest(value)}"
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        items = (repr(v) if isinstance(v, _PLAIN) else described(v) for v in value)
        return f"[{', '.join(items)}]"
    return str(getattr(value, "__qualname__", None) or type(value).__name__)


def _shapes(task: Task) -> str:
    """A model by its arrays: how many numbers, and a digest of names and shapes."""
    params, stats = jax.eval_shape(task.init, jax.random.key(0))
    count = sum(x.size for x in jax.tree.leaves(params))
    text = str([_named_shapes(params), _named_shapes(stats)])
    return f"{count:,} parameters, {hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _named_shapes(tree: PyTree) -> list[str]:
    leaves = jax.tree.leaves_with_path(tree)
    return [f"{jax.tree_util.keystr(k)} {x.dtype}{x.shape}" for k, x in leaves]


def content(value: Any) -> tuple[bytes, np.ndarray]:
    """An array's type and shape, and its bytes, of which there is no copy."""
    if jax.dtypes.issubdtype(getattr(value, "dtype", float), jax.dtypes.extended):
        value = jax.random.key_data(value)
    array = np.ascontiguousarray(value)
    return f"{array.dtype}{array.shape}".encode(), array.reshape(-1).view(np.uint8)


def _digest(value: Any) -> str:
    return hashlib.sha256(b"".join(content(value))).hexdigest()[:8]
