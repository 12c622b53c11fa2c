"""AFGA in PyTorch with everybody's model as a row of one tensor.

    python -m benchmarks.peers.torch_afga WORK MODEL

As fast as we know how to write it: channels last, a network whose parameters are views
of a client's row (nothing is copied), and a ring that mixes in place, block by block.
"""

import sys

import torch
import torch.nn.functional as F

from benchmarks.peers import network as networks
from benchmarks.peers.turns import Turns
from benchmarks.peers.work import Work

# A block of these fits the second-level cache beside what it is computed from.
BLOCK_ROWS, BLOCK_COLUMNS = 16, 16_384


class Rows:
    """Everybody's parameters and BatchNorm statistics, `[clients, d]`.

    Args:
      network: Its parameters and buffers become views of a row.
      clients: N.
    """

    def __init__(self, network, clients):
        self.network = network
        self._statistics = [
            (module, name)
            for module in network.modules()
            if isinstance(module, torch.nn.BatchNorm2d)
            for name in ("running_mean", "running_var")
        ]
        start = self.flat()
        self.parameters = sum(p.numel() for p in network.parameters())
        self.table = torch.empty(clients, len(start))
        self.server = start

    @torch.no_grad()
    def flat(self):
        """The network's numbers as one row, parameters first."""
        parts = [_last(p).reshape(-1) for p in self.network.parameters()]
        parts += [getattr(*where) for where in self._statistics]
        return torch.cat(parts)

    @torch.no_grad()
    def show(self, row):
        """Makes the network a view of a row."""
        place = 0
        for parameter in self.network.parameters():
            size = parameter.numel()
            shape = _last(parameter).shape
            view = row[place : place + size].view(shape)
            parameter.data = view.permute(0, 3, 1, 2) if view.ndim == 4 else view
            place += size
        for module, name in self._statistics:
            size = getattr(module, name).numel()
            setattr(module, name, row[place : place + size])
            place += size


def main() -> None:
    work, model = Work(sys.argv[1]), sys.argv[2]
    network = networks.build(model, work.params)
    rows = Rows(network, work.num_clients)
    server = AMSGrad(rows.parameters, work.numbers)

    def result():
        rows.show(rows.server)
        return networks.result(network, work)

    turns = Turns(result)
    round = 0
    while turns.wait():
        run_round(rows, server, work, round)
        round += 1


def run_round(rows, server, work, round):
    """Local steps with gossip, and the server's step on the mean change."""
    rows.table[:] = rows.server
    rate = work.numbers["local_lr"]
    for step, clients in enumerate(work.active[round]):
        for place, client in enumerate(clients):
            chosen = work.samples[round, step, place]
            inputs = networks.images(work.inputs[chosen])
            local_step(rows, rows.table[client], inputs, work.targets[chosen], rate)
        ring(rows.table)
    uploads = torch.from_numpy(work.upload[round]).long()
    change = rows.table[uploads].mean(0) - rows.server
    count = rows.parameters
    rows.server[:count] += server.step(change[:count])
    rows.server[count:] += change[count:]


def local_step(rows, row, inputs, targets, rate):
    """One SGD step of the client whose row it is, in place."""
    rows.show(row)
    rows.network.zero_grad(set_to_none=True)
    F.cross_entropy(rows.network(inputs), torch.from_numpy(targets)).backward()
    for parameter in rows.network.parameters():
        parameter.data.add_(parameter.grad, alpha=-rate)


@torch.no_grad()
def ring(table):
    """Each row becomes the mean of itself and its two neighbours, in place."""
    for column in range(0, table.shape[1], BLOCK_COLUMNS):
        _ring_columns(table[:, column : column + BLOCK_COLUMNS])


def _ring_columns(table):
    count = len(table)
    first, before = table[0].clone(), table[-1].clone()
    for start in range(0, count, BLOCK_ROWS):
        end = min(start + BLOCK_ROWS, count)
        block = table[start:end]
        mixed, last = block.clone(), block[-1].clone()
        mixed[1:] += block[:-1]
        mixed[0] += before
        mixed[:-1] += block[1:]
        mixed[-1] += table[end] if end < count else first
        torch.mul(mixed, 1 / 3, out=block)
        before = last


class AMSGrad:
    """The server's optimizer: m/√(v̂ + ε), without bias correction."""

    def __init__(self, size, numbers):
        self._numbers = numbers
        self._mean, self._square, self._largest = torch.zeros(3, size)

    def step(self, change):
        numbers = self._numbers
        self._mean.lerp_(change, 1 - numbers["b1"])
        self._square.lerp_(change * change, 1 - numbers["b2"])
        torch.maximum(self._largest, self._square, out=self._largest)
        root = (self._largest + numbers["eps"]).sqrt_()
        return numbers["server_lr"] * self._mean / root


def _last(parameter):
    return parameter.permute(0, 2, 3, 1) if parameter.ndim == 4 else parameter


if __name__ == "__main__":
    main()
