"""Thirty random flag lines: a run that ends, or a line that says why there is none."""

import random

import pytest

from afga_jax.algorithms import ALGORITHMS
from afga_jax.runs import main, record
from afga_jax.runs.config import fields

SEED, COUNT = 28, 30
# Small, so that a line that is understood takes seconds.
TINY = ["--scale=smoke", "--rounds=2", "--eval_every=1", "--num_clients=8"]
TINY += ["--local_steps=2", "--batch_size=4", "--nocompile_cache"]
# What would wait for others, look elsewhere, or is no choice of a run.
LEFT_OUT = ("out", "resume", "coordinator", "num_processes", "process_id", "dataset")
LEFT_OUT += ("data_dir", "cache_dir", "compile_cache", "cpu_devices", "scale")
LEFT_OUT += ("rounds", "num_clients", "local_steps", "batch_size", "algo", "mesh")
VALUES = {
    int: ["-1", "0", "1", "2", "3", "1099511627776", "one", ""],
    float: ["-1", "0", "1e-8", "0.5", "1", "1e30", "nan", "inf", "half"],
    str: ["none", "no such", "/no/such/file", "", "ü"],
    tuple: ["8", "4,4", "0", ",", "-1,2"],
}
# Hard conditions that can be, two flags at a time; the random ones hit few.
CONDITIONS = [
    ["--client_dropout=0.5", "--upload_loss=0.5"],
    ["--link_failure=0.4", "--straggler=0.5"],
    ["--dp_clip=1", "--dp_noise=2"],
    ["--topology=one_peer_exponential", "--mix_every=2"],
    ["--attack=nan", "--liars=0.3"],
    ["--attack=alie", "--liars=0.2"],
    ["--attack=label_flip", "--liars=0.2"],
    ["--attack=dissensus", "--liars=0.2"],
    ["--aggregator=median"],
    ["--aggregator=krum", "--assumed_liars=0"],
    ["--aggregator=centred_clipping", "--clip_radius=0.1"],
    ["--gossip_defence=clipped", "--assumed_liars=1"],
    ["--compress_uploads=top_k", "--compress_ratio=0.1"],
    ["--compress_gossip=qsgd", "--bits=4"],
]


def test_the_conditions_of_the_campaign_are_those_that_there_are():
    """A new flag of hard conditions is drawn without being told here."""
    known = {field.name for field in fields() if field.name not in LEFT_OUT}
    assert {field.name for field in fields("conditions")} <= known
    named = {flag.split("=")[0][2:] for line in CONDITIONS for flag in line}
    assert named <= known


def random_line(draw, number):
    """Flags of a small run, with one to three more that may be anything.

    Conditions are taken in turn: in thirty lines each of them comes twice.
    """
    known = [field for field in fields() if field.name not in LEFT_OUT]
    line = [f"--algo={draw.choice(sorted(ALGORITHMS))}"]
    for field in draw.sample(known, draw.randint(1, 3)):
        if field.kind is bool:
            line.append(f"--{draw.choice(['', 'no'])}{field.name}")
        else:
            values = [*field.choices, *VALUES[field.kind]]
            line.append(f"--{field.name}={draw.choice(values)}")
    return line + [[], *CONDITIONS][number % (len(CONDITIONS) + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(COUNT))
def test_a_flag_line(number, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
    draw = random.Random(SEED * 1000 + number)
    name = draw.choice(["synthetic", "digits"])
    out = tmp_path / "run"
    words = [f"afga {name}", *TINY, *random_line(draw, number), f"--out={out}"]
    with pytest.raises(SystemExit) as end:
        main.start(name, words)
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    if end.value.code == 0:
        assert record.read(out).summary["finished"], words
        return
    assert end.value.code in (1, 2), words
    assert errors.splitlines()[-1].startswith("error: "), words
    # What cannot start leaves nothing; what diverges keeps its last good state.
    assert not out.exists() or record.read(out).summary["diverged_at"], words
