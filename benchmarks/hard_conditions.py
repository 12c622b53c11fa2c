"""Accuracy against the share of liars, with and without a defence at the server.

    python -m benchmarks.hard_conditions OUT

Digits at `small`, half of the clients in a round, three seeds, the same liars for every
algorithm. Writes `liars.csv` and its figure into the folder OUT; what the file has
already is not run again.
"""

import argparse
import csv
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from afga_jax.runs import runner
from afga_jax.runs.progress import silent
from afga_jax.runs.settings import resolve

ALGORITHMS = ("afga", "cafga", "fedamsgrad", "fedavg")
COMMON = {"dataset": "digits", "scale": "small", "participation": 0.5}
COMMON |= {"rounds": 60, "eval_every": 3, "checkpoint_every": 60, "num_seeds": 3}
COMMON |= {"attack": "sign_flip", "attack_scale": 3.0}
LIARS = (0.0, 0.1, 0.2, 0.3)
AGGREGATORS = {"mean": "without defence: mean", "median": "with defence: median"}
COLUMNS = ["algorithm", "aggregator", "liars", "accuracy", "std"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="Folder of the numbers and the figure.")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    path = out / "liars.csv"
    done = rows(path)
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if not done:
            writer.writerow(COLUMNS)
        for algo in ALGORITHMS:
            for share in LIARS:
                for name in AGGREGATORS:
                    cell = [algo, name, str(share)]
                    if cell not in [row[:3] for row in done]:
                        writer.writerow([*cell, *measured(*cell)])
                        file.flush()
    figure(path, out / "liars.png")


def measured(algo: str, aggregator: str, share: str) -> list[str]:
    """Final accuracy and its standard deviation over the seeds."""
    given = {"algo": algo, "aggregator": aggregator, "liars": float(share)}
    config = resolve({**COMMON, **given}).config
    with tempfile.TemporaryDirectory() as folder:
        run = runner.run(config, Path(folder) / "run", display=silent())
    names = ("final_accuracy", "final_accuracy_std")
    return [f"{run.summary[name]:.4f}" for name in names]


def rows(path: Path) -> list[list[str]]:
    """The lines of the file but for its head."""
    return list(csv.reader(path.open()))[1:] if path.exists() else []


def figure(path: Path, picture: Path) -> None:
    """A panel for each aggregator, a curve for each algorithm."""
    drawn, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True)
    for axis, (name, title) in zip(axes, AGGREGATORS.items(), strict=True):
        for algo in ALGORITHMS:
            cells = sorted(row[2:] for row in rows(path) if row[:2] == [algo, name])
            numbers = [
                [100 * float(x) for x in column] for column in zip(*cells, strict=True)
            ]
            share, accuracy, std = numbers
            axis.errorbar(share, accuracy, std, marker="o", capsize=3, label=algo)
        axis.set(title=title, xlabel="clients that lie [%]", xticks=[0, 10, 20, 30])
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy [%]")
    axes[0].legend()
    drawn.tight_layout()
    drawn.savefig(picture, dpi=110)
    plt.close(drawn)


if __name__ == "__main__":
    main()
