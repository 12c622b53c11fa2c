"""Trains on scikit-learn's handwritten digits: no download, seconds on a CPU.

python -m experiments.digits --algo=afga
python -m experiments.digits --algo=cafga --num_seeds=3
"""

from experiments import runner

if __name__ == "__main__":
    runner.main("digits", __doc__)
