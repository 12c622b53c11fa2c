"""The client of `flower_fedavg`, in a module that Ray's processes can import."""

import functools

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.peers import network as networks
from benchmarks.peers.work import Work

app = ClientApp()


@functools.cache
def prepared(path, model):
    """The work and a network, once per process; one thread, since there are several."""
    torch.set_num_threads(1)
    work = Work(path)
    return work, networks.build(model, work.params)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Local steps from the arrays of the message."""
    config = message.content["config"]
    work, network = prepared(config["work"], config["model"])
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    inputs, targets = work.of_client(config["round"], config["place"])
    inputs, targets = networks.images(inputs), torch.from_numpy(targets)
    optimizer = torch.optim.SGD(network.parameters(), work.numbers["local_lr"])
    batch = work.samples.shape[-1]
    for part, wanted in zip(inputs.split(batch), targets.split(batch), strict=True):
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(network(part), wanted).backward()
        optimizer.step()
    answer = RecordDict(
        {
            "arrays": ArrayRecord(network.state_dict()),
            "metrics": MetricRecord({"num-examples": len(targets)}),
        }
    )
    return Message(content=answer, reply_to=message)
