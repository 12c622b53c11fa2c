"""Trains on CIFAR-10, or `--dataset=cifar100`; the data arrives by itself.

python -m experiments.cifar --algo=afga
python -m experiments.cifar --algo=cafga --setting=1 --scale=paper --num_seeds=3
"""

from experiments import runner

if __name__ == "__main__":
    runner.main("cifar10", __doc__)
