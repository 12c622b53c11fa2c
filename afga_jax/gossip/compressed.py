"""Gossip with fewer bits: CHOCO.

Every client i has a public copy x̂ᵢ of its model, which its neighbours follow; it sends
them the compressed difference, and steps towards their public copies:

    qᵢ = C(xᵢ − x̂ᵢ), x̂ᵢ ← x̂ᵢ + qᵢ, xᵢ ← xᵢ + γ·Σⱼ Wᵢⱼ(x̂ⱼ − x̂ᵢ)

The mean of the models is preserved. x̂ᵢ begins as the model that everybody starts from:
with a server that is x_r in every round, so nothing is remembered over rounds.

Reference: Koloskova, Stich and Jaggi, Decentralized stochastic optimization and gossip
algorithms with compressed communication, 2019.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from afga_jax import keys, trees
from afga_jax.gossip.base import Around
from afga_jax.gossip.operators import Operator
from afga_jax.optimizers.compressors import Compressor


@dataclass(frozen=True)
class Compressed(Around):
    """Another mixing, by CHOCO.

    Attributes:
      mixing: Who mixes with whom; the same in every step that mixes.
      compressor: C.
      step_size: γ; 1 is plain gossip where C leaves everything as it is.
      num_clients: N.
    """

    compressor: Compressor
    step_size: float
    num_clients: int

    linear = False
    remembers = True

    def at(self, plan, step, cycle=0):
        inner = self.mixing.at(plan, step, cycle)
        due = self.mixing.is_due(step)

        def exchange(models, public, mesh=None):
            flat = jax.vmap(lambda row: trees.ravel(row)[0])(models)
            # A key for each row, of its client; rows that a mesh adds are nobody's.
            place = (plan.key, keys.Purpose.COMPRESS, plan.round, cycle, step)
            ids = self.rows(plan, cycle)
            ids = jnp.arange(self.num_clients) if ids is None else ids
            missing = (0, len(flat) - len(ids))
            ids = jnp.pad(ids, missing, constant_values=self.num_clients)
            fold = jax.vmap(lambda i: jax.random.fold_in(keys.place_key(*place), i))
            sent = jax.vmap(self.compressor.compress)(fold(ids), flat - public)
            public = jnp.where(due, public + sent, public)
            pull = inner.apply(public, mesh) - public
            _, unravel = trees.ravel(jax.tree.map(lambda x: x[0], models))
            return jax.vmap(unravel)(flat + self.step_size * pull), public

        return Operator(inner.apply, inner.matrix, exchange)

    def message_bits(self, size):
        return self.compressor.bits(size)
