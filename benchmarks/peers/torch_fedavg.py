"""FedAvg as a plain loop over clients in PyTorch.

python -m benchmarks.peers.torch_fedavg WORK MODEL
"""

import sys

import torch
import torch.nn.functional as F

from benchmarks.peers import network as networks
from benchmarks.peers.turns import Turns
from benchmarks.peers.work import Work


def main() -> None:
    work, model = Work(sys.argv[1]), sys.argv[2]
    network = networks.build(model, work.params)
    turns = Turns(lambda: networks.result(network, work))
    round = 0
    while turns.wait():
        run_round(network, work, round)
        round += 1


def run_round(network, work, round):
    """Every client of the round trains from the server's model; the mean is taken."""
    optimizer = torch.optim.SGD(network.parameters(), work.numbers["local_lr"])
    batch = work.samples.shape[-1]
    start = [parameter.detach().clone() for parameter in network.parameters()]
    total = [torch.zeros_like(parameter) for parameter in start]
    clients = work.active.shape[-1]
    for place in range(clients):
        networks.put(network, start)
        inputs, targets = work.of_client(round, place)
        inputs, targets = networks.images(inputs), torch.from_numpy(targets)
        for part, wanted in zip(inputs.split(batch), targets.split(batch), strict=True):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(network(part), wanted).backward()
            optimizer.step()
        for sum_, parameter in zip(total, network.parameters(), strict=True):
            sum_.add_(parameter.detach(), alpha=1 / clients)
    networks.put(network, total)


if __name__ == "__main__":
    main()
