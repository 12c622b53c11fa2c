"""The benchmark's models and one gradient step per client, in PyTorch.

Run by `benchmarks/models.py` in an environment of its own. Reads requests, one JSON
object per line, and answers each with one line; see `serve`.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


def convmixer(width, depth, patch, kernel=5, num_classes=10):
    def block():
        depthwise = nn.Conv2d(width, width, kernel, groups=width, padding="same")
        return [
            Residual(nn.Sequential(depthwise, nn.GELU(), nn.BatchNorm2d(width))),
            nn.Conv2d(width, width, 1),
            nn.GELU(),
            nn.BatchNorm2d(width),
        ]

    return nn.Sequential(
        nn.Conv2d(3, width, patch, patch),
        nn.GELU(),
        nn.BatchNorm2d(width),
        *(layer for _ in range(depth) for layer in block()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, num_classes),
    )


class ResidualBlock(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut = nn.Identity()
        if before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x):
        return F.relu(self.shortcut(x) + self.inner(x))


def resnet18(num_classes=10):
    blocks, before = [], 64
    for after, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [ResidualBlock(before, after, stride), ResidualBlock(after, after, 1)]
        before = after
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, num_classes),
    )


def cnn(num_classes=10):
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1568, num_classes),
    )


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(80, 80)
        self.layers = nn.LSTM(80, 256, 2, dropout=0.05)
        self.head = nn.Linear(256, 80)

    def forward(self, x):
        return self.head(self.layers(self.embedding(x.T))[0][-1])


MODELS = {
    "convmixer-256-8": (lambda: convmixer(256, 8, 2), (3, 32, 32)),
    "convmixer-64-4": (lambda: convmixer(64, 4, 4), (3, 32, 32)),
    "lstm": (LSTM, None),
    "cnn": (cnn, (1, 28, 28)),
    "resnet18": (resnet18, (3, 32, 32)),
}


def prepare(name, clients, batch, channels_last):
    """A function that takes one SGD step with each of the clients' own models."""
    build, shape = MODELS[name]
    networks = [build() for _ in range(clients)]
    if shape is None:
        inputs = torch.randint(0, 80, (batch, 80))
        targets = torch.randint(0, 80, (batch,))
    else:
        inputs = torch.randn(batch, *shape)
        targets = torch.randint(0, 10, (batch,))
    if channels_last and shape is not None:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        networks = [net.to(memory_format=torch.channels_last) for net in networks]
    optimizers = [torch.optim.SGD(net.parameters(), 0.01) for net in networks]

    def step():
        for network, optimizer in zip(networks, optimizers, strict=True):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(network(inputs), targets).backward()
            optimizer.step()

    return step


def serve(requests, answers):
    """Time steps on request: {"prepare": ...}, {"steps": n} or {"matmul": n}."""
    step = None
    for line in requests:
        request = json.loads(line)
        if "prepare" in request:
            torch.manual_seed(0)
            step = prepare(**request["prepare"])
            step()
            seconds = 0.0
        elif "matmul" in request:
            square = torch.ones(request["matmul"], request["matmul"])
            square @ square
            start = time.perf_counter()
            square @ square
            seconds = time.perf_counter() - start
        else:
            start = time.perf_counter()
            for _ in range(request["steps"]):
                step()
            seconds = time.perf_counter() - start
        answers.write(json.dumps({"seconds": seconds}) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
