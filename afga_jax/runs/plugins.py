"""Modules that register algorithms, models, data sets and topologies of one's own.

`--plugin=my_module` imports them before anything else is read from a command line; a
run's record names them, and whoever reads it imports them again.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from afga_jax.algorithms import ALGORITHMS
from afga_jax.data.own import OWN_DATASETS
from afga_jax.gossip.kernels import KERNELS
from afga_jax.gossip.sequences import SEQUENCES
from afga_jax.models import MODELS

_REGISTRIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("algorithm", ALGORITHMS),
    ("model", MODELS),
    ("data set", OWN_DATASETS),
    ("topology", KERNELS),
    ("topology", SEQUENCES),
)


def load(names: str) -> None:
    """Imports modules, unless they were imported before.

    Args:
      names: Names of modules as Python imports them, with commas between them; they
        are also looked for in the current folder.

    Raises:
      ValueError: A module is missing, fails, or takes a name that is there; in one
        line. Nothing that it registered stays.
    """
    for name in filter(None, (text.strip() for text in names.split(","))):
        if name not in sys.modules:
            _load(name)


def asked(arguments: Sequence[str]) -> str:
    """The modules that a command line names.

    >>> asked(["afga digits", "--plugin=one,two", "--algo=mine", "--plugin", "three"])
    'one,two,three'
    """
    values: list[str] = []
    for place, word in enumerate(arguments):
        name, separator, value = word.partition("=")
        if name in ("--plugin", "-plugin"):
            values += [value] if separator else arguments[place + 1 : place + 2]
    return ",".join(values)


def _load(name: str) -> None:
    before = [dict(registry) for _, registry in _REGISTRIES]
    here = os.getcwd()
    added = here not in sys.path and "" not in sys.path
    if added:  # the command `afga` does not look there by itself
        sys.path.insert(0, here)
    try:
        importlib.import_module(name)
        _check_names(name, before)
    except Exception as error:
        sys.modules.pop(name, None)
        for (_, registry), entries in zip(_REGISTRIES, before, strict=True):
            registry.clear()
            registry.update(entries)
        raise ValueError(_reason(name, error)) from error
    finally:
        if added:
            sys.path.remove(here)


class _TakenName(ValueError):
    """A plugin registers what is there already."""


def _check_names(name: str, before: list[dict[str, Any]]) -> None:
    for (kind, registry), entries in zip(_REGISTRIES, before, strict=True):
        for key, value in registry.items():
            if key in entries and entries[key] is not value:
                raise _TakenName(
                    f"plugin {name}: the {kind} {key!r} is there already: rename yours."
                )


def _reason(name: str, error: Exception) -> str:
    """What went wrong, in a line that says where."""
    if isinstance(error, _TakenName):
        return str(error)
    parents = [".".join(name.split(".")[:n]) for n in range(1, name.count(".") + 2)]
    if isinstance(error, ModuleNotFoundError) and error.name in parents:
        return (
            f"plugin = {name!r}, but there is no module {error.name!r}: give its name "
            "without .py, from the folder that it is in, or set PYTHONPATH."
        )
    places: list[Any] = (
        [error]
        if isinstance(error, SyntaxError)
        else [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if "importlib" not in frame.filename and frame.filename != __file__
        ]
    )
    where = f" ({places[0].filename}, line {places[0].lineno})" if places else ""
    text = " ".join(str(getattr(error, "msg", None) or error).split())
    return f"plugin {name} fails: {type(error).__name__}: {text}{where}."
