"""Data sets that people bring: Parquet files, and what Hugging Face's library saves.

A column holds the samples, one their labels, and one may say which client a sample is
from. The files are read with Arrow alone, without a network and without TensorFlow.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from afga_jax import checks
from afga_jax.data.dataset import Dataset
from afga_jax.data.text.corpus import Corpus
from afga_jax.data.text.shakespeare import WINDOW

Files = str | Path | Sequence[str | Path]


class Reading(NamedTuple):
    """What the columns of a table mean.

    Attributes:
      input: Column of the samples: images, lists of numbers or tokens, a text; or
        several columns of one number each.
      label: Column of the classes, whole numbers or words; None: the sample is a text
        whose next character, or token, is to be predicted.
      client: Column that says which client a sample is from; None: none does.
      test_fraction: Fraction of each client's samples, else of each class's, that is
        for testing where no file is: evenly spaced ones, without a draw.
      num_classes: Number of classes; None: as many as have a name, or as occur.
      shape: Shape of a sample whose numbers lie in one list; None: as it is stored.
      length: Number of characters or tokens to which a sample with a label is cut and
        filled up; None: all have as many.
      window: Number of characters or tokens before the one that is predicted.
      name: Name of the data set.
    """

    input: str | Sequence[str]
    label: str | None = None
    client: str | None = None
    test_fraction: float = 0.2
    num_classes: int | None = None
    shape: Sequence[int] | None = None
    length: int | None = None
    window: int = WINDOW
    name: str = "parquet"

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the samples."""
        return (self.input,) if isinstance(self.input, str) else tuple(self.input)

    @property
    def columns(self) -> list[str]:
        """All columns that are read."""
        named = (*self.inputs, self.label, self.client)
        return list(dict.fromkeys(name for name in named if name is not None))


def from_parquet(
    files: Files,
    *,
    input: str | Sequence[str],
    label: str | None = None,
    client: str | None = None,
    test: Files | None = None,
    **options: Any,
) -> Dataset | Corpus:
    """A data set from Parquet files.

    Of a folder, all `.parquet` files below it are read. Those in a folder, or with a
    name, that begins with `test` are for testing, or where there are none, those that
    begin with `valid`; the others are for training.

    Args:
      files: Path of a file or a folder, or a list of files.
      input: Column of the samples: images (the bytes of a PNG or JPEG file, or
        `{"bytes", "path"}` as Hugging Face stores them), lists of numbers, lists of
        lists, texts, lists of tokens; or several columns of one number each.
      label: Column of the classes: whole numbers from 0, or words. None: the samples
        are a text whose next character, or token, is to be predicted.
      client: Column that says which client a sample is from, a whole number or a word;
        None: none does.
      test: Path of a file or a folder, or a list of files, for testing; None: as said
        above, else a part of the training samples.
      **options: `test_fraction`, `num_classes`, `shape`, `length`, `window` and `name`,
        as in `Reading`.

    Returns:
      A data set, with `train_clients` if there is a column of clients; without a label,
      a corpus, each client a role, or each row.

    Raises:
      ValueError: A file is missing or no Parquet, a column is missing or broken, a
        label is no class, a client has no samples; the message says where.

    Example:
      >>> import tempfile
      >>> import pyarrow as pa
      >>> import pyarrow.parquet as pq
      >>> table = pa.table(
      ...     {
      ...         "pixels": [[[0, 255], [9, 9]]] * 8,
      ...         "kind": ["cat", "dog"] * 4,
      ...         "owner": ["ann", "ann", "bob", "bob"] * 2,
      ...     }
      ... )
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     pq.write_table(table, f"{folder}/pets.parquet")
      ...     pets = from_parquet(folder, input="pixels", label="kind", client="owner")
      >>> pets.train_inputs.shape, pets.label_names, pets.train_clients.tolist()
      ((7, 2, 2, 1), ('cat', 'dog'), [0, 0, 1, 0, 0, 1, 1])
    """
    reading = _reading(files, input, label, client, options)
    # Arrow takes a tenth of a second to import.
    from afga_jax.data.tables.build import build
    from afga_jax.data.tables.files import parquet

    return build(parquet(files, test, reading.columns), reading)


def from_huggingface(
    dataset: Any,
    *,
    input: str | Sequence[str],
    label: str | None = None,
    client: str | None = None,
    **options: Any,
) -> Dataset | Corpus:
    """A data set of Hugging Face's library, saved, loaded, or by its name.

    Its split `test` is for testing, else `validation`, else a part of the training
    samples. A folder is read without the library, and without a network.

    Args:
      dataset: Folder that `save_to_disk` wrote, or a folder of `.parquet` or `.arrow`
        files; or a `datasets.Dataset` or `DatasetDict`; or the name of a data set,
        which the library then downloads (`pip install 'afga-jax[datasets]'`).
      input: Column of the samples, see `from_parquet`.
      label: Column of the classes; names of a `ClassLabel` are kept. None: the samples
        are a text whose next character, or token, is to be predicted.
      client: Column that says which client a sample is from; None: none does.
      **options: As for `from_parquet`.

    Returns:
      As `from_parquet`.
    """
    reading = _reading(dataset, input, label, client, options)
    from afga_jax.data.tables.build import build
    from afga_jax.data.tables.files import huggingface

    return build(huggingface(dataset, reading.columns), reading)


def _reading(source: Any, input, label, client, options: dict[str, Any]) -> Reading:
    known = [
        name for name in Reading._fields if name not in ("input", "label", "client")
    ]
    checks.names(options, known)
    if isinstance(source, str | Path):
        options = {"name": Path(source).stem or "data", **options}
    reading = Reading(input, label, client, **options)
    for name in ("length", "num_classes", "window"):
        value = getattr(reading, name)
        if value is not None:
            checks.integer(name, value)
    return reading
