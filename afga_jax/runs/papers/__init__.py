"""The papers' tables and figures by name."""

from afga_jax.checks import did_you_mean
from afga_jax.runs.papers import (
    afga,
    claims,
    conditions,
    fedcluster,
    hafed,
    reached,
    semi_decentralised,
    topologies,
    trial,
)
from afga_jax.runs.papers.declaration import Declaration, Study

__all__ = ["NAMES", "find", "listing"]

_OF_PAPERS = sorted(
    (*afga.DECLARATIONS, *hafed.DECLARATIONS, *fedcluster.DECLARATIONS),
    key=lambda each: (each.name.split("-")[0], "figure" in each.name, each.name),
)
_OUR_OWN = (
    *(trial.STUDY, reached.STUDY, topologies.STUDY, claims.STUDY),
    *conditions.STUDIES,
    *semi_decentralised.STUDIES,
)
NAMES: dict[str, Declaration | Study] = {each.name: each for each in _OF_PAPERS}
NAMES |= {each.name: each for each in _OUR_OWN}


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
    return "\n".join(
        f"{name:{width}}  {subject.title}" for name, subject in NAMES.items()
    )
