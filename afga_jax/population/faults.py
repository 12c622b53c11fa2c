"""What goes wrong in a round: clients that leave, lag or are away, lost uploads.

Faults belong to the world, not to the algorithm: every draw has a key by its purpose,
the round and the client (for a link its two clients, and the step), so the same seed
lets the same clients and links fail whatever the algorithm, the engine and the devices.

- *Dropout*: with probability p, drawn once for each client and round, a client leaves
  before a uniformly drawn local step 0 … 𝓘−1. From then on it neither computes nor
  mixes, and it does not upload.
- *Straggler*: with probability p, drawn once for each client and round, a client
  computes only in the first s local steps, s uniform on 1 … 𝓘−1. It mixes in all of
  them and uploads.
- *Lost upload*: with probability p an upload is sent and does not arrive.
- *Availability*: who is away in a round holds no part in it: it neither computes nor
  mixes nor uploads.

Links that fail are in `afga_jax.gossip.failing`.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import checks
from afga_jax.keys import Purpose, place_key
from afga_jax.population.availability import as_availability
from afga_jax.population.clustering import Clustering
from afga_jax.population.sampling import CyclePlan, Participation, Toll, kept
from afga_jax.typing import Array


@dataclass(frozen=True, eq=False)
class Faults:
    """How often what fails; nothing by default. See the module for what each means.

    Attributes:
      client_dropout: Probability with which a client leaves in the middle of a round.
      link_failure: Probability with which a link between two clients is down at a local
        step, in both directions at once.
      straggler: Probability with which a client is slow in a round.
      upload_loss: Probability with which an upload does not arrive.
      availability: Who is there in which round: an `Availability`, or an array of
        zeros and ones `[N, rounds]` whose last round is followed by its first; None:
        everybody, always.

    >>> Faults(link_failure=1.5)
    Traceback (most recent call last):
    ...
    ValueError: link_failure = 1.5, but it must be >= 0 and <= 1.
    """

    client_dropout: float = 0.0
    link_failure: float = 0.0
    straggler: float = 0.0
    upload_loss: float = 0.0
    availability: Any = None

    def __post_init__(self):
        for name in ("client_dropout", "link_failure", "straggler", "upload_loss"):
            rate = getattr(self, name)
            if np.ndim(rate) or not checks.is_concrete(rate):
                raise ValueError(
                    f"{name} = {rate!r}, but it must be one number: plans are drawn "
                    "with it before a round is traced."
                )
            checks.number(name, rate, at_least=0, at_most=1)
        if self.availability is not None:
            found = as_availability(self.availability)
            object.__setattr__(self, "availability", found)

    @property
    def leave(self) -> bool:
        """Whether clients leave or are away: then their links are down, too."""
        return self.client_dropout > 0 or self.availability is not None

    @property
    def thin(self) -> bool:
        """Whether some of those who would take part do not."""
        return self.leave or self.straggler > 0 or self.upload_loss > 0


@dataclass(frozen=True, eq=False)
class Thinned:
    """A participation without those whom faults hit.

    Attributes:
      planned: Who would take part.
      faults: How often what fails.
      clustering: Who belongs together.
    """

    planned: Participation
    faults: Faults
    clustering: Clustering

    def __call__(
        self, key: Array, round: Array, cycle: Array, clusters: Array
    ) -> CyclePlan:
        """The plan of a cycle; see `sampling.Participation`."""
        part = self.planned(key, round, cycle, clusters)
        faults, nobody = self.faults, self.clustering.num_clients
        steps, chosen = len(part.active), part.upload
        step = jnp.arange(steps)[:, None, None]
        computes = part.active < nobody
        until = None
        if faults.leave:
            until = self._until(key, round, steps)
            computes &= step < until[part.active]
        if faults.straggler:
            computes &= step < self._slow_after(key, round, steps, part.active)
        if faults.leave or faults.straggler:
            active, count = kept(part.active, computes, nobody)
            part = part._replace(active=active, active_count=count)
        there = sends = chosen < nobody
        if until is not None:
            there, sends = there & (until[chosen] > 0), sends & (until[chosen] >= steps)
        arrives = sends
        if faults.upload_loss:
            place = place_key(key, Purpose.UPLOAD_LOSS, round, cycle)
            arrives &= ~(_drawn(place, chosen, 1)[0] < faults.upload_loss)
        toll = Toll(
            until=None if until is None else until[:-1],
            away=self._away(part, until, clusters),
            invited=there.sum(dtype=jnp.int32),
            lost=(sends & ~arrives).sum(dtype=jnp.int32),
        )
        upload, count = kept(chosen, arrives, nobody)
        return part._replace(upload=upload, upload_count=count, toll=toll)

    def _until(self, key: Array, round: Array, steps: int) -> Array:
        """The step before which each client leaves, `[N + 1]`; padding is never there.

        Who stays to the end leaves after the last step, who is away before the first.
        """
        clients = jnp.arange(self.clustering.num_clients + 1)
        until = jnp.full(clients.shape, steps)
        if rate := self.faults.client_dropout:
            key = place_key(key, Purpose.CLIENT_DROPOUT, round)
            chance, when = _drawn(key, clients, 2)
            until = jnp.where(chance < rate, _whole(when, steps), until)
        if self.faults.availability is not None:
            here = self.faults.availability.at(round, self.clustering)
            until = until.at[:-1].min(jnp.where(here, steps, 0))
        return until.at[-1].set(0)

    def _slow_after(self, key: Array, round: Array, steps: int, ids: Array) -> Array:
        """How many steps each of these clients computes in."""
        key = place_key(key, Purpose.STRAGGLER, round)
        several = ids.size > self.clustering.num_clients
        clients = jnp.arange(self.clustering.num_clients + 1) if several else ids
        chance, when = _drawn(key, clients, 2)
        limit = jnp.where(
            chance < self.faults.straggler, 1 + _whole(when, steps - 1), steps
        )
        return limit[ids] if several else limit

    def _away(self, part: CyclePlan, until: Array | None, clusters: Array) -> Array:
        """How many that would hold a model are not there when the cycle begins."""
        if until is None:
            return jnp.zeros((), jnp.int32)
        ids = part.members
        if ids is None:
            ids = jnp.asarray(self.clustering.table(), jnp.int32)[clusters]
        missing = (until[ids] == 0) & (ids < self.clustering.num_clients)
        return missing.sum(dtype=jnp.int32)


def planned(participation: Participation) -> Participation:
    """Who would take part if nothing failed."""
    if isinstance(participation, Thinned):
        return participation.planned
    return participation


def _drawn(key: Array, ids: Array, count: int) -> Array:
    """`count` uniform numbers for each client, `[count, *ids.shape]`.

    In single precision, whatever the default is: the same clients fail.
    """

    def numbers(client):
        own = jax.random.fold_in(key, client)
        return jax.random.uniform(own, (count,), jnp.float32)

    return jax.vmap(numbers)(ids.reshape(-1)).T.reshape(count, *ids.shape)


def _whole(uniform: Array, below: int) -> Array:
    """Whole numbers 0 … below − 1 from numbers of the unit interval."""
    return jnp.minimum((uniform * below).astype(jnp.int32), below - 1)
