"""From a configuration to a run's faults, liars and defences: names become values."""

from typing import Any

from afga_jax.gossip.robust import DEFENCES
from afga_jax.optimizers.aggregators import AGGREGATORS, Aggregator
from afga_jax.optimizers.attacks import ATTACKS, Attack
from afga_jax.optimizers.compressors import COMPRESSORS, Compressor
from afga_jax.population import availability
from afga_jax.population.faults import Faults
from afga_jax.runs.config import Config

# Settings that belong to an aggregator, by its own names for them.
_SETTINGS = {
    "trimmed_mean": {"b": "assumed_liars"},
    "krum": {"f": "assumed_liars", "multi": "krum_multi"},
    "centred_clipping": {"radius": "clip_radius", "iterations": "clip_iterations"},
    "norm_clipping": {"radius": "clip_radius"},
}
_COMPRESSED = ("compress_uploads", "compress_gossip")
_OF_COMPRESSOR = {
    "top_k": ("compress_ratio",),
    "random_k": ("compress_ratio",),
    "qsgd": ("bits",),
}
_NEEDED = ("assumed_liars", "clip_radius")


def options(config: Config, classes: int | None) -> dict[str, Any]:
    """Options of `afga_jax.build` for hard conditions; None: as the algorithm has it.

    Args:
      config: The run's configuration.
      classes: Number of the data's classes; None: there are none.

    Raises:
      ValueError: A setting is missing, or belongs to nothing that is chosen.
    """
    if config.dp_delta is not None and config.dp_noise is None:
        raise ValueError(
            f"dp_delta = {config.dp_delta:g}, but uploads have no noise that it could "
            "say something of: set dp_clip and dp_noise, or leave dp_delta out."
        )
    used = set(_SETTINGS.get(config.aggregator or "", {}).values())
    aggregator, defence = _aggregator(config), None
    if config.gossip_defence is not None:
        if config.assumed_liars is None:
            raise ValueError(
                f"gossip_defence = {config.gossip_defence!r} needs assumed_liars, the "
                "number of neighbours of a client that may lie: set assumed_liars."
            )
        used |= {"assumed_liars"}
        defence = DEFENCES[config.gossip_defence](config.assumed_liars)
    _check_used(config, used)
    return {
        "aggregator": aggregator,
        "faults": _faults(config),
        "attack": _attack(config, classes),
        "gossip_defence": defence,
        **_compression(config),
    }


def _compression(config: Config) -> dict[str, Compressor | None]:
    """The compressors of uploads and of gossip, which share their settings."""
    wanted = {name: getattr(config, name) for name in _COMPRESSED}
    made: dict[str, Compressor | None] = dict.fromkeys(wanted)
    used: set[str] = set()
    for name, kind in wanted.items():
        settings = _OF_COMPRESSOR.get(kind, ())
        used.update(settings)
        for setting in settings:
            if getattr(config, setting) is None:
                raise ValueError(f"{name} = {kind!r} needs {setting}: set {setting}.")
        if kind is not None:
            made[name] = COMPRESSORS[kind](*(getattr(config, s) for s in settings))
    for (setting,) in _OF_COMPRESSOR.values():
        if getattr(config, setting) is not None and setting not in used:
            raise ValueError(
                f"{setting} = {getattr(config, setting)}, but nothing that is "
                f"compressed here reads it: leave {setting} out, or set "
                f"{' or '.join(_COMPRESSED)}."
            )
    return made


def _attack(config: Config, classes: int | None) -> Attack | None:
    name, share, scale = config.attack, config.liars, config.attack_scale
    if name is None:
        for field, value in (("liars", share), ("attack_scale", scale)):
            if value:
                raise ValueError(
                    f"{field} = {value:g}, but nobody says what liars do: set attack, "
                    f"or leave {field} out."
                )
        return None
    if share is None:
        raise ValueError(f"attack = {name!r} needs liars: set it, 0.2 is every fifth.")
    given: dict[str, Any] = {} if scale is None else {"scale": scale}
    if name == "label_flip":
        if classes is None:
            raise ValueError(
                f"attack = {name!r}, but {config.dataset} has no classes: take another."
            )
        given["classes"] = classes
    if scale is not None and name in ("label_flip", "nan"):
        raise ValueError(
            f"attack_scale = {scale:g}, but {name} has no scale: leave it out."
        )
    # A curve over the share of liars begins at none.
    return ATTACKS[name](share, **given) if share else None


def _faults(config: Config) -> Faults | None:
    """What fails; None: nothing."""
    names = ("client_dropout", "link_failure", "straggler", "upload_loss")
    rates = {name: getattr(config, name) for name in names}
    if config.hours_per_round is not None and config.availability is None:
        raise ValueError(
            f"hours_per_round = {config.hours_per_round:g}, but there is no file that "
            "it is about: set availability, or leave it out."
        )
    if config.availability is None:
        return Faults(**rates) if any(rates.values()) else None
    table = availability.read(config.availability, config.hours_per_round)
    return Faults(**rates, availability=table)


def _aggregator(config: Config) -> Aggregator | None:
    name, given = config.aggregator, {}
    if name is None:
        return None
    for own, field in _SETTINGS.get(name, {}).items():
        if (value := getattr(config, field)) is not None:
            given[own] = value
        elif field in _NEEDED:
            raise ValueError(f"aggregator = {name!r} needs {field}: set {field}.")
    return AGGREGATORS[name](**given)


def _check_used(config: Config, used: set[str]) -> None:
    """Refuses settings of a defence that is not chosen."""
    for field in sorted({name for own in _SETTINGS.values() for name in own.values()}):
        if getattr(config, field) is not None and field not in used:
            names = [name for name, own in _SETTINGS.items() if field in own.values()]
            raise ValueError(
                f"{field} = {getattr(config, field)}, but nothing here reads it: set "
                f"aggregator to {' or '.join(names)}, or leave {field} out."
            )
