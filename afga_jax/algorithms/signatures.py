"""What an algorithm's function looks like: the options that it uses, and defaults."""

import dataclasses
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Sequence
from typing import Any

from afga_jax.algorithms.assemble import FederatedAlgorithm
from afga_jax.algorithms.conditions import conditioned
from afga_jax.algorithms.options import COMMON, Options
from afga_jax.optimizers import compressors
from afga_jax.recipe import Recipe
from afga_jax.typing import ClientData, Task

#: Clients of the algorithms that are looked at.
CLIENTS = 100
#: Choices that make a recipe read options which it has no use for otherwise.
CHOICES: tuple[dict[str, Any], ...] = (
    {"topology": "ring", "compress_gossip": compressors.sign()},
    {"local_optimizer": "momentum"},
)

# Options that are the server's, whatever it is.
_SERVERS = (
    "aggregator",
    "broadcast",
    "compress_uploads",
    "contain",
    "dp_clip",
    "dp_noise",
)
_ARGUMENTS = {
    "task": "The loss to minimise.",
    "num_clients": "N, the number of clients; None: that of the data.",
    "data": "The clients' data, for their number alone; not kept.",
}
_RETURNS = "Pure functions; `jax.jit` them, or use `afga_jax.fit`."


def signature(
    recipe: Callable[[Options], Recipe], variants: Sequence[Options]
) -> inspect.Signature:
    """The signature of an algorithm: a task, the clients, and the options that it uses.

    Args:
      recipe: Function from options to the recipe.
      variants: Options, the plain ones first, that together read all that it may.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter("task", either, annotation=Task),
        inspect.Parameter("num_clients", keyword, default=None, annotation=int | None),
        inspect.Parameter("data", keyword, default=None, annotation=ClientData | None),
    ]
    for name, known, default in _used(recipe, variants):
        annotation: Any = known.type
        if name not in COMMON:
            kind = known.metadata["kind"] or Any
            annotation = kind | None if default is None else kind
        parameters.append(
            inspect.Parameter(name, keyword, default=default, annotation=annotation)
        )
    if not variants:
        parameters.append(
            inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD, annotation=Any)
        )
    return inspect.Signature(parameters, return_annotation=FederatedAlgorithm)


def docstring(recipe: Callable[[Options], Recipe], variants: Sequence[Options]) -> str:
    """What the recipe says of itself, with all arguments; see `signature`."""
    about = dict(_ARGUMENTS)
    explained = _explained()
    for name, known, _ in _used(recipe, variants):
        about[name] = explained.get(name) or known.metadata.get("help") or "Its own."
    lines = [
        textwrap.fill(f"  {name}: {text}", 88, subsequent_indent="    ")
        for name, text in about.items()
    ]
    own = inspect.getdoc(recipe) or f"{recipe.__name__}."
    return "\n".join([own, "", "Args:", *lines, "", "Returns:", f"  {_RETURNS}"])


def _used(
    recipe: Callable[[Options], Recipe], variants: Sequence[Options]
) -> list[tuple[str, dataclasses.Field, Any]]:
    """Name, field and default of the options that a recipe reads, and of its own."""
    read: set[str] = set()
    for options in variants:
        read |= _reads(recipe, options)
    if not read:
        read = set(COMMON)
    found: dict[str, tuple[str, dataclasses.Field, Any]] = {}
    for at, options in enumerate(variants):
        for known in dataclasses.fields(options):
            name = known.name
            own = name not in COMMON
            if name != "num_clients" and (name in read or (own and not at)):
                found.setdefault(name, (name, known, getattr(options, name)))
    order = [*COMMON, *(name for name in found if name not in COMMON)]
    return [found[name] for name in order if name in found]


def _reads(recipe: Callable[[Options], Recipe], options: Options) -> set[str]:
    """Names of the options that a recipe looks at."""
    read: set[str] = set()
    try:
        recorder: Any = _Recorder(options, read, frozenset())
        made = conditioned(recipe(recorder), recorder)
    except Exception:
        # Anybody's function, perhaps for other numbers of clients: it is left out.
        return set()
    # Without a server they change nothing, or are refused.
    return read if made.server is not None else read - set(_SERVERS)


class _Recorder:
    """Options that note what is read of them.

    Args:
      options: What is read.
      read: Names read so far.
      hidden: Names that the recipe has set by itself, which are not the user's.
    """

    def __init__(self, options: Options, read: set[str], hidden: frozenset[str]):
        self._options, self._read, self._hidden = options, read, hidden

    def __getattr__(self, name: str) -> Any:
        method = getattr(type(self._options), name, None)
        if isinstance(method, types.FunctionType):
            return types.MethodType(method, self)
        value = getattr(self._options, name)
        if name not in self._hidden:
            self._read.add(name)
        return value

    def replace(self, **changes: Any) -> "_Recorder":
        changed = self._options.replace(**changes)
        return _Recorder(changed, self._read, self._hidden | set(changes))


def _explained() -> dict[str, str]:
    """What `Options` says of each option."""
    text = inspect.getdoc(Options) or ""
    _, _, attributes = text.partition("Attributes:\n")
    entries = re.findall(r"^  (\w+): (.*(?:\n    .*)*)", attributes, re.MULTILINE)
    return {name: " ".join(about.split()) for name, about in entries}
