"""Built-in digits in place of a data set that cannot be had: when, and how it is said.

Who names no data set can try a command anywhere: on the digits, in a folder that says
so. Where nobody watches, a run that is about other data than it was started for is
refused instead.
"""

import sys
from collections.abc import Sequence

from afga_jax import data
from afga_jax.data.own import IMAGES
from afga_jax.data.store import sources
from afga_jax.runs.config import Config
from afga_jax.runs.settings import Resolved, stood_in

_STORED = (*IMAGES, "shakespeare")


def settle(plans: Sequence[Resolved], *, asked: bool) -> tuple[list[Resolved], str]:
    """Runs on data that can be had.

    Args:
      plans: The runs of a command.
      asked: Whether the user wants digits to stand in, rather than nobody having named
        a data set.

    Returns:
      The runs, those on the digits with a note that says so, and the name of the first
      one's data for its folder: `cifar10`, or `digits_for_cifar10`.

    Raises:
      DataError: A data set cannot be had, and nobody would see that digits stand in.
    """
    missing: dict[str, data.DataError] = {}
    for config in {plan.config.dataset: plan.config for plan in plans}.values():
        error = _reason_missing(config) if config.stand_in else None
        if error is None:
            continue
        if not (asked or sys.stderr.isatty()):
            raise data.DataError(
                f"{error} --stand_in tries the command on the built-in digits instead."
            ) from error
        missing[config.dataset] = error
    settled = [_moved(plan, missing.get(plan.config.dataset)) for plan in plans]
    name = plans[0].config.dataset
    return settled, f"digits_for_{name}" if name in missing else name


def _moved(plan: Resolved, missing: data.DataError | None) -> Resolved:
    config = plan.config
    if missing is None:
        # What is there, or built in, stands in for nothing.
        builtin = config.stand_in and config.dataset not in _STORED
        return plan._replace(config=config.replace(stand_in=False)) if builtin else plan
    note = (
        f"{config.dataset} cannot be had, so THIS RUN USES THE BUILT-IN DIGITS "
        f"INSTEAD; its results say nothing about {config.dataset}. ({missing})"
    )
    return plan._replace(config=stood_in(config), notes=[note, *plan.notes])


def _reason_missing(config: Config) -> data.DataError | None:
    """Why a data set cannot be had; None: it can, or it is built in."""
    access = data.Access(config.data_dir, config.cache_dir, config.offline)
    name = config.dataset
    if name not in _STORED or sources.status(name, access).state != "missing":
        return None
    try:
        data.load_roles(access) if name == "shakespeare" else data.load(name, access)
    except data.DataError as error:
        return error
    return None
