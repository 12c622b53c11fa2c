"""Flags of the mains, generated from `Config`: values, errors and the help page.

All flags are None until set, so what the user gave is known; bounds are checked by
`Config`, whose messages name the value, the bound and the fix.
"""

import re
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

from absl import flags

from afga_jax import checks
from afga_jax.runs.command import as_started
from afga_jax.runs.config import Field, fields
from afga_jax.runs.settings import decided

_HELP = ("--help", "-help", "-h", "--helpshort", "--helpfull", "-?")
_INDENT = " " * 6
_WIDEST = 100


class _WholeNumbers(flags.ArgumentParser):
    def parse(self, argument):
        if isinstance(argument, str):
            return tuple(int(part) for part in argument.split(","))
        return tuple(argument)


_PARSERS = {
    str: flags.ArgumentParser,
    int: flags.IntegerParser,
    float: flags.FloatParser,
    tuple: _WholeNumbers,
}
_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "whole numbers with commas between them",
}


def define(known: Sequence[Field] | None = None) -> flags.FlagValues:
    """Flags, all of them unset, for some fields; None: for those of `Config`."""
    values = flags.FlagValues()
    for field in fields() if known is None else known:
        flag: flags.Flag
        if field.kind is bool:
            flag = flags.BooleanFlag(field.name, None, _text(field))
        else:
            parser, csv = _PARSERS[field.kind](), field.kind is tuple
            serializer = (
                flags.CsvListSerializer(",") if csv else flags.ArgumentSerializer()
            )
            flag = flags.Flag(parser, serializer, field.name, None, _text(field))
        flags.DEFINE_flag(flag, values, module_name=field.group)
    return values


def parse(
    arguments: Sequence[str],
    values: flags.FlagValues,
    *,
    usage: str = "",
    words: bool = False,
    known: Sequence[Field] | None = None,
) -> list[str]:
    """Reads the command line; `--help` prints the help page and ends the program.

    Args:
      arguments: The command line with the program's name first, as `sys.argv`.
      values: The flags, from `define`.
      usage: The lines above the flags on the help page.
      words: Whether words that are no flags may be given.
      known: The fields that flags were defined for; None: those of `Config`.

    Returns:
      These words.

    Raises:
      ValueError: A flag is not known or its value cannot be read; in one line.
    """
    if any(argument in _HELP for argument in arguments[1:]):
        print(help_page(as_started(usage, arguments[0]), known=known))
        raise SystemExit(0)
    try:
        rest = values(list(arguments))[1:]
    except flags.UnrecognizedFlagError as error:
        name = error.flagname
        hint = checks.did_you_mean(name, values, "see --help.", prefix="--")
        raise ValueError(f"--{name} is not a flag; {hint}") from error
    except flags.Error as error:
        raise ValueError(_unreadable(str(error))) from error
    if rest and not words:
        raise ValueError(f"{rest[0]!r} is not a flag; flags start with --, see --help.")
    return rest


def given(
    values: flags.FlagValues, known: Sequence[Field] | None = None
) -> dict[str, Any]:
    """What the user really set, by name."""
    chosen = [values[field.name] for field in (fields() if known is None else known)]
    return {
        flag.name: flag.value
        for flag in chosen
        if not flag.using_default_value and flag.value is not None
    }


def help_page(
    usage: str, width: int | None = None, known: Sequence[Field] | None = None
) -> str:
    """All flags by group, with bounds and defaults.

    Args:
      usage: The lines above the flags.
      width: Columns; None: as the terminal has.
      known: The fields to show; None: those of `Config`.
    """
    width = width or min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)
    lines = [usage.strip()] if usage else []
    shown = fields() if known is None else known
    for group in dict.fromkeys(field.group for field in shown):
        lines += ["", group.upper()]
        for field in shown:
            lines += _entry(field, width) if field.group == group else []
    return "\n".join(lines)


def _entry(field: Field, width: int) -> list[str]:
    kind = {bool: "", int: "=INT", float: "=NUMBER", tuple: "=INT,INT,…"}
    name = f"--[no]{field.name}" if field.kind is bool else f"--{field.name}"
    wrapped = textwrap.wrap(
        _text(field),
        width,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_on_hyphens=False,
    )
    return [f"  {name}{kind.get(field.kind, '=TEXT')}", *wrapped]


def _text(field: Field) -> str:
    """What it is, what it may be, and what it is by default."""
    limits = field.limits()
    if field.default is not None:
        default = f"Default: {_shown(field.default)}."
    elif field.name in decided():
        default = "Default: by setting."
    else:
        default = "Default: by algorithm." if field.option else ""
    parts = [field.help, f"({limits})" if limits else "", default]
    return " ".join(part for part in parts if part)


def _shown(default: Any) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def _unreadable(message: str) -> str:
    """The parser's complaint in the words of `Config`."""
    match = re.match(r"flag --(\w+)=(.*?): ", message, re.DOTALL)
    kinds = {field.name: field.kind for field in fields()}
    if not match or kinds.get(match[1]) not in _KINDS:
        return f"{' '.join(message.split())}; see --help."
    return f"{match[1]} = {match[2]!r}, but it must be {_KINDS[kinds[match[1]]]}."
