"""Who holds which labels."""

from typing import Any, cast

import jax
import numpy as np

from afga_jax.data.partition.picture import class_counts
from afga_jax.runs.pages.page import rounded
from afga_jax.typing import ClientData


def label_counts(data: ClientData, clients: np.ndarray) -> np.ndarray | None:
    """Samples by client and class, `[clients, classes]`; None: there are no classes."""
    targets = getattr(getattr(data, "source", None), "targets", None)
    if not isinstance(targets, jax.Array | np.ndarray) or targets.ndim != 1:
        return None
    if not np.issubdtype(targets.dtype, np.integer):
        return None
    return class_counts(cast(Any, data).assignment, np.asarray(targets), clients)


def label_shares(data: ClientData, clients: np.ndarray) -> list[list[float]] | None:
    """Share of each class in each client's samples; None: there are no classes."""
    counts = label_counts(data, clients)
    if counts is None:
        return None
    return rounded(counts / np.maximum(counts.sum(1, keepdims=True), 1), 3)
