"""A small task and small client data, independent of the package's own."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from afga_jax.typing import Batch, Task


@struct.dataclass
class ToyClients:
    """Clients of equal or unequal size; rows past a client's size are NaN."""

    inputs: jax.Array  # [N, capacity, features]
    targets: jax.Array  # [N, capacity]
    sizes: jax.Array  # [N]
    batch_size: int = struct.field(pytree_node=False, default=4)

    def indices(self, client):
        return client * self.inputs.shape[1] + jnp.arange(self.inputs.shape[1])

    def batch(self, key, client):
        places = jax.random.randint(key, (self.batch_size,), 0, self.sizes[client])
        return Batch(self.inputs[client, places], self.targets[client, places])

    def full(self, client):
        mask = jnp.arange(self.inputs.shape[1]) < self.sizes[client]
        inputs = jnp.where(mask[:, None], self.inputs[client], 0)
        return Batch(inputs, self.targets[client], mask.astype(self.inputs.dtype))

    def pooled(self):
        real = jnp.arange(self.inputs.shape[1])[None] < self.sizes[:, None]
        order = jnp.argsort(~real.reshape(-1), stable=True)
        flat = lambda x: x.reshape(-1, *x.shape[2:])[order][None]  # noqa: E731
        return self.replace(
            inputs=flat(self.inputs),
            targets=flat(self.targets),
            sizes=self.sizes.sum()[None],
        )


def clients(num_clients, *, samples=6, features=3, seed=0, sizes=None, dtype=None):
    rng = np.random.default_rng(seed)
    capacity = samples if sizes is None else int(np.max(sizes))
    inputs = rng.normal(size=(num_clients, capacity, features))
    inputs += rng.normal(size=(num_clients, 1, features))
    targets = (inputs.sum(-1) + rng.normal(size=(num_clients, 1)) > 0).astype(int)
    sizes = np.full(num_clients, capacity) if sizes is None else np.asarray(sizes)
    inputs[np.arange(capacity) >= sizes[:, None]] = np.nan
    dtype = dtype or jnp.zeros(()).dtype
    return ToyClients(
        jnp.asarray(inputs, dtype), jnp.asarray(targets), jnp.asarray(sizes)
    )


def logistic(features=3, *, norm=False, classes=2):
    """Logistic regression; with `norm`, on inputs centred by a running mean."""

    def init(key):
        weights = 0.3 * jax.random.normal(key, (features, classes))
        stats = {"mean": jnp.zeros(features)} if norm else ()
        return {"w": weights, "b": jnp.zeros(classes)}, stats

    def loss(params, stats, batch, key, train):
        inputs = batch.inputs
        if norm:
            seen = inputs.mean(0)
            center = seen if train else stats["mean"]
            inputs = inputs - center[None]
            stats = {"mean": 0.9 * stats["mean"] + 0.1 * seen} if train else stats
        logits = inputs @ params["w"] + params["b"][None]
        picked = jnp.take_along_axis(
            jax.nn.log_softmax(logits), batch.targets[:, None], 1
        )[:, 0]
        right = (logits.argmax(1) == batch.targets).astype(logits.dtype)
        mask = jnp.ones_like(picked) if batch.mask is None else batch.mask
        mean = lambda x: (x * mask).sum() / mask.sum()  # noqa: E731
        return -mean(picked), (stats, {"accuracy": mean(right)})

    return Task(init, loss)


def flat(state) -> tuple[np.ndarray, np.ndarray]:
    """A state's parameters, weights before bias, and its statistics, as vectors."""
    params = np.concatenate([np.ravel(state.params[name]) for name in ("w", "b")])
    stats = state.stats["mean"] if state.stats else np.zeros(0)
    return params, np.asarray(stats)


def options_for(name, num_clients=12):
    """A small setting that fits every algorithm."""
    options = {"num_clients": num_clients, "active": 4, "local_steps": 3}
    if name.startswith(("cafga", "hafed", "fedcluster", "tthf")):
        options["num_clusters"] = 2
    if name == "hafed_active":
        options["mix_every"] = 2
    return options
