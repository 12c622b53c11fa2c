"""What fails in a round, drawn from the keys as the documentation says."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from afga_jax.keys import Purpose, place_key


@functools.partial(jax.jit, static_argnames=("purpose", "clients", "count"))
def numbers(key, purpose, round, cycle=0, *, clients, count):
    """`count` numbers of each client, `[clients, count]`."""
    place = place_key(key, purpose, round, cycle)
    own = jax.vmap(lambda i: jax.random.fold_in(place, i))(jnp.arange(clients))
    return jax.vmap(lambda k: jax.random.uniform(k, (count,), jnp.float32))(own)


@functools.partial(jax.jit, static_argnames="clients")
def link_numbers(key, round, step, cycle=0, *, clients):
    """A number of each link, `[clients, clients]`, by its smaller id first."""
    place = place_key(key, Purpose.LINK_FAILURE, round, cycle, step)

    def draw(i, j):
        small = jax.random.fold_in(place, jnp.minimum(i, j))
        own = jax.random.fold_in(small, jnp.maximum(i, j))
        return jax.random.uniform(own, dtype=jnp.float32)

    ids = jnp.arange(clients)
    return jax.vmap(lambda i: jax.vmap(lambda j: draw(i, j))(ids))(ids)


class World:
    """Who fails in a round of a run.

    Args:
      key: The run's key.
      faults: How often what fails.
      clients: N.
      steps: Local steps of a round.
      round: Number of the round.
    """

    def __init__(self, key, faults, clients, steps, round):
        self.key, self.faults, self.round = key, faults, round
        self.clients, self.steps = clients, steps
        draw = functools.partial(numbers, key, round=round, clients=clients)
        self.until = np.full(clients, steps)
        self.computes = np.full(clients, steps)
        for i, (chance, when) in enumerate(
            np.asarray(draw(purpose=Purpose.CLIENT_DROPOUT, count=2))
        ):
            if chance < np.float32(faults.client_dropout):
                self.until[i] = int(when * steps)
        for i, (chance, when) in enumerate(
            np.asarray(draw(purpose=Purpose.STRAGGLER, count=2))
        ):
            if chance < np.float32(faults.straggler):
                self.computes[i] = 1 + int(when * (steps - 1))
        chances = np.asarray(draw(purpose=Purpose.UPLOAD_LOSS, count=1))[:, 0]
        self.lost = chances < np.float32(faults.upload_loss)

    def matrix(self, whole, step, cycle=0):
        """W over the links that are up, entry by entry, from W by client id."""
        chances = link_numbers(self.key, self.round, step, cycle, clients=self.clients)
        fails = np.asarray(chances) < np.float32(self.faults.link_failure)
        kept = np.array(whole, np.float64)
        for i, j in zip(*np.nonzero(whole), strict=True):
            down = step >= min(self.until[i], self.until[j])
            if i != j and (down or fails[i, j]):
                kept[i, i] += kept[i, j]
                kept[i, j] = 0
        return kept


def by_id(algorithm, plan, step, cycle=0):
    """W of a step by client id; who holds no model keeps what it has."""
    mixing, num_clients = algorithm.recipe.mixing, algorithm.options.num_clients
    among = np.asarray(mixing.at(plan, step, cycle).matrix())
    rows = mixing.rows(plan, cycle)
    if rows is None:
        return among
    whole = np.eye(num_clients)
    real = np.flatnonzero(np.asarray(rows) < num_clients)
    ids = np.asarray(rows)[real]
    whole[np.ix_(ids, ids)] = among[np.ix_(real, real)]
    return whole
