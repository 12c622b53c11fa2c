"""A run's files."""

import errno
import json
import os

import numpy as np
import pytest

from afga_jax.runs import record
from afga_jax.runs.record import Record, RecordError
from afga_jax.runs.summary import summarise
from afga_jax.runs.trackers import TensorBoard

CONFIG = {"algo": "afga", "rounds": 30}


def row(number, **more):
    return {"seed": 0, "round": number, "test_accuracy": number / 7, **more}


ENDED = {"finished": True, "rounds": 30, "wall_seconds": 1.5}
SUMMARY = {**summarise([row(10), row(20), row(30)]), **ENDED}


@pytest.fixture
def folder(tmp_path):
    with Record(tmp_path / "run") as writer:
        writer.configure(CONFIG, facts={"dataset": "digits"})
        for number in (10, 20, 30):
            writer.write([row(number)])
        writer.sync()
        writer.summarise(SUMMARY)
    return tmp_path / "run"


def test_a_run_is_read_as_it_was_written(folder):
    run = record.read(folder)
    assert run.config == CONFIG
    assert run.metrics == [row(10), row(20), row(30)]
    assert run.summary == SUMMARY
    assert run.facts == {"dataset": "digits"}
    versions = json.loads((folder / "config.json").read_text())["versions"]
    assert {"jax", "flax", "numpy", "python", "device"} <= set(versions)
    assert not list(folder.glob(".*"))


def test_numbers_of_arrays_are_plain_and_what_is_not_finite_is_none(tmp_path):
    values = {"loss": np.float32(0.1), "count": np.int32(3), "worst": float("nan")}
    with Record(tmp_path) as writer:
        written = writer.write([row(1, **values)])
    assert written[0]["loss"] == float(np.float32(0.1))
    assert written[0]["count"] == 3
    assert written[0]["worst"] is None
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line) == written[0]


def test_resuming_cuts_back_and_writes_on(folder):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"seed": 0, "round": 4')  # killed in the middle of a line
    with Record(folder) as writer:
        assert writer.resume(lambda row: row["round"] <= 20) == [row(10), row(20)]
        writer.write([row(30)])
    run = record.read(folder)
    assert run.metrics == [row(10), row(20), row(30)]
    assert run.summary is None


def test_events_follow_the_metrics(folder):
    with Record(folder, TensorBoard(folder)) as writer:
        writer.resume(lambda row: row["round"] <= 10)
        writer.write([row(20), row(20, seed=1)])
    assert events(folder, 0) == [(10, 10 / 7), (20, 20 / 7)]
    assert events(folder, 1) == [(20, 20 / 7)]


def events(folder, seed):
    """Read by hand: length, two checksums, and a protocol buffer in each record."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = (folder / "tensorboard" / f"seed_{seed}").iterdir()
    content, found = path.read_bytes(), []
    while content:
        length = int.from_bytes(content[:8], "little")
        event = Event.FromString(content[12 : 12 + length])
        found += [(event.step, x.simple_value) for x in event.summary.value]
        content = content[16 + length :]
    return [(step, pytest.approx(value)) for step, value in found]


def test_clients_are_those_of_the_newest_round_and_go_with_the_run(folder, monkeypatch):
    writer, values = Record(folder), np.linspace(0, 1, 6).reshape(2, 3)
    for number in (10, 20):
        writer.write_clients({"round": number, "accuracy": number * values})
    with monkeypatch.context() as patch:
        patch.setattr(record.os, "replace", _full)
        with pytest.raises(OSError, match="full"):
            writer.write_clients({"round": 30, "accuracy": 30 * values})
    with np.load(folder / "clients.npz") as clients:
        assert clients["round"] == 20
        np.testing.assert_array_equal(clients["accuracy"], 20 * values)
    writer.discard()
    assert not (folder / "clients.npz").exists()


def _full(*paths):
    raise OSError("the disk is full")


def test_no_run(tmp_path):
    assert not record.exists(tmp_path)
    with pytest.raises(RecordError, match="holds no run"):
        record.read(tmp_path)


def test_a_damaged_file_is_named(folder):
    (folder / "metrics.jsonl").write_text("{]\n")
    with pytest.raises(RecordError, match=r"metrics.jsonl cannot be read"):
        record.read(folder)


def test_what_is_not_a_number_never_reaches_a_json_file(folder):
    with pytest.raises(ValueError, match="JSON"):
        Record(folder).summarise({"accuracy": float("nan")})
    assert record.read(folder).summary == SUMMARY


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"finished": true}',
        "[]",
        json.dumps({**SUMMARY, "final_accuracy": 0.99}),
        json.dumps({**SUMMARY, "seeds": 3}),
        json.dumps({**SUMMARY, "wall_seconds": "long"}),
        json.dumps({**SUMMARY, "target": [1]}),
    ],
)
def test_a_summary_that_is_not_of_the_metrics(text, folder):
    (folder / "summary.json").write_text(text)
    with pytest.raises(RecordError, match=r"summary\.json"):
        record.read(folder)


def test_metrics_that_a_summary_was_not_made_of(folder):
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0].replace(": 10,", ": 11,"), *lines[1:]]))
    with pytest.raises(RecordError, match=r"metrics\.jsonl does not have the lines"):
        record.read(folder)


def test_an_edited_config(folder):
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"rounds": 30', '"rounds": 31'))
    with pytest.raises(RecordError, match=r"config\.json was changed after"):
        record.read(folder)


def test_a_config_of_an_older_format_can_be_read_but_not_gone_on_with(folder):
    path = folder / "config.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_text(json.dumps({**content, "identity": "of old"}))
    assert record.read(folder).identity is None


def test_a_full_disk_is_said_with_the_file_and_leaves_no_half(folder, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left .*config\.json"):
        Record(folder).configure({})
    assert not list(folder.glob(".*"))
    assert record.read(folder).config == CONFIG
