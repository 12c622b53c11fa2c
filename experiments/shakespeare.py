"""Predicts the next character of Shakespeare's roles, dealt to clients.

python -m experiments.shakespeare --algo=afga
python -m experiments.shakespeare --algo=fedavg --partition=natural --num_clients=1129
"""

from experiments import runner

if __name__ == "__main__":
    runner.main("shakespeare", __doc__)
