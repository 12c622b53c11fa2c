"""FedAvg by fedjax, with its compiled client loop on one device.

    python -m benchmarks.peers.fedjax_fedavg WORK MODEL

Written from fedjax's documentation: a haiku model, `federated_averaging`, and client
data sets that are read in order.
"""

import sys

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.turns import Turns
from benchmarks.peers.work import Work


def main() -> None:
    work, name = Work(sys.argv[1]), sys.argv[2]
    if name != "cnn":
        raise ValueError(f"model {name!r} is not written for fedjax; use 'cnn'.")
    model = network()
    clients, batch = work.active.shape[-1], work.samples.shape[-1]
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(work.numbers["local_lr"]),
        fedjax.optimizers.sgd(work.numbers["server_lr"]),
        fedjax.ShuffleRepeatBatchHParams(batch_size=batch, skip_shuffle=True),
    )
    state = algorithm.init(parameters(work.params))
    keys = jax.random.split(jax.random.PRNGKey(0), clients)
    turns = Turns(lambda: result(model, state.params, work))
    round = 0
    while turns.wait():
        cohort = [
            (str(place).encode(), dataset(work, round, place), keys[place])
            for place in range(clients)
        ]
        state, _ = algorithm.apply(state, cohort)
        jax.block_until_ready(state.params)
        round += 1


def network():
    """The CNN of two convolutions as a fedjax model."""

    def logits(batch, is_train=True):
        layers = (
            lambda: hk.Conv2D(16, 5),
            jax.nn.relu,
            lambda: hk.MaxPool(2, 2, "VALID"),
            lambda: hk.Conv2D(32, 5),
            jax.nn.relu,
            lambda: hk.MaxPool(2, 2, "VALID"),
            hk.Flatten,
            lambda: hk.Linear(10),
        )
        built = [x if x is jax.nn.relu else x() for x in layers]
        return hk.Sequential(built)(batch["x"])

    def loss(batch, outputs):
        chosen = jax.nn.log_softmax(outputs)
        return -jnp.take_along_axis(chosen, batch["y"][:, None], 1)[:, 0]

    return fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(logits),
        sample_batch={"x": np.zeros((1, 28, 28, 1), np.float32), "y": np.zeros(1, int)},
        train_loss=loss,
        train_kwargs={"is_train": True},
        eval_kwargs={"is_train": False},
    )


def parameters(arrays):
    """PyTorch's order and layout into haiku's."""
    first, first_bias, second, second_bias, head, head_bias = arrays
    # PyTorch flattens channels first, haiku channels last.
    head = head.reshape(10, -1, 7, 7).transpose(2, 3, 1, 0).reshape(-1, 10)
    return {
        "conv2_d": {"w": first.transpose(2, 3, 1, 0), "b": first_bias},
        "conv2_d_1": {"w": second.transpose(2, 3, 1, 0), "b": second_bias},
        "linear": {"w": head, "b": head_bias},
    }


def dataset(work, round, place):
    inputs, targets = work.of_client(round, place)
    return fedjax.ClientDataset({"x": inputs, "y": targets})


def result(model, params, work):
    total = 0.0
    for start in range(0, len(work.test_targets), 500):
        part = slice(start, start + 500)
        batch = {"x": work.test_inputs[part], "y": work.test_targets[part]}
        outputs = model.apply_for_eval(params, batch)
        total += float(model.train_loss(batch, outputs).sum())
    norm = fedjax.tree_util.tree_l2_norm(params)
    return {"norm": float(norm), "loss": total / len(work.test_targets)}


if __name__ == "__main__":
    main()
