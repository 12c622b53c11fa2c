"""FedAvg by pfl-research, in one process or several under torchrun.

    python -m benchmarks.peers.pfl_fedavg WORK MODEL
    torchrun --nproc_per_node=2 -m benchmarks.peers.pfl_fedavg WORK MODEL

Written from the library's documentation: a `FederatedDataset` over users, a
`SimulatedBackend`, `FederatedAveraging`, and a callback that waits between rounds.
"""

import itertools
import sys

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.selector import get_framework_module
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers import network as networks
from benchmarks.peers.turns import Turns
from benchmarks.peers.work import Work

FOREVER = 1_000_000


class Network(torch.nn.Module):
    """A model with the loss and the metrics that pfl asks for."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, inputs):
        return self.inner(inputs)

    def loss(self, inputs, targets):
        return F.cross_entropy(self(inputs), targets)

    def metrics(self, inputs, targets):
        return {}


class BetweenRounds(TrainingProcessCallback):
    """The first process waits to be asked, the others wait for the first."""

    def __init__(self, turns):
        self._turns = turns
        self._distributed = get_framework_module().distributed

    def on_train_begin(self, *, model):
        self._goes_on()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        return not self._goes_on(), Metrics()

    def _goes_on(self):
        goes_on = self._turns.wait() if self._turns else True
        if self._distributed.world_size == 1:
            return goes_on
        flag = torch.tensor([int(goes_on)])
        torch.distributed.broadcast(flag, 0)
        return bool(flag)


def main() -> None:
    work, model = Work(sys.argv[1]), sys.argv[2]
    _, cohort, batch = work.samples.shape[1:]
    network = Network(networks.build(model, work.params))
    first = get_framework_module().distributed.global_rank == 0
    turns = Turns(lambda: networks.result(network, work)) if first else None
    counter = itertools.count()

    def dataset(number):
        inputs, targets = work.of_client(*divmod(number, cohort))
        tensors = (networks.images(inputs), torch.from_numpy(targets))
        return PyTorchTensorDataset(tensors)

    # Users are numbered through all rounds, since each draws other samples each time.
    users = FederatedDataset(dataset, lambda: next(counter))
    trained = PyTorchModel(
        network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(
            network.parameters(), work.numbers["server_lr"]
        ),
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=FOREVER,
            # The first round, which is not timed, evaluates; no other does.
            evaluation_frequency=FOREVER,
            train_cohort_size=cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=users, val_data=users),
        trained,
        NNTrainHyperParams(
            local_batch_size=batch,
            local_num_epochs=1,
            local_learning_rate=work.numbers["local_lr"],
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[BetweenRounds(turns)],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
