"""A field of a configuration: what is known of it, and whether a value may be its."""

import dataclasses
import numbers
import types
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_args, get_origin

from afga_jax import checks
from afga_jax.algorithms import ALGORITHMS, Options
from afga_jax.algorithms.options import BOUNDS
from afga_jax.algorithms.registry import owners_of

_OPTIONS = {field.name: field for field in dataclasses.fields(Options)}

_SIGNS = {"above": ">", "at_least": ">=", "below": "<", "at_most": "<="}


class Field(NamedTuple):
    """What is known of one field of a configuration.

    Attributes:
      name: The field's name, which is also the flag's.
      kind: `str`, `int`, `float`, `bool`, or `tuple` (of whole numbers).
      default: None: the table of settings, or the algorithm, decides.
      group: One of `GROUPS`.
      help: What it is, in a line.
      bounds: Limits, as `checks.number` and `checks.integer` take them.
      choices: The names it may be; empty: any.
      file: Whether it may also be the path of a file.
      neutral: Whether the run's numbers stay the same whatever it is.
      option: Whether it is an option of the algorithms.
      usual: The default of the algorithm that it belongs to, for people.
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
    usual: Any = None

    def limits(self) -> str:
        """The bounds for people: `> 0 and <= 1`, or the choices."""
        names = ", ".join(self.choices)
        if self.choices:
            return f"{names}, or a file" if self.file else names
        bounds = [f"{_SIGNS[k]} {v}" for k, v in self.bounds.items() if k in _SIGNS]
        return " and ".join(bounds)


def described(field: dataclasses.Field) -> Field:
    """Reads a dataclass's field; it is an option of the algorithms by its name."""
    annotation: Any = field.type
    if isinstance(annotation, types.UnionType):  # with None
        annotation = get_args(annotation)[0]
    # What a tuple holds is always whole numbers.
    about, kind = dict(field.metadata), get_origin(annotation) or annotation
    if field.name in _OPTIONS:
        own = dict(_OPTIONS[field.name].metadata)
        own.pop("kind", None)
        about = {"option": True, **own, **about}
    known = {name: value for name, value in about.items() if name in Field._fields}
    return Field(
        field.name, kind, field.default, bounds=_bounds_of(kind, about), **known
    )


def described_own(name: str, declared: dataclasses.Field) -> Field:
    """Reads an algorithm's own option; its help says whose it is."""
    about, owners = declared.metadata, owners_of(name)
    defaults = [ALGORITHMS[owner].own[name].default for owner in owners]
    return Field(
        name,
        about["kind"],
        None,
        group="algorithm",
        help=f"{', '.join(owners)}: {about['help'] or 'an option of its own.'}",
        bounds=_bounds_of(about["kind"], about),
        choices=ALGORITHMS if about["algorithm"] else about.get("choices", ()),
        option=True,
        usual=defaults[0] if all(each == defaults[0] for each in defaults) else None,
    )


def checked(field: Field, value: Any, by_name: bool) -> Any:
    """The value in its plain type, or a ValueError with value, bound and fix.

    Args:
      field: What is known of the field.
      value: What was chosen.
      by_name: Whether a word stands for what is registered under it.
    """
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
    return _text(field, value, by_name)


def _whole_numbers(field: Field, value: Any) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(
            f"{field.name} = {value!r}, but it must be whole numbers: for example "
            "64,32."
        )
    for number in value:
        checks.integer(field.name, number, **field.bounds)
    return tuple(int(number) for number in value)


def _text(field: Field, value: Any, by_name: bool) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{field.name} = {value!r}, but it must be a word.")
    if field.file and ("." in value or "/" in value):
        return value
    if field.choices and by_name:
        checks.choice(field.name, value, field.choices)
    return value


def _bounds_of(kind: type, about: Mapping[str, Any]) -> Mapping[str, Any]:
    """Bounds of a field; whole numbers are at least 1 unless it is said otherwise."""
    bounds = {name: about[name] for name in BOUNDS if name in about}
    return types.MappingProxyType(
        {"at_least": 1, **bounds} if kind in (int, tuple) else bounds
    )
