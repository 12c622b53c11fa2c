"""The stored data sets: what each must hold, and the one error that users can meet.

Samples are kept in the order of the original archives, so that one partition seed deals
the same samples to the same clients whichever way a data set arrived.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from afga_jax.data.text.shakespeare import num_samples, unpack

# Decoded arrays of a data set by their names.
Content = Mapping[str, np.ndarray]


class DataError(ValueError):
    """A data set is missing, damaged or cannot be fetched; one line says what to do."""


def reason(error: BaseException) -> str:
    """The message of a library's error, in one line of at most 200 characters."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def digests_of(content: Content) -> dict[str, str]:
    """The first 128 bits of the SHA-256 of each array's type, shape and numbers.

    Args:
      content: Arrays without Python objects, by their names.

    Returns:
      Digests of 32 hexadecimal digits, by the same names.

    Example:
      >>> digests_of({"x": np.arange(3)}) == digests_of({"x": np.arange(3.0)})
      False
    """
    digests = {}
    for name, array in content.items():
        digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        digests[name] = digest.hexdigest()[:32]
    return digests


def differences(digests: Mapping[str, str], expected: Mapping[str, str]) -> list[str]:
    """Names of the arrays whose digest differs or that only one side has."""
    names = sorted(digests.keys() | expected.keys())
    return [name for name in names if digests.get(name) != expected.get(name)]


class Tables(NamedTuple):
    """Parquet files that hold a data set, in Hugging Face's form.

    Nobody has published a checksum of them: the first fetch records it.

    Attributes:
      address: Address of the folder of all files.
      files: Path of each split's file below it, and about how many bytes it has; the
        column of the images is `image`.
      label: Column of the labels.
      client: Column that says whose a sample is; None: none does.
    """

    address: str
    files: Mapping[str, tuple[str, float]]
    label: str = "label"
    client: str | None = None


@dataclasses.dataclass(frozen=True)
class ImageSpec:
    """What a labelled image set must hold.

    Attributes:
      name: Name of the data set, here and in TFDS.
      form: Form of the originals: `"cifar"` (the binary version), `"idx"` (MNIST's) or
        `"parquet"`.
      counts: Number of samples of each split; without `"test"`, a fifth of each
        client's are for testing.
      shape: Height, width and channels of an image.
      num_classes: Number of classes.
      label_names: Names of the classes where the originals do not hold them.
      digests: Digest of each decoded array, see `digests_of`; empty: not known, so
        nothing is compared.
      tables: Where the files are and what their columns mean; None: another form.
    """

    name: str
    form: str
    counts: Mapping[str, int]
    shape: tuple[int, int, int]
    num_classes: int
    label_names: Sequence[str] = ()
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tables: Tables | None = None

    @property
    def prepared_name(self) -> str:
        """Name of the folder where TFDS keeps the set."""
        return self.name

    @property
    def unverified(self) -> bool:
        """Whether nobody has published checksums of the files or of what they hold."""
        return self.tables is not None and not self.digests

    @property
    def counts_in_words(self) -> str:
        """The counts, for messages."""
        counts = [f"{count:,} {split}" for split, count in self.counts.items()]
        return ", ".join([*counts, f"{self.num_classes} classes"])

    def miscounts(self, content: Content) -> list[str]:
        """Where counts, shapes or labels differ, one phrase each."""
        problems = []
        for split, count in self.counts.items():
            inputs, targets = content[f"{split}_inputs"], content[f"{split}_targets"]
            if inputs.shape != (count, *self.shape) or inputs.dtype != np.uint8:
                problems.append(
                    f"{split} images are {inputs.dtype}{list(inputs.shape)}, not "
                    f"uint8{[count, *self.shape]}"
                )
            if targets.shape != (count,):
                problems.append(f"{split} has {targets.size:,} labels, not {count:,}")
            outside = (targets < 0) | (targets >= self.num_classes)
            if outside.any():
                problems.append(
                    f"{split} label {targets[outside][0]} of sample "
                    f"{np.argmax(outside)} is outside [0, {self.num_classes})"
                )
        if self.tables and self.tables.client:
            owners, users = content["train_clients"], content["client_names"]
            if owners.shape != content["train_targets"].shape:
                problems.append(f"{owners.size:,} samples name a client")
            elif set(np.unique(owners)) != set(range(len(users))):
                problems.append(f"not every one of {len(users):,} clients has a sample")
        names = len(content["label_names"])
        if names != self.num_classes:
            problems.append(f"{names} label names for {self.num_classes} classes")
        return problems


