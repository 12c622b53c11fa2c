"""Trains on CIFAR-10 (or `--dataset=cifar100`), which arrives by itself.

python -m experiments.cifar --algo=afga
"""

from experiments import runner

if __name__ == "__main__":
    runner.main("cifar10", __doc__)
