"""What all peers on PyTorch share: the model with our parameters, and its test."""

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import torch_models


def build(model, arrays):
    """A network in channels-last layout, which is the faster one, with parameters set.

    Args:
      model: A name of `benchmarks.problem.MODELS`.
      arrays: The parameters in PyTorch's order.
    """
    if model.startswith("mlp"):
        hidden = int(model.removeprefix("mlp-"))
        network = nn.Sequential(
            nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10)
        )
    else:
        network = torch_models.MODELS[model][0]()
    network = network.to(memory_format=torch.channels_last)
    put(network, arrays)
    return network


@torch.no_grad()
def put(network, arrays):
    """Copies arrays or tensors into the parameters."""
    for parameter, array in zip(network.parameters(), arrays, strict=True):
        parameter.copy_(torch.as_tensor(array))


def images(array):
    """Images `[samples, height, width, channels]` as PyTorch wants them, not copied."""
    return torch.from_numpy(array).permute(0, 3, 1, 2)


@torch.no_grad()
def result(network, work):
    """Norm of the parameters and mean loss over the test samples."""
    network.eval()
    inputs, targets = images(work.test_inputs), torch.from_numpy(work.test_targets)
    total = 0.0
    for part, wanted in zip(inputs.split(500), targets.split(500), strict=True):
        total += float(F.cross_entropy(network(part), wanted, reduction="sum"))
    network.train()
    square = sum(float((p.double() ** 2).sum()) for p in network.parameters())
    return {"norm": square**0.5, "loss": total / len(targets)}
