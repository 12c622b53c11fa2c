"""Minimises a problem whose optimum is known, or `--dataset=logistic`, `gaussians`.

python -m experiments.synthetic --algo=afga --sigma_g=2
python -m experiments.synthetic --algo=hafed --dataset=gaussians --local_global
"""

from experiments import runner

if __name__ == "__main__":
    runner.main("quadratic", __doc__)
