"""From a configuration to the defences of a run: names become what they stand for."""

from typing import Any

from afga_jax.optimizers.aggregators import AGGREGATORS, Aggregator
from afga_jax.runs.config import Config

# Settings that belong to an aggregator, by its own names for them.
_SETTINGS = {
    "trimmed_mean": {"b": "assumed_liars"},
    "krum": {"f": "assumed_liars", "multi": "krum_multi"},
    "centred_clipping": {"radius": "clip_radius", "iterations": "clip_iterations"},
    "norm_clipping": {"radius": "clip_radius"},
}
_NEEDED = ("assumed_liars", "clip_radius")


def options(config: Config) -> dict[str, Any]:
    """Options of `afga_jax.build` for hard conditions; None: as the algorithm has it.

    Raises:
      ValueError: A setting is missing, or belongs to nothing that is chosen.
    """
    aggregator, used = _aggregator(config)
    _check_used(config, used)
    return {"aggregator": aggregator}


def _aggregator(config: Config) -> tuple[Aggregator | None, set[str]]:
    """The aggregator, and the settings that it reads."""
    name = config.aggregator
    if name is None:
        return None, set()
    settings = _SETTINGS.get(name, {})
    given = {own: getattr(config, field) for own, field in settings.items()}
    for own, field in settings.items():
        if field in _NEEDED and given[own] is None:
            raise ValueError(f"aggregator = {name!r} needs {field}: set {field}.")
    given = {own: value for own, value in given.items() if value is not None}
    return AGGREGATORS[name](**given), set(settings.values())


def _check_used(config: Config, used: set[str]) -> None:
    """Refuses settings of a defence that is not chosen."""
    for field in sorted({name for own in _SETTINGS.values() for name in own.values()}):
        if getattr(config, field) is not None and field not in used:
            names = [name for name, own in _SETTINGS.items() if field in own.values()]
            raise ValueError(
                f"{field} = {getattr(config, field)}, but nothing here reads it: set "
                f"aggregator to {' or '.join(names)}, or leave {field} out."
            )
