"""Liars: clients that send something else than what they computed.

Who lies is drawn from the run's key and the clients' ids, so the same clients lie for
every algorithm, and all who lie at a small share also lie at a larger one. What is said
to whom is part of the attack: most lie to the server, in their uploads, and are honest
to their neighbours; `label_flip` computes with wrong labels, so that all it sends is
poisoned; `dissensus` lies to neighbours, and uploads what it has. BatchNorm statistics
are sent as they are.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from afga_jax import checks, keys
from afga_jax.typing import Array, Batch


class Uploads(NamedTuple):
    """The uploads of a cycle, as liars that work together see them.

    Attributes:
      deltas: Deltas of the parameters, `[uploads, d]`; zero for padding.
      lying: Which of them liars send, `[uploads]`.
      honest: Which of them others send, `[uploads]`; padding is neither.
      ids: Ids of the clients, `[uploads]`.
    """

    deltas: Array
    lying: Array
    honest: Array
    ids: Array

    def mean(self) -> Array:
        """The mean of the honest uploads, `[d]`."""
        total = jnp.where(self.honest[:, None], self.deltas, 0).sum(0)
        return total / jnp.maximum(self.honest.sum(), 1)


class Attack(NamedTuple):
    """What some of the clients do in place of what they should.

    Attributes:
      share: Share of the clients that lie.
      upload: `(key, uploads) -> lies`, `[uploads, d]`, of which those of liars are
        sent; None: liars upload what they have.
      batch: `batch -> batch`, what a liar computes with; None: its own data.
      dissensus: ε of what is said to neighbours; None: liars send them their models.
    """

    share: float
    upload: Callable[[Array, Uploads], Array] | None = None
    batch: Callable[[Batch], Batch] | None = None
    dissensus: float | None = None

    def count(self, num_clients: int) -> int:
        """The number of liars among so many clients."""
        return round(self.share * num_clients)

    def liars(self, key: Array, num_clients: int) -> Array:
        """Who lies in the run of a key, `[num_clients]`."""
        drawn = keys.place_key(key, keys.Purpose.LIARS, 0)
        score = jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(drawn, i)))
        first = jnp.argsort(score(jnp.arange(num_clients)))[: self.count(num_clients)]
        return jnp.zeros(num_clients, bool).at[first].set(True)


def sign_flip(share: float, scale: float = 1.0) -> Attack:
    """Uploads −scale·Δᵢ.

    Args:
      share: Share of the clients that lie, as for all attacks.
      scale: Length of the lie, in lengths of the own delta.
    """
    checks.number("scale", scale, above=0)
    return _attack(share, upload=lambda key, uploads: -scale * uploads.deltas)


def gaussian(share: float, scale: float = 10.0) -> Attack:
    """Uploads noise: scale·‖Δᵢ‖/√d·ξ with ξ ~ 𝒩(0, I), about scale·‖Δᵢ‖ long."""
    checks.number("scale", scale, above=0)

    def upload(key, uploads):
        def noise(client, delta):
            drawn = jax.random.normal(jax.random.fold_in(key, client), delta.shape)
            size = jnp.linalg.norm(delta) / delta.size**0.5
            return scale * size * drawn.astype(delta.dtype)

        return jax.vmap(noise)(uploads.ids, uploads.deltas)

    return _attack(share, upload=upload)


def alie(share: float, scale: float | None = None) -> Attack:
    """A little is enough: the honest mean, moved by z standard deviations.

        Δᵢ = μ − z·σ, each number by itself, over the honest uploads
        z = Φ⁻¹((n − m − s)/(n − m)), s = ⌊n/2 + 1⌋ − m

    so that s of the n − m honest uploads are farther out than the m liars'. z is taken
    between 0 and 3; with few uploads it is 0.

    Args:
      share: Share of the clients that lie.
      scale: z; None: from the numbers of uploads and liars, as above.

    Reference: Baruch, Baruch and Goldberg, A little is enough, 2019.
    """
    if scale is not None:
        checks.number("scale", scale, above=0)

    def upload(key, uploads):
        liars, others = uploads.lying.sum(), uploads.honest.sum()
        supporters = (liars + others) // 2 + 1 - liars
        beyond = (others - supporters) / jnp.maximum(others, 1)
        z = jax.scipy.special.ndtri(jnp.clip(beyond, 0.5, 1 - 1e-6)).clip(0, 3)
        mean = uploads.mean()
        squares = uploads._replace(deltas=(uploads.deltas - mean[None]) ** 2).mean()
        lie = mean - (z if scale is None else scale) * jnp.sqrt(squares)
        return jnp.broadcast_to(lie[None], uploads.deltas.shape)

    return _attack(share, upload=upload)


def inner_product(share: float, scale: float = 1.0) -> Attack:
    """Inner-product manipulation: uploads −ε times the mean of the honest uploads.

    Args:
      share: Share of the clients that lie.
      scale: ε.

    Reference: Xie, Koyejo and Gupta, Fall of empires, 2020.
    """
    checks.number("scale", scale, above=0)

    def upload(key, uploads):
        lie = -scale * uploads.mean()
        return jnp.broadcast_to(lie[None], uploads.deltas.shape)

    return _attack(share, upload=upload)


def nan(share: float) -> Attack:
    """Uploads NaN, as a client whose training broke does."""
    return _attack(
        share, upload=lambda key, uploads: jnp.full_like(uploads.deltas, jnp.nan)
    )


def label_flip(share: float, classes: int) -> Attack:
    """Computes with class C − 1 − y in place of y.

    Args:
      share: Share of the clients that lie.
      classes: C, the number of classes.
    """
    checks.integer("classes", classes, at_least=2)

    def batch(batch):
        return batch._replace(targets=classes - 1 - batch.targets)

    return _attack(share, batch=batch)


def dissensus(share: float, scale: float = 1.0) -> Attack:
    """Tells every honest neighbour what keeps it away from the others.

        x_j = xᵢ − ε·Σ_honest Wᵢₖ(xₖ − xᵢ)/Σ_liars Wᵢⱼ, to client i

    With ε = 1 plain gossip leaves i where it is. Liars tell each other the truth, and
    upload the model they have.

    Args:
      share: Share of the clients that lie.
      scale: ε.

    Reference: He, Karimireddy and Jaggi, Byzantine-robust decentralized learning via
    ClippedGossip, 2022.
    """
    checks.number("scale", scale, above=0)
    return _attack(share, dissensus=scale)


#: Attacks by name.
ATTACKS: dict[str, Callable[..., Attack]] = {
    make.__name__: make
    for make in (sign_flip, gaussian, label_flip, alie, inner_product, nan, dissensus)
}


def _attack(share: float, **how) -> Attack:
    checks.number("share", share, above=0, below=1, fix="0.2 is every fifth client")
    return Attack(share, **how)
