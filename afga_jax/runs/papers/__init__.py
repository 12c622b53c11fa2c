"""The papers' tables and figures by name."""

from afga_jax.checks import did_you_mean
from experiments.papers import afga, checks, fedcluster, hafed, reach, theory
from experiments.papers.declaration import Declaration, Study

__all__ = ["NAMES", "find", "listing"]

NAMES: dict[str, Declaration | Study] = {
    one.name: one
    for one in sorted(
        (*afga.DECLARATIONS, *hafed.DECLARATIONS, *fedcluster.DECLARATIONS),
        key=lambda one: (one.name.split("-")[0], "figure" in one.name, one.name),
    )
} | {one.name: one for one in (theory.STUDY, reach.STUDY, checks.STUDY)}


def find(name: str) -> Declaration | Study:
    """What a name stands for.

    Raises:
      ValueError: Nothing; the message suggests the nearest.
    """
    if name in NAMES:
        return NAMES[name]
    hint = did_you_mean(name, NAMES, "--list shows all names.")
    raise ValueError(f"{name!r} is no table or figure; {hint}")


def listing() -> str:
    """All names with what they show."""
    width = max(map(len, NAMES))
    return "\n".join(f"{name:{width}}  {one.title}" for name, one in NAMES.items())
