"""What is known of a configuration's fields, and the checks that follow from it."""

import dataclasses
import numbers
import types
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_args, get_origin

from afga_jax import checks
from afga_jax.algorithms import Options

GROUPS = (
    "algorithm",
    "data",
    "model",
    "participation",
    "topology",
    "optimisation",
    "run",
)

_OPTIONS = {one.name: one for one in dataclasses.fields(Options)}
_BOUNDS = ("above", "at_least", "below", "at_most", "fix")
_SIGNS = {"above": ">", "at_least": ">=", "below": "<", "at_most": "<="}


class Field(NamedTuple):
    """What is known of one field of a configuration.

    Attributes:
      name: Its name, which is also the flag's.
      kind: `str`, `int`, `float`, `bool`, or `tuple` (of whole numbers).
      default: None: the table of settings, or the algorithm, decides.
      group: One of `GROUPS`.
      help: What it is, in a line.
      bounds: As `checks.number` and `checks.integer` take them.
      choices: The names it may be; empty: any.
      file: Whether it may also be the path of a file.
      neutral: Whether the run's numbers stay the same whatever it is.
      option: Whether it is an option of the algorithms.
    """

    name: str
    kind: type
    default: Any
    group: str
    help: str
    bounds: Mapping[str, Any] = types.MappingProxyType({})
    choices: Iterable[str] = ()
    file: bool = False
    neutral: bool = False
    option: bool = False

    def limits(self) -> str:
        """The bounds for people: `> 0 and <= 1`, or the choices."""
        names = ", ".join(self.choices)
        if self.choices:
            return f"{names}, or a file" if self.file else names
        bounds = [f"{_SIGNS[k]} {v}" for k, v in self.bounds.items() if k in _SIGNS]
        return " and ".join(bounds)


def own(group: str, help: str, default: Any = None, **about: Any) -> Any:
    """A field of a run; `about` has bounds, choices, file, neutral."""
    metadata = {"group": group, "help": help, **about}
    return dataclasses.field(default=default, metadata=metadata)


def option(group: str, help: str, **about: Any) -> Any:
    """A field that is an option of the algorithms, which bring its bounds along."""
    return own(group, help, option=True, **about)


def describe(field: dataclasses.Field) -> Field:
    """Reads a dataclass's field."""
    about = dict(field.metadata)
    kind = _kind(field.type)
    if about.get("option"):
        its = dict(_OPTIONS[field.name].metadata)
        about = {"choices": its.pop("options", ()), **its, **about}
    bounds = {name: about[name] for name in _BOUNDS if name in about}
    if kind in (int, tuple):
        bounds = {"at_least": 1, **bounds}
    known = {name: value for name, value in about.items() if name in Field._fields}
    fixed = types.MappingProxyType(bounds)
    return Field(field.name, kind, field.default, bounds=fixed, **known)


def checked(field: Field, value: Any) -> Any:
    """The value in its plain type, or a ValueError with value, bound and fix."""
    if value is None and field.default is None:
        return None
    if field.kind is bool:
        if isinstance(value, bool):
            return value
        raise ValueError(f"{field.name} = {value!r}, but it must be true or false.")
    if field.kind is int:
        checks.integer(field.name, value, **field.bounds)
        return int(value)
    if field.kind is float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise ValueError(f"{field.name} = {value!r}, but it must be a number.")
        checks.number(field.name, value, **field.bounds)
        return float(value)
    if field.kind is tuple:
        return _whole_numbers(field, value)
    return _text(field, value)


def _kind(annotation: Any) -> type:
    """The type in `type | None`; what a tuple holds is always whole numbers."""
    if isinstance(annotation, types.UnionType):
        annotation = get_args(annotation)[0]
    return get_origin(annotation) or annotation


def _whole_numbers(field: Field, value: Any) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(
            f"{field.name} = {value!r}, but it must be whole numbers: for example "
            "64,32."
        )
    for one in value:
        checks.integer(field.name, one, **field.bounds)
    return tuple(int(one) for one in value)


def _text(field: Field, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{field.name} = {value!r}, but it must be a word.")
    if field.file and ("." in value or "/" in value):
        return value
    if field.choices:
        checks.choice(field.name, value, field.choices)
    return value
