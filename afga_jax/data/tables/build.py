"""Tables to a data set: what is for training and what for testing, and whose it is."""

from collections.abc import Mapping, Sequence

import numpy as np

from afga_jax import checks
from afga_jax.data.dataset import Dataset
from afga_jax.data.tables import Reading, columns
from afga_jax.data.tables.columns import Part
from afga_jax.data.text.corpus import Corpus, from_codes
from afga_jax.data.text.shakespeare import encode


def build(parts: Mapping[str, Sequence[Part]], reading: Reading) -> Dataset | Corpus:
    """A data set from tables.

    Args:
      parts: Rows of `"train"` and, where samples for testing are apart, `"test"`.
      reading: What the columns mean.

    Returns:
      The data set; the corpus, where there is no label.
    """
    for rows in parts.values():
        columns.check_names(rows, reading.columns)
        if not sum(len(part.table) for part in rows):
            raise ValueError(f"{', '.join(p.where for p in rows)} holds no rows.")
    checks.number("test_fraction", reading.test_fraction, at_least=0, below=1)
    if reading.label is None:
        return _corpus(parts["train"], reading)
    train, test = parts["train"], parts.get("test")
    labels, names = columns.labels(
        train, reading.label, num_classes=reading.num_classes
    )
    # Texts with a label have an alphabet, of training and testing.
    everything, alphabet = [part for rows in parts.values() for part in rows], ""
    (name, *others) = reading.inputs
    if not others and columns.kind_of(everything, name) == "text":
        alphabet = columns.alphabet_of(columns.texts(everything, name))
    inputs = _inputs(train, reading, alphabet)
    owners, clients = None, tuple[str, ...]()
    if reading.client is not None:
        owners, clients = columns.clients(train, reading.client)
    if test is None:
        groups = labels if owners is None else owners
        held = held_back(groups, reading.test_fraction)
        if reading.test_fraction and not held.any():
            raise ValueError(
                f"{reading.name}: of {len(labels)} samples none is left for testing at "
                f"test_fraction = {reading.test_fraction}: raise it, or give files for "
                "testing."
            )
        more, answers = inputs[held], labels[held]
    else:
        held = np.zeros(len(labels), bool)
        more = _inputs(test, reading, alphabet)
        answers, _ = columns.labels(test, reading.label, names, len(names))
    return Dataset(
        reading.name,
        inputs[~held],
        labels[~held],
        more,
        answers,
        num_classes=len(names),
        label_names=names,
        train_clients=None if owners is None else owners[~held],
        client_names=clients,
    )


def held_back(groups: np.ndarray, fraction: float) -> np.ndarray:
    """Which samples are for testing: evenly spaced ones, group after group.

    Of a group of n that is fraction·n, rounded up or down. No draw decides, and no
    group loses all.

    Args:
      groups: Client, or class, of each sample, numbered without gaps, `[samples]`.
      fraction: Fraction for testing, below 1.

    Returns:
      Whether each sample is for testing, bool `[samples]`.

    Example:
      >>> held_back(np.array([0, 0, 0, 0, 1, 1, 1, 1, 1]), 0.4).astype(int).tolist()
      [0, 0, 1, 0, 1, 0, 0, 1, 0]
    """
    order = np.argsort(groups, kind="stable")
    # The product may come out just below a whole number that it is.
    counts = np.floor(np.arange(len(order) + 1) * fraction + 1e-9)
    held = np.empty(len(order), bool)
    held[order] = np.diff(counts) > 0
    kept = np.bincount(groups[~held], minlength=groups.max() + 1)
    _, first = np.unique(groups, return_index=True)
    held[first[kept[groups[first]] == 0]] = False
    return held


def _inputs(parts: Sequence[Part], reading: Reading, alphabet: str) -> np.ndarray:
    if len(reading.inputs) > 1:
        return columns.features(parts, reading.inputs, reading.shape)
    (name,) = reading.inputs
    return columns.inputs(parts, name, reading.shape, reading.length, alphabet)


def _corpus(parts: Sequence[Part], reading: Reading) -> Corpus:
    """Each client's rows one after another as a role; without clients, each row."""
    if len(reading.inputs) > 1:
        raise ValueError(
            f"input = {', '.join(reading.inputs)}, but without a label it must be one "
            "column of texts or tokens: name the column of the labels."
        )
    (name,) = reading.inputs
    if columns.kind_of(parts, name) == "text":
        texts = columns.texts(parts, name)
        alphabet = columns.alphabet_of(texts)
        rows = [encode(columns.within(text, alphabet), alphabet) for text in texts]
        number = len(alphabet)
    else:
        rows = columns.tokens(parts, name)
        number = 1 + max((int(row.max()) for row in rows if len(row)), default=0)
    if reading.client is None:
        roles = [(f"row {place}", row) for place, row in enumerate(rows)]
    else:
        owners, names = columns.clients(parts, reading.client)
        of_client: list[list[np.ndarray]] = [[] for _ in names]
        for owner, row in zip(owners, rows, strict=True):
            of_client[owner].append(row)
        joined = [np.concatenate(own) for own in of_client]
        roles = list(zip(names, joined, strict=True))
    return from_codes(
        roles, number, window=reading.window, test_fraction=reading.test_fraction
    )
