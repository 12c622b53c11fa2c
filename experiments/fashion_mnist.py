"""Trains on Fashion-MNIST as HA-Fed does: shards, a small CNN.

python -m experiments.fashion_mnist --algo=hafed_partial
python -m experiments.fashion_mnist --algo=fedamsgrad --model=convmixer
"""

from experiments import runner

if __name__ == "__main__":
    runner.main("fashion_mnist", __doc__)
