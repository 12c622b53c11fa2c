"""Whether decoded arrays are the data set that they are said to be."""

import numpy as np

from afga_jax.data import cache
from afga_jax.data.cache import Arrays
from afga_jax.data.catalog import ImageSpec, Spec, TextSpec
from afga_jax.data.roles import unpack
from afga_jax.data.shakespeare import num_samples

_PARTS = ("inputs", "targets")


def problems(spec: Spec, arrays: Arrays) -> list[str]:
    """Everything in which arrays differ from what the data set must hold.

    Counts and labels are looked at before digests, because they tell more.

    Args:
      spec: The data set.
      arrays: What was decoded.

    Returns:
      One phrase per difference; empty: it is the data set.
    """
    missing = sorted(_fields(spec) - arrays.keys())
    if missing:
        return [f"{name} is missing" for name in missing]
    if isinstance(spec, ImageSpec):
        found = [
            *_split_problems(spec, arrays, "train"),
            *_split_problems(spec, arrays, "test"),
        ]
        names = len(arrays["label_names"])
        if names != spec.num_classes:
            found.append(f"{names} label names for {spec.num_classes} classes")
    else:
        found = _role_problems(spec, arrays)
    if spec.digests:
        digests = {name: cache.array_digest(array) for name, array in arrays.items()}
        found += [
            f"{name} has digest {digests.get(name)}, not {spec.digests.get(name)}"
            for name in cache.differences(digests, spec.digests)
        ]
    return found


def _fields(spec: Spec) -> set[str]:
    if isinstance(spec, TextSpec):
        return {"user", "play", "speaker", "text", "ends"}
    arrays = {f"{split}_{part}" for split in spec.counts for part in _PARTS}
    return arrays | {"label_names"}


def _split_problems(spec: ImageSpec, arrays: Arrays, split: str) -> list[str]:
    inputs, targets = (arrays[f"{split}_{part}"] for part in _PARTS)
    count = spec.counts[split]
    found = []
    if inputs.shape != (count, *spec.shape) or inputs.dtype != np.uint8:
        found.append(
            f"{split} images are {inputs.dtype}{list(inputs.shape)}, not "
            f"uint8{[count, *spec.shape]}"
        )
    if targets.shape != (count,):
        found.append(f"{split} has {targets.size:,} labels, not {count:,}")
    outside = (targets < 0) | (targets >= spec.num_classes)
    if outside.any():
        found.append(
            f"{split} label {targets[outside][0]} of sample {np.argmax(outside)} is "
            f"outside [0, {spec.num_classes})"
        )
    return found


def _role_problems(spec: TextSpec, arrays: Arrays) -> list[str]:
    roles = unpack(arrays)
    samples = sum(num_samples(role.text) for role in roles)
    if (len(roles), samples) == (spec.roles, spec.samples):
        return []
    return [
        f"{len(roles):,} roles and {samples:,} samples, not {spec.roles:,} and "
        f"{spec.samples:,}"
    ]
