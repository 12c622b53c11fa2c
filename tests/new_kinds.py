"""A kernel and a mixing that say no more than they must."""

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax.gossip.base import Mixing
from afga_jax.gossip.kernels import Kernel
from afga_jax.gossip.operators import Operator


class OneWay(Kernel):
    """A ring on which each hears only the one before it."""

    def __init__(self, n):
        self.n = n

    def apply(self, tree):
        return jax.tree.map(lambda x: (x + jnp.roll(x, 1, axis=0)) / 2, tree)

    def matrix(self):
        return (np.eye(self.n) + np.roll(np.eye(self.n), 1, axis=0)) / 2

    def spectral_gap(self):
        return float(np.cos(np.pi / self.n)) if self.n > 1 else 0.0


class Growing(Mixing):
    """A one-way ring over everybody, in rows by falling id, whose shift grows."""

    def __init__(self, num_clients):
        self.num_clients = num_clients

    def __repr__(self):  # every process that collects the tests names them alike
        return type(self).__name__

    def rows(self, plan, cycle=0):
        return jnp.arange(self.num_clients, dtype=jnp.int32)[::-1]

    def at(self, plan, step, cycle=0):
        def mix(x):
            return (x + jnp.roll(x, step + 1, axis=0)) / 2

        def apply(tree, mesh=None):
            return jax.tree.map(mix, tree)

        return Operator(apply, lambda: mix(jnp.eye(self.num_clients)))

    def spectral_gap(self):
        return None


class UnrelatedKernel:
    """`OneWay` in a class that is not derived from `Kernel`."""

    __init__, apply, matrix = OneWay.__init__, OneWay.apply, OneWay.matrix
    spectral_gap = OneWay.spectral_gap


class UnrelatedMixing:
    """`Growing` in a class that is not derived from `Mixing`."""

    __init__, __repr__ = Growing.__init__, Growing.__repr__
    rows, at = Growing.rows, Growing.at
    spectral_gap = Growing.spectral_gap


#: Name, number of clients and options of algorithms that use them.
CASES = {
    "new kernel": (
        "afga",
        12,
        {"active": 3, "local_steps": 4, "topology": OneWay},
    ),
    "new kernel, clusters": (
        "cafga",
        12,
        {
            "num_clusters": 2,
            "active": 4,
            "local_steps": 4,
            "topology": UnrelatedKernel,
        },
    ),
    "new mixing": (
        "afga",
        12,
        {"active": 3, "local_steps": 4, "topology": Growing(12)},
    ),
    "new mixing, every second": (
        "afga",
        12,
        {
            "active": 3,
            "local_steps": 4,
            "mix_every": 2,
            "topology": UnrelatedMixing(12),
        },
    ),
}
