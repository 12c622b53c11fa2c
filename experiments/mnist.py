"""Trains on MNIST as FedCluster does: devices with a major class, clusters in turns.

python -m experiments.mnist --algo=fedcluster
python -m experiments.mnist --algo=fedavg --rho_device=0.9
"""

from experiments import runner

if __name__ == "__main__":
    runner.main("mnist", __doc__)
