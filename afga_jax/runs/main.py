"""The command `afga`: every experiment by its name, in a clone or without one."""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from afga_jax.checks import did_you_mean

_HELP = ("--help", "-help", "-h", "help")
# What a shell says of a program that SIGPIPE ended.
_UNREAD = 128 + 13


class Command(NamedTuple):
    """What a person can start.

    Attributes:
      about: What it does, in a sentence.
      dataset: The data set that a command trains on where none is given; None: the
        command is the function of its name, in a module of `afga_jax.runs.commands`
        of the same name that has its own help.
      examples: Flags to try, one line each.
    """

    about: str
    dataset: str | None = None
    examples: tuple[str, ...] = ()


COMMANDS = {
    "digits": Command(
        "Trains on scikit-learn's handwritten digits: no download, seconds on a CPU.",
        "digits",
        ("--algo=afga", "--algo=cafga --num_seeds=3"),
    ),
    "cifar": Command(
        "Trains on CIFAR-10, or `--dataset=cifar100`; the data arrives by itself.",
        "cifar10",
        ("--algo=afga", "--algo=cafga --setting=1 --scale=paper --num_seeds=3"),
    ),
    "shakespeare": Command(
        "Predicts the next character of Shakespeare's roles, dealt to clients.",
        "shakespeare",
        ("--algo=afga", "--algo=fedavg --partition=natural --num_clients=1129"),
    ),
    "fashion_mnist": Command(
        "Trains on Fashion-MNIST as HA-Fed does: shards, a small CNN.",
        "fashion_mnist",
        ("--algo=hafed_partial", "--algo=fedamsgrad --model=convmixer"),
    ),
    "mnist": Command(
        "Trains on MNIST as FedCluster does: a major class each, clusters in turns.",
        "mnist",
        ("--algo=fedcluster", "--algo=fedavg --rho_device=0.9"),
    ),
    "synthetic": Command(
        "Minimises a quadratic, or `--dataset=logistic`, `gaussians`: optimum known.",
        "quadratic",
        ("--algo=afga --sigma_g=2", "--algo=hafed --dataset=gaussians --local_global"),
    ),
    "compare": Command("Several runs side by side: one table, one figure."),
    "sweep": Command("A grid of runs: every flag may have several values."),
    "explore": Command(
        "Looks into a round: a page of who computes, mixes and uploads."
    ),
    "advise": Command(
        "Which graph, clusters and frequency of gossip: best first, no training."
    ),
    "report": Command("One or several runs on a page that can be sent."),
    "paper": Command("The papers' tables and figures, each by its name."),
    "data": Command("Data sets on this machine: list, fetch, check, show a split."),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """What `afga` calls: starts the command that the first word names.

    Args:
      arguments: The words after `afga`; None: those of the command line.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in _HELP:
        with unread():
            print(_listing())
        sys.exit(0)
    name, *rest = words
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS, "afga --help lists all.")
        print(f"error: {name!r} is not a command; {hint}", file=sys.stderr)
        sys.exit(2)
    start(name, [f"afga {name}", *rest], own=arguments is None)


def start(
    name: str, arguments: Sequence[str] | None = None, *, own: bool = False
) -> None:
    """Starts a command, which ends the program.

    Args:
      name: One of `COMMANDS`.
      arguments: With the way it was started first, which hints to the user repeat;
        None: the command line's, of `python -m experiments.NAME`.
      own: Whether this process is the command's own, as it is where the
        arguments are None.
    """
    # Imported late: the list of commands should not wait for it.
    from afga_jax.runs import command

    words = arguments or [f"python -m experiments.{name}", *sys.argv[1:]]
    about, dataset, examples = COMMANDS[name]
    with command.ending(own=own or arguments is None), unread():
        if dataset is None:
            module = importlib.import_module(f"afga_jax.runs.commands.{name}")
            sys.exit(command.execute(getattr(module, name), words))
        from afga_jax.runs import runner

        lines = [f"    {words[0]} {example}" for example in examples]
        runner.main(dataset, "\n".join([about, "", *lines]), words)


@contextlib.contextmanager
def unread() -> Iterator[None]:
    """Who stops reading, as `head` does, ends the program without a word."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python would try again, and complain, when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_UNREAD)


def _listing() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {about}" for name, (about, *_) in COMMANDS.items()]
    usage = "usage: afga COMMAND [--flag=value ...]; each COMMAND has its own --help"
    return "\n".join([usage, "", *lines])
