"""Checks of what users pass in: a message names the value, the bound and the fix.

Numbers that are swept reach the same code again as traced values, and a schedule is a
function of the round. Neither has a value to look at, so only concrete numbers are
checked; they were when the algorithm was built.
"""

import difflib
import numbers
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    fix: str = "",
) -> None:
    """Refuses a concrete number outside its bounds.

    >>> number("eps", 0.0, above=0, fix="try 1e-8")
    Traceback (most recent call last):
    ...
    ValueError: eps = 0.0, but it must be > 0: try 1e-8.
    """
    if not is_concrete(value):
        return
    if np.ndim(value):
        # One for each client: the first that is wrong is named.
        limits = {"above": above, "at_least": at_least}
        limits |= {"below": below, "at_most": at_most}
        for client, own in enumerate(np.asarray(value)):
            number(f"{name}[{client}]", own, **limits, fix=fix)
        return
    value = float(value)
    bounds = [
        (above, "> ", above is None or value > above),
        (at_least, ">= ", at_least is None or value >= at_least),
        (below, "< ", below is None or value < below),
        (at_most, "<= ", at_most is None or value <= at_most),
    ]
    if np.isfinite(value) and all(holds for _, _, holds in bounds):
        return
    wanted = " and ".join(
        f"{sign}{bound:g}" for bound, sign, _ in bounds if bound is not None
    )
    wanted = wanted if np.isfinite(value) else f"finite and {wanted}"
    hint = f": {fix}" if fix else ""
    raise ValueError(f"{name} = {value!r}, but it must be {wanted}{hint}.")


def integer(
    name: str,
    value: Any,
    *,
    at_least: int = 1,
    at_most: int | None = None,
    fix: str = "",
) -> None:
    """Refuses what is not a whole number within its bounds."""
    hint = f": {fix}" if fix else ""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ValueError(f"{name} = {value!r}, but it must be a whole number{hint}.")
    value = int(value)
    if value < at_least:
        raise ValueError(f"{name} = {value}, but it must be >= {at_least}{hint}.")
    if at_most is not None and value > at_most:
        raise ValueError(f"{name} = {value}, but it must be <= {at_most}: lower it.")


def boolean(name: str, value: Any) -> None:
    """Refuses what is neither true nor false."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} = {value!r}, but it must be true or false.")


def choice(name: str, value: Any, options: Iterable[str]) -> None:
    """Refuses a name that is not among the options and suggests the nearest.

    >>> choice("topology", "rign", ["ring", "star"])
    Traceback (most recent call last):
    ...
    ValueError: topology = 'rign' is not known; did you mean 'ring'? Known: ring, star.
    """
    options = list(options)
    if value in options:
        return
    hint = did_you_mean(str(value), options)
    raise ValueError(
        f"{name} = {value!r} is not known{f'; {hint}' if hint else '.'} Known: "
        f"{', '.join(options)}."
    )


def names(given: Iterable[str], known: Iterable[str], kind: str = "") -> None:
    """Refuses a name that is not known and suggests the nearest.

    >>> names(["lokal_lr"], ["local_lr", "eps"], "option")
    Traceback (most recent call last):
    ...
    ValueError: option 'lokal_lr' is not known; did you mean 'local_lr'?
    """
    known = list(known)
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known, f"known: {', '.join(known)}.")
            raise ValueError(f"{kind} {name!r} is not known; {hint}".lstrip())


def did_you_mean(
    name: str, known: Iterable[str], otherwise: str = "", *, prefix: str = ""
) -> str:
    """The question after a mistyped name, or what to say where nothing is near.

    Args:
      name: The name as it was typed.
      known: What it may be.
      otherwise: The text where nothing is near.
      prefix: What stands before all these names, such as `--`.
    """
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    if not near:
        return otherwise
    return f"did you mean {prefix + near[0] if prefix else repr(near[0])}?"


def is_concrete(value: Any) -> bool:
    """True for a number or an array, false for a traced value or a schedule."""
    if isinstance(value, jax.core.Tracer):
        return False
    return isinstance(value, numbers.Real | np.ndarray | np.generic | jax.Array)