@dataclasses.dataclass(frozen=True)
class TextSpec:
    """What a set of speaking roles must hold, in LEAF's counts.

    Attributes:
      name: Name of the data set.
      prepared_name: Name of the folder where TFDS keeps the set.
      roles: Number of (play, speaker) roles.
      samples: Number of 80-character windows that have a next character.
      plays_sha256: Checksum of the plays in the original text, see `shakespeare`.
      digests: Digest of each decoded array, see `digests_of`; empty: not known, so
        nothing is compared.
    """

    tables: ClassVar[None] = None
    unverified: ClassVar[bool] = False

    name: str
    prepared_name: str
    roles: int
    samples: int
    plays_sha256: str
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def counts_in_words(self) -> str:
        """The counts, for messages."""
        return f"{self.roles:,} roles, {self.samples:,} samples"

    def miscounts(self, content: Content) -> list[str]:
        """Where counts, shapes or labels differ, one phrase each."""
        roles = unpack(content)
        samples = sum(num_samples(role.text) for role in roles)
        if (len(roles), samples) == (self.roles, self.samples):
            return []
        return [
            f"{len(roles):,} roles and {samples:,} samples, not {self.roles:,} and "
            f"{self.samples:,}"
        ]


Spec = ImageSpec | TextSpec


def problems(spec: Spec, content: Content) -> list[str]:
    """Everything in which arrays differ from what the data set must hold.

    Counts and labels are looked at before digests, because they tell more.

    Args:
      spec: Description of the data set.
      content: Arrays that were decoded.

    Returns:
      One phrase per difference; empty: it is the data set.
    """
    try:
        miscounts = spec.miscounts(content)
    except KeyError as error:
        return [f"{error.args[0]} is missing"]
    digests = digests_of(content) if spec.digests else {}
    return miscounts + [
        f"{name} has digest {digests.get(name)}, not {spec.digests.get(name)}"
        for name in differences(digests, spec.digests)
    ]


def find(name: str) -> Spec:
    """The description of a data set.

    Args:
      name: Name of the data set, a key of `CATALOG`.

    Returns:
      What the data set must hold.

    Example:
      >>> find("cifar100").num_classes
      100
    """
    if name not in CATALOG:
        raise DataError(
            f"there is no data set {name!r}; choose one of {', '.join(CATALOG)}."
        )
    return CATALOG[name]


_CLOTHES = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
_CIFAR = {"form": "cifar", "shape": (32, 32, 3)}
_IDX = {"form": "idx", "shape": (28, 28, 1), "num_classes": 10}


def _images(name: str, train: int, digests: str, **about) -> ImageSpec:
    """An image set; digests are those of inputs and targets by split, and of names."""
    arrays = [f"{x}_{y}" for x in ("train", "test") for y in ("inputs", "targets")]
    named = dict(zip([*arrays, "label_names"], digests.split(), strict=True))
    counts = {"train": train, "test": 10_000}
    return ImageSpec(name, counts=counts, digests=named, **about)


