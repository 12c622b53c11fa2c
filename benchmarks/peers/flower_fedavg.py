"""FedAvg by Flower's simulation: Ray with one process of one thread per core.

    python -m benchmarks.peers.flower_fedavg WORK MODEL

Written from Flower's documentation: a `ServerApp` that starts the strategy `FedAvg`,
whose `evaluate_fn`, called after each round, waits for the next turn.
"""

import os
import sys

from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    RecordDict,
)
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers import network as networks
from benchmarks.peers.flower_client import app as client_app
from benchmarks.peers.turns import Turns
from benchmarks.peers.work import Work

FOREVER = 1_000_000


class Finished(Exception):
    """No more rounds are wanted."""


class Planned(FedAvg):
    """FedAvg that tells each sampled node which of the round's clients it is."""

    def __init__(self, path, model, **options):
        super().__init__(**options)
        self._work = {"work": path, "model": model}

    def configure_train(self, server_round, arrays, config, grid):
        """One message for each sampled node."""
        sampled = super().configure_train(server_round, arrays, config, grid)
        for place, message in enumerate(sampled):
            config = {"round": server_round - 1, "place": place, **self._work}
            content = RecordDict({"arrays": arrays, "config": ConfigRecord(config)})
            yield Message(
                content=content,
                message_type=MessageType.TRAIN,
                dst_node_id=message.metadata.dst_node_id,
            )


def main() -> None:
    path, model = os.path.abspath(sys.argv[1]), sys.argv[2]
    work = Work(path)
    network = networks.build(model, work.params)
    turns = Turns(lambda: networks.result(network, work))

    def between(server_round, arrays):
        network.load_state_dict(arrays.to_torch_state_dict())
        if not turns.wait():
            raise Finished

    server_app = ServerApp()

    @server_app.main()
    def run(grid: Grid, context: Context) -> None:
        strategy = Planned(
            path,
            model,
            fraction_train=work.active.shape[-1] / work.num_clients,
            fraction_evaluate=0.0,
        )
        start = ArrayRecord(network.state_dict())
        try:
            strategy.start(grid, start, num_rounds=FOREVER, evaluate_fn=between)
        except Finished:
            return

    run_simulation(
        server_app,
        client_app,
        num_supernodes=work.num_clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    main()
