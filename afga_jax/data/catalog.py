"""The papers' data sets: what each must hold, and the one error that users can meet.

Samples are kept in the order of the original archives, so that one partition seed deals
the same samples to the same clients whichever way a data set arrived.
"""

import dataclasses
from collections.abc import Mapping


class DataError(ValueError):
    """A data set is missing, damaged or cannot be fetched; one line says what to do."""


@dataclasses.dataclass(frozen=True)
class ImageSpec:
    """What a labelled image set must hold.

    Attributes:
      name: TFDS's name, which is also ours.
      form: Form of the originals: `"cifar"` (the binary version) or `"idx"` (MNIST's).
      counts: Number of samples of each split.
      shape: Height, width and channels of an image.
      num_classes: Number of classes.
      digests: `cache.array_digest` of each decoded array; empty: not known, so nothing
        is compared.
    """

    name: str
    form: str
    counts: Mapping[str, int]
    shape: tuple[int, int, int]
    num_classes: int
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def prepared_name(self) -> str:
        """Name of the folder where TFDS keeps the set."""
        return self.name


@dataclasses.dataclass(frozen=True)
class TextSpec:
    """What a set of speaking roles must hold, in LEAF's counts.

    Attributes:
      name: Our name.
      prepared_name: Name of the folder where TFDS keeps the set.
      roles: Number of (play, speaker) roles.
      samples: Number of 80-character windows that have a next character.
      digests: As in `ImageSpec`.
    """

    name: str
    prepared_name: str
    roles: int
    samples: int
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)


Spec = ImageSpec | TextSpec


def find(name: str) -> Spec:
    """The description of a data set.

    Args:
      name: A name in `CATALOG`.

    Returns:
      Its description.

    Example:
      >>> find("cifar100").num_classes
      100
    """
    if name not in CATALOG:
        raise DataError(
            f"there is no data set {name!r}; choose one of {', '.join(CATALOG)}."
        )
    return CATALOG[name]


CATALOG: dict[str, Spec] = {
    "cifar10": ImageSpec(
        name="cifar10",
        form="cifar",
        counts={"train": 50_000, "test": 10_000},
        shape=(32, 32, 3),
        num_classes=10,
        digests={
            "train_inputs": "c97d2b688c6176b257aab9b596fade69",
            "train_targets": "9afa7d3bc6ce0f7ff661c87b9f59e76c",
            "test_inputs": "ebe3b85d5a0063d7ce17cde3cdaef560",
            "test_targets": "3ee5d1904cf9bafb61972a3a273adbbe",
            "label_names": "551b22433676d2c6bc4eda7bf8de539d",
        },
    ),
    "cifar100": ImageSpec(
        name="cifar100",
        form="cifar",
        counts={"train": 50_000, "test": 10_000},
        shape=(32, 32, 3),
        num_classes=100,
        digests={
            "train_inputs": "c973778083643c6d7f86efa2560df571",
            "train_targets": "b7e0dc30759f2a1779a33ae00754de70",
            "test_inputs": "96205c127af9f9f430f949f9efc4d05a",
            "test_targets": "ef112bb9817ff6bc024f28ec78808756",
            "label_names": "32768255d0e6619185030936b1045a42",
        },
    ),
    "fashion_mnist": ImageSpec(
        name="fashion_mnist",
        form="idx",
        counts={"train": 60_000, "test": 10_000},
        shape=(28, 28, 1),
        num_classes=10,
        digests={
            "train_inputs": "b23b490b5513f5991ae2eb4425ed74da",
            "train_targets": "f7d90c8e0597c8ab3b46787bcf1f8770",
            "test_inputs": "1e521cc539052fed7c842f40dcc20042",
            "test_targets": "e1e358c4a2801fdda153820b43681fe9",
            "label_names": "8f807e6fa9923ed93718ff56a58f90e0",
        },
    ),
    "mnist": ImageSpec(
        name="mnist",
        form="idx",
        counts={"train": 60_000, "test": 10_000},
        shape=(28, 28, 1),
        num_classes=10,
        digests={
            "train_inputs": "5dce3c3ed22dfeb798804346e0d1a31e",
            "train_targets": "fd301c96571a62c9f4326bbc289ff94f",
            "test_inputs": "9198685fa41be5459f327ea796c4df36",
            "test_targets": "b15787ccc35f28b20f46e33f73bd8bde",
            "label_names": "42e9ffae0a40e40acf28c49da99e5ba4",
        },
    ),
    "shakespeare": TextSpec(
        name="shakespeare",
        prepared_name="leaf_shakespeare",
        roles=1129,
        samples=4_226_158,
        digests={
            "user": "a0c3cad04fe13ceaaaf83fe9834cc365",
            "play": "a7aca8ba803eb700aad45496efe3446c",
            "speaker": "b799e4f9d38be73c2f4514fe2eea460f",
            "text": "a5610e4062cc03057ec78c57794f77d1",
            "ends": "3283a53991562252efa0a3953a7fc8c6",
        },
    ),
}
