"""Flags of the mains, generated from `Config`: values, errors and the help page.

All flags are None until set, so what the user gave is known; bounds are checked by
`Config`, whose messages name the value, the bound and the fix.
"""

import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from absl import flags

from afga_jax import checks
from afga_jax.mesh import on_cpu
from afga_jax.runs.command import as_started
from afga_jax.runs.config import Config, Field, fields
from afga_jax.runs.settings import decided, resolve, unused

_HELP = ("--help", "-help", "-h", "--helpshort", "--helpfull", "-?")
# What other programs call a flag's last word.
_SYNONYMS = {"learning_rate": "lr", "step_size": "lr", "optimiser": "optimizer"}
_INDENT = " " * 6
_WIDEST = 100


class _WholeNumbers(flags.ArgumentParser):
    def parse(self, argument):
        if isinstance(argument, str):
            return tuple(int(part) for part in argument.split(","))
        return tuple(argument)


# The parser of each type, what stands behind a flag's name, and what a value must be.
_KINDS: dict[type, tuple[Any, str, str]] = {
    str: (flags.ArgumentParser, "=TEXT", ""),
    int: (flags.IntegerParser, "=INT", "a whole number"),
    float: (flags.FloatParser, "=NUMBER", "a number"),
    bool: (flags.BooleanParser, "", "true or false"),
    tuple: (_WholeNumbers, "=INT,INT,…", "whole numbers with commas between them"),
}


def define(known: Sequence[Field] | None = None) -> flags.FlagValues:
    """Flags, all of them unset, for some fields; None: for those of `Config`."""
    values = flags.FlagValues()
    for field in fields() if known is None else known:
        flag: flags.Flag = flags.Flag(
            parser=_KINDS[field.kind][0](),
            serializer=None,  # they are never written
            name=field.name,
            default=None,
            help_string=_text(field),
            boolean=field.kind is bool,
        )
        flags.DEFINE_flag(flag, values, module_name=field.group)
    return values


def parse(
    arguments: Sequence[str],
    values: flags.FlagValues,
    *,
    usage: str = "",
    words: bool = False,
    known: Sequence[Field] | None = None,
    dataset: str | None = None,
) -> list[str]:
    """Reads the command line; `--help` prints the help page and ends the program.

    `--help=GROUP` prints one group of flags.

    Args:
      arguments: The command line with the program's name first, as `sys.argv`.
      values: The flags, from `define`.
      usage: The lines above the flags on the help page.
      words: Whether words that are no flags may be given.
      known: The fields that flags were defined for; None: those of `Config`.
      dataset: The data set that is meant where none is given: the help page has the
        defaults of what is chosen beside `--help`. None: it has none of a run.

    Returns:
      These words.

    Raises:
      ValueError: A flag is not known or its value cannot be read; in one line.
    """
    asked = [text for text in arguments[1:] if text.partition("=")[0] in _HELP]
    if asked:
        others = [text for text in arguments if text not in asked]
        page = help_page(
            as_started(usage, arguments[0]),
            known=known,
            group=asked[0].partition("=")[2],
            defaults=None if dataset is None else _defaults(others, values, dataset),
        )
        print(page)
        raise SystemExit(0)
    try:
        rest = values(list(arguments))[1:]
    except flags.UnrecognizedFlagError as error:
        name = error.flagname
        raise ValueError(f"--{name} is not a flag; {_meant(name, values)}") from error
    except flags.Error as error:
        raise ValueError(_unreadable(str(error), known)) from error
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
    usage: str,
    width: int | None = None,
    known: Sequence[Field] | None = None,
    *,
    group: str = "",
    defaults: Config | None = None,
) -> str:
    """Flags by group, with bounds and defaults.

    Args:
      usage: The lines above the flags.
      width: Columns; None: as the terminal has.
      known: The fields to show; None: those of `Config`.
      group: The only group to show, without the lines above; empty: all.
      defaults: A complete configuration, whose values are the defaults; None: the page
        only says what decides them.

    Raises:
      ValueError: There is no such group.
    """
    width = width or min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)
    shown = fields() if known is None else known
    groups = list(dict.fromkeys(field.group for field in shown))
    if group:
        checks.choice("--help", group, groups)
    lines = [usage.strip()] if usage and not group else []
    if defaults is not None:
        names = ("algo", "dataset", "setting", "scale")
        chosen = " ".join(f"--{name}={getattr(defaults, name)}" for name in names)
        about = (
            f"Defaults are those of {chosen}; choose others beside --help to see "
            f"theirs. --help=GROUP has one group only: {', '.join(groups)}."
        )
        lines += ["", *textwrap.wrap(about, width)]
    for title in [group] if group else groups:
        lines += ["", title.upper()]
        for field in shown:
            lines += _entry(field, width, defaults) if field.group == title else []
    return "\n".join(lines).lstrip("\n")


def _defaults(
    arguments: Sequence[str], values: flags.FlagValues, dataset: str
) -> Config:
    """What a run would be; a mistake among the choices is not the help page's topic."""
    accelerator = not on_cpu()
    try:
        values(list(arguments))
        return resolve(given(values), dataset=dataset, accelerator=accelerator).config
    except (flags.Error, ValueError):
        return resolve({}, dataset=dataset, accelerator=accelerator).config


def _meant(name: str, known: Iterable[str]) -> str:
    """The question after a flag that is none: `lr` is short for two of them."""
    word = _SYNONYMS.get(name, name)
    longer = [f"--{flag}" for flag in known if flag.endswith(f"_{word}")]
    if longer:
        *others, last = longer
        return f"did you mean {' or '.join(filter(None, [', '.join(others), last]))}?"
    return checks.did_you_mean(name, known, "see --help.", prefix="--")


def _entry(field: Field, width: int, defaults: Config | None) -> list[str]:
    name = f"--[no]{field.name}" if field.kind is bool else f"--{field.name}"
    room = width - len(_INDENT)
    lines = textwrap.wrap(_text(field, defaults), room, break_on_hyphens=False)
    return [f"  {name}{_KINDS[field.kind][1]}", *(_INDENT + line for line in lines)]


def _text(field: Field, defaults: Config | None = None) -> str:
    """What it is, what it may be, and what it is by default."""
    limits = field.limits()
    if defaults is not None:
        default = _default_in(defaults, field)
    elif field.default is not None:
        default = f"Default: {_shown(field.default)}."
    elif field.usual is not None:
        default = f"Default: {_shown(field.usual)}."
    elif field.name in decided():
        default = "Default: by setting."
    else:
        default = "Default: by algorithm." if field.option else ""
    parts = [field.help, f"({limits})" if limits else "", default]
    return " ".join(part for part in parts if part)


def _default_in(defaults: Config, field: Field) -> str:
    """What a run has there, or why that would mean nothing to it."""
    for line in unused(defaults, [field.name]):
        return f"H{line.removeprefix(f'{field.name} h')}"
    value = getattr(defaults, field.name)
    if value is None:
        return "Default: by algorithm." if field.option else ""
    return f"Default: {_shown(value)}."


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return str(default).lower() if isinstance(default, bool) else str(default)


def _unreadable(message: str, known: Sequence[Field] | None) -> str:
    """The parser's complaint in the words of `Config`."""
    match = re.match(r"flag --(\w+)=(.*?): ", message, re.DOTALL)
    kinds = {field.name: field.kind for field in (fields() if known is None else known)}
    wanted = _KINDS[kinds.get(match[1], str)][2] if match else ""
    if not match or not wanted:
        return f"{' '.join(message.split())}; see --help."
    return f"{match[1]} = {match[2]!r}, but it must be {wanted}."
