"""The algorithms' signatures as a stub file, from which editors complete.

    python tests/stub.py     # writes afga_jax/algorithms/__init__.pyi

What an algorithm uses is found out by running its recipe, which no editor does; so the
signatures are written down. `tests/algorithms/test_signatures.py` compares the file.
"""

import ast
import functools
import inspect
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from afga_jax import algorithms  # noqa: E402
from afga_jax.algorithms.options import numbers  # noqa: E402
from afga_jax.algorithms.registry import own_options  # noqa: E402

STUB = Path(algorithms.__file__).with_suffix(".pyi")
#: In the order that the package imports them in; tests may have registered more.
NAMES = [name for name in algorithms.ALGORITHMS if name in algorithms.__all__]

_HEAD = '''\
"""Signatures of all algorithms, written by `python tests/stub.py`."""

from collections.abc import Callable, Sequence
from typing import Any

import optax

from afga_jax.algorithms.assemble import FederatedAlgorithm as FederatedAlgorithm
from afga_jax.algorithms.compose import compose as compose
from afga_jax.algorithms.options import Options as Options
from afga_jax.algorithms.options import option as option
from afga_jax.algorithms.registry import ALGORITHMS as ALGORITHMS
from afga_jax.algorithms.registry import FAMILIES as FAMILIES
from afga_jax.algorithms.registry import Algorithm as Algorithm
from afga_jax.algorithms.registry import RecipeFunction as RecipeFunction
from afga_jax.algorithms.registry import algorithm as algorithm
from afga_jax.algorithms.registry import build as build
from afga_jax.algorithms.registry import lookup as lookup
from afga_jax.gossip.robust import Defence
from afga_jax.optimizers.aggregators import Aggregator
from afga_jax.optimizers.attacks import Attack
from afga_jax.optimizers.compressors import Compressor
from afga_jax.population.clustering import Clustering
from afga_jax.population.faults import Faults
from afga_jax.typing import Array, ClientData, Task

# A number, one for each client where that is allowed, or a function of the round.
Number = float | Array | Callable[[Array], Array | float]
'''


def stub() -> str:
    """The whole file."""
    return "\n".join([_HEAD, *(_function(name) for name in NAMES)]) + "\n"


def _function(name: str) -> str:
    made = getattr(algorithms, name)
    lines = [f"def {name}(", "    task: Task,", "    *,"]
    for option, parameter in inspect.signature(made).parameters.items():
        if option != "task":
            default = repr(parameter.default).replace("'", '"')
            lines.append(f"    {option}: {_kind(option)} = {default},")
    return "\n".join([*lines, ") -> FederatedAlgorithm: ..."])


def _kind(option: str) -> str:
    """The type of an option, as the source says it."""
    own = own_options()
    if option in numbers(algorithms.Options):
        return "Number"
    if option in _annotations():
        return _annotations()[option]
    about = own[option].metadata
    if about["algorithm"]:
        return "str | Algorithm | RecipeFunction"
    kind = "Number" if about["traced"] else about["kind"].__name__
    return f"{kind} | None" if own[option].default is None else kind


@functools.cache
def _annotations() -> dict[str, str]:
    (options,) = ast.parse(inspect.getsource(algorithms.Options)).body
    found = {"data": "ClientData | None"}
    for statement in options.body:
        if isinstance(statement, ast.AnnAssign):
            found[statement.target.id] = ast.unparse(statement.annotation)
    return found | {"num_clients": "int | None"}


if __name__ == "__main__":
    STUB.write_text(stub())
