"""Accuracy under hard conditions: against the share of liars, and against what is sent.

    python -m benchmarks.hard_conditions OUT

Digits at `small`, half of the clients in a round, three seeds, the same liars for every
algorithm. Writes `liars.csv`, `bits.csv` and a figure of each into the folder OUT; what
the files have already is not run again.
"""

import csv
import sys
import tempfile
from pathlib import Path

import jax
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from afga_jax.runs import runner
from afga_jax.runs.experiment import from_config
from afga_jax.runs.progress import silent
from afga_jax.runs.settings import resolve
from afga_jax.training import ledger

ALGORITHMS = ("afga", "cafga", "fedamsgrad", "fedavg")
COMMON = {"dataset": "digits", "scale": "small", "participation": 0.5}
COMMON |= {"rounds": 60, "eval_every": 3, "checkpoint_every": 60, "num_seeds": 3}
LIARS = (0.0, 0.3, 0.1, 0.2)
ATTACK = {"attack": "sign_flip", "attack_scale": 3.0}
COMPRESSION = {
    "none": {},
    "8 bits": {"compress_uploads": "qsgd", "bits": 8},
    "4 bits": {"compress_uploads": "qsgd", "bits": 4},
    "sign": {"compress_uploads": "sign"},
}


def cells():
    """File, algorithm, what a curve is named by, its point, and the run's settings."""
    for share in LIARS:
        for algo in ALGORITHMS:
            for name in ("mean", "median"):
                given = {**ATTACK, "liars": share, "aggregator": name}
                yield "liars", algo, name, share, given
    for algo in ALGORITHMS:
        for name, given in COMPRESSION.items():
            if given and algo in ("afga", "cafga"):
                given = {**given, "compress_gossip": given["compress_uploads"]}
            yield "bits", algo, "compressed", name, given


def measured(algo, given):
    """Final accuracy with its deviation over seeds, and megabytes that clients sent."""
    config = resolve({**COMMON, "algo": algo, **given}).config
    with tempfile.TemporaryDirectory() as folder:
        run = runner.run(config, Path(folder) / "run", display=silent())
    algorithm = from_config(config).algorithm
    costs = ledger.costs(algorithm, jax.eval_shape(algorithm.init, jax.random.key(0)))
    last = run.metrics[-1]
    sent = last["uploads_total"] * costs.upload_size
    sent += last["gossip_messages_total"] * costs.gossip_size
    summary = run.summary
    return summary["final_accuracy"], summary["final_accuracy_std"], sent / 1e6


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for file, algo, curve, point, given in cells():
        path = out / f"{file}.csv"
        if any(row[:3] == [algo, curve, str(point)] for row in rows(path)):
            continue
        new = not path.exists()
        numbers = [f"{number:.4f}" for number in measured(algo, given)]
        with path.open("a", newline="") as opened:
            writer = csv.writer(opened)
            if new:
                writer.writerow(
                    ["algorithm", "curve", "point", "accuracy", "std", "megabytes"]
                )
            writer.writerow([algo, curve, point, *numbers])
    liars_figure(out)
    bits_figure(out)


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(path.open()))[1:] if path.exists() else []


def curve_of(path, algo, curve, x):
    found = [r for r in rows(path) if r[:2] == [algo, curve]]
    found.sort(key=lambda r: float(r[x]))
    columns = [[float(r[k]) for r in found] for k in (x, 3, 4)]
    return columns[0], [100 * y for y in columns[1]], [100 * y for y in columns[2]]


def liars_figure(out: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True)
    titles = {"mean": "without defence: mean", "median": "with defence: median"}
    for axis, (curve, title) in zip(axes, titles.items(), strict=True):
        for algo in ALGORITHMS:
            x, y, std = curve_of(out / "liars.csv", algo, curve, 2)
            axis.errorbar([100 * s for s in x], y, std, marker="o", label=algo)
        axis.set(title=title, xlabel="clients that lie [%]", xticks=[0, 10, 20, 30])
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy [%]")
    axes[0].legend()
    saved(figure, out / "liars.png")


def bits_figure(out: Path) -> None:
    figure, axis = plt.subplots(figsize=(5, 3.4))
    for algo in ALGORITHMS:
        x, y, std = curve_of(out / "bits.csv", algo, "compressed", 5)
        axis.errorbar(x, y, std, marker="o", label=algo)
    axis.set(xscale="log", xlabel="sent by clients in uploads and gossip [MB]")
    axis.set_ylabel("test accuracy [%]")
    axis.grid(alpha=0.3, which="both")
    axis.legend()
    saved(figure, out / "bits.png")


def saved(figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
