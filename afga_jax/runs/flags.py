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
from afga_jax.config import GROUPS, Field, fields
from afga_jax.settings import decided

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


def define(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines a flag for each field of `Config`."""
    for one in fields():
        text = _text(one)
        if one.kind is bool:
            flag = flags.BooleanFlag(one.name, None, text)
        else:
            parser, csv = _PARSERS[one.kind](), one.kind is tuple
            serializer = (
                flags.CsvListSerializer(",") if csv else flags.ArgumentSerializer()
            )
            flag = flags.Flag(parser, serializer, one.name, None, text)
        flags.DEFINE_flag(flag, values, module_name=one.group)


def parse(
    arguments: Sequence[str],
    values: flags.FlagValues = flags.FLAGS,
    *,
    usage: str = "",
    words: bool = False,
) -> list[str]:
    """Reads the command line; `--help` prints the help page and ends the program.

    Args:
      arguments: With the program's name first, as `sys.argv`.
      values: Where the flags are defined.
      usage: The lines above the flags on the help page.
      words: Whether words that are no flags may be given.

    Returns:
      These words.

    Raises:
      ValueError: A flag is not known or its value cannot be read; in one line.
    """
    if any(argument in _HELP for argument in arguments[1:]):
        print(help_page(usage))
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


def given(values: flags.FlagValues = flags.FLAGS) -> dict[str, Any]:
    """What the user really set, by name."""
    found = {one.name: values[one.name] for one in fields()}
    return {
        name: flag.value
        for name, flag in found.items()
        if not flag.using_default_value and flag.value is not None
    }


def help_page(usage: str, width: int | None = None) -> str:
    """All flags by group, with bounds and defaults.

    Args:
      usage: The lines above the flags.
      width: Columns; None: as the terminal has.
    """
    width = width or min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)
    lines = [usage.strip()] if usage else []
    for group in GROUPS:
        lines += ["", f"{group.upper()}"]
        for one in fields(group):
            lines += _entry(one, width)
    return "\n".join(lines)


def _entry(one: Field, width: int) -> list[str]:
    kind = {bool: "", int: "=INT", float: "=NUMBER", tuple: "=INT,INT,…"}
    name = f"--[no]{one.name}" if one.kind is bool else f"--{one.name}"
    wrapped = textwrap.wrap(
        _text(one),
        width,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_on_hyphens=False,
    )
    return [f"  {name}{kind.get(one.kind, '=TEXT')}", *wrapped]


def _text(one: Field) -> str:
    """What it is, what it may be, and what it is by default."""
    limits = one.limits()
    if one.default is not None:
        default = f"Default: {_shown(one.default)}."
    elif one.name in decided():
        default = "Default: by setting."
    else:
        default = "Default: by algorithm." if one.option else ""
    parts = [one.help, f"({limits})" if limits else "", default]
    return " ".join(part for part in parts if part)


def _shown(default: Any) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def _unreadable(message: str) -> str:
    """The parser's complaint in the words of `Config`."""
    found = re.match(r"flag --(\w+)=(.*?): ", message, re.DOTALL)
    kinds = {one.name: one.kind for one in fields()}
    if not found or kinds.get(found[1]) not in _KINDS:
        return f"{' '.join(message.split())}; see --help."
    return f"{found[1]} = {found[2]!r}, but it must be {_KINDS[kinds[found[1]]]}."
