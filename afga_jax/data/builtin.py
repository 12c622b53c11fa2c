"""Real and drawn data that need no download."""

import numpy as np

from afga_jax import checks
from afga_jax.data.clients import Clients, from_arrays
from afga_jax.data.dataset import Dataset
from afga_jax.data.partition import by_client

# Every fifth sample of a class is for testing.
_TEST_EVERY = 5


def digits() -> Dataset:
    """Handwritten digits of 8×8 pixels, 1797 of them, from scikit-learn.

    Every fifth sample of each class, in the original order, is for testing: the split
    is stratified, has no randomness, and mixes the writers.

    Returns:
      Images uint8 `[samples, 8, 8, 1]`, the 17 grey levels stretched to 0 … 255.

    Example:
      >>> data = digits()
      >>> data.train_inputs.shape, data.test_inputs.shape
      ((1442, 8, 8, 1), (355, 8, 8, 1))
    """
    # Half a second to import, and only this data set needs it.
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = np.rint(pixels * 255 / 16).astype(np.uint8).reshape(-1, 8, 8, 1)
    test = np.zeros(len(labels), bool)
    for digit in range(10):
        test[np.flatnonzero(labels == digit)[_TEST_EVERY - 1 :: _TEST_EVERY]] = True
    return Dataset(
        name="digits",
        train_inputs=images[~test],
        train_targets=labels[~test],
        test_inputs=images[test],
        test_targets=labels[test],
        num_classes=10,
    )


def gaussians(
    variance: float = 1.0, *, points: int = 10, batch_size: int = 10, seed: int = 0
) -> Clients:
    """Two clients with one class each: HA-Fed's example of too many local steps.

    Client 0 draws from N((1, 0), variance·I) with label 0, client 1 from
    N((0, 1), variance·I) with label 1. HA-Fed uses variance 1 (with an MLP of 10 hidden
    units) and 0.5 (of 4), ten points each and full batches: `full(client)`.

    Args:
      variance: Variance of both coordinates.
      points: Number of samples per client.
      batch_size: Number of samples per batch, for those who do not use full batches.
      seed: Seed of the draw.

    Returns:
      Data with inputs float `[2·points, 2]` and targets int32.

    Example:
      >>> gaussians(0.5).full(1).targets.tolist()
      [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]

    Reference:
      HA-Fed, appendix F.1.
    """
    checks.number("variance", variance, above=0, fix="HA-Fed uses 1 and 0.5")
    checks.integer("points", points)
    labels = np.repeat(np.arange(2), points)
    noise = np.random.default_rng(seed).normal(size=(2 * points, 2))
    inputs = np.eye(2)[labels] + np.sqrt(variance) * noise
    targets = labels.astype(np.int32)
    return from_arrays(inputs, targets, by_client(labels), batch_size=batch_size)