_SPECS: tuple[Spec, ...] = (
    _images(
        "cifar10",
        50_000,
        "c97d2b688c6176b257aab9b596fade69 9afa7d3bc6ce0f7ff661c87b9f59e76c "
        "ebe3b85d5a0063d7ce17cde3cdaef560 3ee5d1904cf9bafb61972a3a273adbbe "
        "551b22433676d2c6bc4eda7bf8de539d",
        num_classes=10,
        **_CIFAR,
    ),
    _images(
        "cifar100",
        50_000,
        "c973778083643c6d7f86efa2560df571 b7e0dc30759f2a1779a33ae00754de70 "
        "96205c127af9f9f430f949f9efc4d05a ef112bb9817ff6bc024f28ec78808756 "
        "32768255d0e6619185030936b1045a42",
        num_classes=100,
        **_CIFAR,
    ),
    _images(
        "fashion_mnist",
        60_000,
        "b23b490b5513f5991ae2eb4425ed74da f7d90c8e0597c8ab3b46787bcf1f8770 "
        "1e521cc539052fed7c842f40dcc20042 e1e358c4a2801fdda153820b43681fe9 "
        "8f807e6fa9923ed93718ff56a58f90e0",
        label_names=_CLOTHES.split(","),
        **_IDX,
    ),
    _images(
        "mnist",
        60_000,
        "5dce3c3ed22dfeb798804346e0d1a31e fd301c96571a62c9f4326bbc289ff94f "
        "9198685fa41be5459f327ea796c4df36 b15787ccc35f28b20f46e33f73bd8bde "
        "42e9ffae0a40e40acf28c49da99e5ba4",
        label_names=tuple("0123456789"),
        **_IDX,
    ),
    TextSpec(
        name="shakespeare",
        prepared_name="leaf_shakespeare",
        roles=1129,
        samples=4_226_158,
        plays_sha256="4c249a019556b35dc26933a910f2a6c4572556653f72f074a3d542630c704d7e",
        digests={
            "user": "a0c3cad04fe13ceaaaf83fe9834cc365",
            "play": "a7aca8ba803eb700aad45496efe3446c",
            "speaker": "b799e4f9d38be73c2f4514fe2eea460f",
            "text": "a5610e4062cc03057ec78c57794f77d1",
            "ends": "3283a53991562252efa0a3953a7fc8c6",
        },
    ),
)

_HUB = "https://huggingface.co/datasets"


# Addresses name a version where one is known that has these files; counts are those of
# the publishers' pages.
_PUBLISHED = (
    ImageSpec(
        "femnist",
        "parquet",
        tables=Tables(
            f"{_HUB}/flwrlabs/femnist/resolve/main",
            {"train": ("data/train-00000-of-00001.parquet", 200.7e6)},
            label="character",
            client="writer_id",
        ),
        shape=(28, 28, 1),
        counts={"train": 814_277},
        num_classes=62,
    ),
    ImageSpec(
        "tiny_imagenet",
        "parquet",
        tables=Tables(
            f"{_HUB}/zh-plus/tiny-imagenet/resolve/"
            "b427d143d5e9bf39d5132c552063f3c5ba3facd6",
            {
                "train": ("data/train-00000-of-00001-1359597a978bc4fa.parquet", 146e6),
                "test": ("data/valid-00000-of-00001-70d52db3c749a935.parquet", 14.6e6),
            },
        ),
        shape=(64, 64, 3),
        counts={"train": 100_000, "test": 10_000},
        num_classes=200,
    ),
    ImageSpec(
        "cinic10",
        "parquet",
        tables=Tables(
            f"{_HUB}/flwrlabs/cinic10/resolve/8e3c2c337e520de86f32a669bb7dcc9662930502",
            {
                "train": ("data/train-00000-of-00001.parquet", 256e6),
                "test": ("data/test-00000-of-00001.parquet", 258e6),
            },
        ),
        shape=(32, 32, 3),
        counts={"train": 90_000, "test": 90_000},
        num_classes=10,
    ),
)

CATALOG: dict[str, Spec] = {spec.name: spec for spec in (*_SPECS, *_PUBLISHED)}
