"""What commands share: how they speak, are interrupted, and end."""

import contextlib
import logging as standard_logging
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

import jax
from absl import logging


class Interrupted(Exception):
    """Ctrl-C or SIGTERM; the run's state is saved."""


class UsageError(ValueError):
    """The command line was not understood."""


def execute(
    command: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None
) -> int:
    """Runs a command; a user's mistake is one line.

    Args:
      command: Takes the arguments, the program's name first; returns the exit code.
      arguments: None: the command line's.

    Returns:
      The exit code: 0 done; 1 an error, said in one line; 2 the flags were not
      understood; 130 stopped by Ctrl-C or SIGTERM.
    """
    arguments = sys.argv if arguments is None else arguments
    plain_notes()
    try:
        return command(arguments)
    except (Interrupted, KeyboardInterrupt):
        say("stopped; the same command goes on.")
        return 130
    except (ValueError, OSError, jax.errors.JaxRuntimeError) as error:
        say(as_started(f"error: {' '.join(str(error).split())}", arguments[0]))
        return 2 if isinstance(error, UsageError) else 1


def as_started(text: str, program: str) -> str:
    """A text in the words of commands, as the user started this one.

    >>> as_started("With a network, `afga_jax.data.load('mnist')` fetches it", "afga x")
    'With a network, `afga data fetch mnist` fetches it'
    """
    text = text.replace("data.load_roles()", "data.load('shakespeare')")
    fetch = r"python -m experiments.data fetch \1"
    text = re.sub(r"afga_jax\.data\.load\('(\w+)'\)", fetch, text)
    if program.startswith("afga "):
        text = re.sub(r"python -m\s+experiments\.(\w+)", r"afga \1", text)
    return text


def plain_notes() -> None:
    """Notes read like a command's other lines; what libraries log is not for users."""
    logging.set_verbosity(logging.WARNING)
    plain = standard_logging.Formatter("note: %(message)s")
    logging.get_absl_handler().setFormatter(plain)


def say(text: str) -> None:
    """A line beside the command's output."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def remembered() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM are only remembered; the second one stops at once.

    Yields:
      A function that tells whether one came.
    """
    seen: list[int] = []

    def remember(number, frame):
        del frame
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

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
