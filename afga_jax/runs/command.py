"""What commands share: how they speak, are interrupted, and end."""

import contextlib
import logging as standard_logging
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax
from absl import flags, logging

from afga_jax.runs import plugins, processes

#: What a user, a disk, a server or too little memory can cause.
_KNOWN = (ValueError, OSError, MemoryError, jax.errors.JaxRuntimeError)

_PACKAGE = Path(__file__).parents[1]


class Interrupted(Exception):
    """Ctrl-C or SIGTERM; the run's state is saved. The text says how to go on."""


class UsageError(ValueError):
    """The command line was not understood."""


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """What is wrong while a command line is read is the user's mistake in it."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def execute(
    command: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None
) -> int:
    """Runs a command; whatever is not the program's own fault ends in one line.

    Args:
      command: Function from the arguments, the program's name first, to the exit code.
        How to go on may be the text of the `Interrupted` or `KeyboardInterrupt` that it
        raises.
      arguments: Words of the command line; None: those of this program.

    Returns:
      The exit code: 0 done; 1 an error, said in one line; 2 the flags were not
      understood; 130 stopped by Ctrl-C or SIGTERM.
    """
    arguments = sys.argv if arguments is None else arguments
    plain_notes()
    try:
        # Before flags are defined: what is registered becomes a choice of theirs.
        plugins.load(plugins.asked(arguments))
        return command(arguments)
    except (Interrupted, KeyboardInterrupt) as stop:
        at_once = " at once" if isinstance(stop, KeyboardInterrupt) else ""
        if at_once or processes.is_first():
            say(f"stopped{at_once}; {str(stop) or 'the same command goes on.'}")
        return 130
    except BrokenPipeError:
        raise  # nobody reads on, so there is nobody to tell
    except _KNOWN as error:
        line = as_started(f"error: {reason(error)}", arguments[0])
        if processes.are_several():
            processes.leave(1, line)
        say(line)
        return 2 if isinstance(error, UsageError) else 1


def reason(error: BaseException) -> str:
    """What an error says, in one line; of a file, which one.

    >>> reason(OSError(28, "No space left on device", "run/metrics.jsonl"))
    'No space left on device: run/metrics.jsonl'
    """
    if isinstance(error, OSError) and error.strerror and not error.filename2:
        of_file = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{of_file}"
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MemoryError):
        return f"there is too little memory ({text}): take fewer clients or samples."
    return text


@contextlib.contextmanager
def ending(*, own: bool) -> Iterator[None]:
    """Ends a failed program at once: its reason stays the last line.

    Threads of libraries would otherwise report, after it, that they were cut off.

    Args:
      own: Whether this process is the command's own, so that nobody else needs it.
    """
    try:
        yield
    except SystemExit as end:
        if own and isinstance(end.code, int) and end.code:
            processes.leave(end.code)
        raise


def as_started(text: str, program: str) -> str:
    """A text in the words of commands, as the user started this one.

    >>> as_started("With a network, `afga_jax.data.load('mnist')` fetches it", "afga x")
    'With a network, `afga data fetch mnist` fetches it'
    """
    text = text.replace("data.load_roles()", "data.load('shakespeare')")
    fetch = r"python -m experiments.data fetch \1"
    text = re.sub(r"afga_jax\.data\.load\('(\w+)'\)", fetch, text)
    if program.startswith("afga "):
        text = re.sub(r"[-.\w/]*python -m\s+experiments\.(\w+)", r"afga \1", text)
    return text


def interpreter() -> str:
    """How a shell finds this Python: by its name, or where no PATH leads to it."""
    own, found = Path(sys.executable), shutil.which("python")
    if found is not None and Path(found).parent == own.parent:
        return "python"
    here = Path.cwd()
    return str(own.relative_to(here) if own.is_relative_to(here) else own)


def plain_notes() -> None:
    """Notes read like a command's other lines; what libraries log is not for users."""
    if not standard_logging.getLogger().handlers:
        logging.use_absl_handler()  # before a library sets up another
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()  # or the first note is preceded by absl's own
    logging.set_verbosity(logging.WARNING)
    logging.get_absl_logger().addFilter(_is_ours)
    for name in ("asyncio", "urllib3"):
        standard_logging.getLogger(name).setLevel(standard_logging.CRITICAL)
    plain = standard_logging.Formatter("note: %(message)s")
    logging.get_absl_handler().setFormatter(plain)


def _is_ours(entry: standard_logging.LogRecord) -> bool:
    return Path(entry.pathname).is_relative_to(_PACKAGE)


def say(text: str) -> None:
    """A line beside the command's output."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def remembered() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM are only remembered, and said; the second stops at once.

    Yields:
      A function that tells whether one came.
    """
    seen: list[int] = []

    def remember(number, frame):
        del frame
        if seen:
            raise KeyboardInterrupt
        seen.append(number)
        if processes.is_first():
            # Not `say`: the signal may have come amid a line of the same stream.
            os.write(2, b"\nstopping after this round; again: at once\n")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # Python gives signals to the main thread only
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, remember) for number in numbers}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
