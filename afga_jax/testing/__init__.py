"""What the papers' algorithm boxes compute, in plain NumPy, to check a code against.

`boxes`, `relatives` and `serverless` know nothing of the package: any implementation,
in any framework, can be given the same draws and compared round by round. The model is
softmax regression (`parts.value_and_grad`), the precision double.

Two rounds of AFGA with six clients on a ring; two compute at each step, one uploads,
and two of the four gradients reach it:

>>> import numpy as np
>>> from afga_jax import testing
>>> rng = np.random.default_rng(0)
>>> problem = testing.BoxStart(
...     params=rng.normal(size=8),  # three features and a bias, two classes
...     stats=np.zeros(0),
...     sizes=np.full(6, 4),
...     clusters=[[0, 1, 2, 3, 4, 5]],
... )
>>> rounds = [
...     [
...         testing.Draws(
...             cluster=0,
...             active=[{0, 3}, {1, 2}],
...             upload={4},
...             inputs=rng.normal(size=(2, 6, 4, 3)),
...             targets=rng.integers(0, 2, size=(2, 6, 4)),
...         )
...     ]
...     for _ in range(2)
... ]
>>> for result in testing.boxes.afga(problem, rounds, local_lr=0.5, server_lr=0.1):
...     print(result.params.shape, len(result.losses), len(result.needed))
(8,) 4 2
(8,) 4 2

`draws_of` gives the draws of an algorithm of the package. `vectors` has small runs with
all that goes in and what comes out, for implementations that cannot call Python.
"""

from afga_jax.testing import (
    boxes,
    compressed,
    defences,
    parts,
    relatives,
    serverless,
    vectors,
)
from afga_jax.testing.draws import draws_of
from afga_jax.testing.parts import BoxResult, BoxStart, Draws

__all__ = [
    "BoxResult",
    "BoxStart",
    "Draws",
    "boxes",
    "compressed",
    "defences",
    "draws_of",
    "parts",
    "relatives",
    "serverless",
    "vectors",
]
