"""What commands over several runs share: how they end, and how they speak."""

import logging as standard_logging
import sys
from collections.abc import Callable, Sequence

import jax
from absl import logging

from experiments.interrupts import Interrupted


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
    plain_notes()
    try:
        return command(sys.argv if arguments is None else arguments)
    except (Interrupted, KeyboardInterrupt):
        say("stopped; the same command goes on.")
        return 130
    except (ValueError, OSError, jax.errors.JaxRuntimeError) as error:
        say(f"error: {' '.join(str(error).split())}")
        return 2 if isinstance(error, UsageError) else 1


def plain_notes() -> None:
    """Notes read like a command's other lines; what libraries log is not for users."""
    logging.set_verbosity(logging.WARNING)
    plain = standard_logging.Formatter("note: %(message)s")
    logging.get_absl_handler().setFormatter(plain)


def say(text: str) -> None:
    """A line beside the command's output."""
    print(text, file=sys.stderr, flush=True)
