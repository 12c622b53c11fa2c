"""Figures of hard conditions: whose runs they are, and what these sent."""

import types

import jax
import pytest

from afga_jax.runs import flags, runner
from afga_jax.runs.experiment import from_config
from afga_jax.runs.grid import fingerprint
from afga_jax.runs.papers import conditions, estimate
from afga_jax.runs.progress import silent
from afga_jax.runs.settings import resolve
from afga_jax.training import ledger

SMALL = {"dataset": "digits", "scale": "smoke", "rounds": 2, "eval_every": 2}
TOP_K = {"compress_uploads": "top_k", "compress_ratio": 0.05}
BOTH = {**TOP_K, "compress_gossip": "top_k"}
NORMED = {"model": "convmixer", "width": 4, "depth": 1}


def costs(config):
    """By the ledger, from the experiment with its data."""
    algorithm = from_config(config).algorithm
    return ledger.costs(algorithm, jax.eval_shape(algorithm.init, jax.random.key(0)))


@pytest.mark.parametrize(
    "given",
    [{"algo": "scaffold"}, {"algo": "cafga", **BOTH}, {"algo": "afga", **NORMED}],
    ids=["plain", "compressed", "statistics"],
)
def test_sizes_of_messages_are_the_ledger_s(given):
    config = resolve({**SMALL, **given}).config
    found, expected = estimate.costs_of(config), costs(config)
    for name in ("upload_size", "download_size", "gossip_size"):
        assert getattr(found, name) == getattr(expected, name) > 0


def test_megabytes_are_the_bytes_that_the_ledger_counted(tmp_path):
    """Kind by kind, of a run whose statistics travel beside what is compressed."""
    config = resolve({**SMALL, "algo": "afga", **NORMED, **BOTH}).config
    run = runner.run(config, tmp_path / "run", display=silent())
    row = run.metrics[-1]
    info = types.SimpleNamespace(uploads=row["uploads"], faults={})
    spent = costs(config).per_round(info, 0)
    assert row["bytes_total"] == 2 * spent["bytes"]
    upload, gossip = spent["upload_bytes"], spent["gossip_bytes"]
    assert conditions.sent(run, ("uploads",)) == 2 * upload / 1e6
    kinds = ("uploads", "gossip_messages")
    assert conditions.sent(run, kinds) == pytest.approx(2 * (upload + gossip) / 1e6)


@pytest.mark.parametrize(
    ("name", "algo", "given"),
    [
        ("failures", "fedavg", ""),
        ("failures", "afga", "--client_dropout=0.5"),
        ("failures", "cafga", "--link_failure=0.5"),
        ("liars", "fedamsgrad", "--aggregator=median"),
        (
            "liars",
            "afga",
            "--attack=sign_flip --attack_scale=3 --liars=0.2 --aggregator=mean",
        ),
        ("bits", "fedavg", "--compress_uploads=top_k --compress_ratio=0.05"),
        (
            "bits",
            "cafga",
            "--compress_uploads=top_k --compress_gossip=top_k --compress_ratio=0.05",
        ),
    ],
)
def test_points_on_cifar_are_runs_of_a_single_command(name, algo, given, tmp_path):
    values = flags.define()
    words = "cifar --dataset=cifar10 --scale=small --setting=2 --rounds=100"
    line = f"{words} --eval_every=5 --algo={algo} {given}"
    flags.parse(line.split(), values)
    config = resolve(flags.given(values)).config
    (figure,) = (
        f for f in conditions.FIGURES if f.name == f"conditions-{name}-cifar10"
    )
    points = figure.points("small", tmp_path)
    assert tmp_path / fingerprint(config) in {point.cell.folder for point in points}


@pytest.mark.parametrize("figure", conditions.FIGURES, ids=lambda figure: figure.name)
def test_all_runs_of_a_figure_fit_into_one_table(figure, tmp_path):
    points = figure.points("small", tmp_path)
    assert len({tuple(point.cell.values) for point in points}) == 1
    folders = [(p.panel.title, p.cell.folder) for p in points]
    assert len(set(folders)) == len(folders)
