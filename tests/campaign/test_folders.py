"""Damaged run folders: the same numbers, or a refusal that names the file.

Each kind of damage to a stopped and to a finished run, at files that are drawn.
"""

import json
import random
import shutil

import pytest

import run_files
from afga_jax.runs import runner
from afga_jax.runs.command import Interrupted

SEED, TIMES = 28, 3


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)


@pytest.fixture(scope="module")
def programs():
    return run_files.programs("afga")


@pytest.fixture(scope="module")
def config(programs):
    return programs.experiment.config.replace(checkpoint_every=2)


@pytest.fixture(scope="module")
def folders(programs, config, tmp_path_factory):
    """A run that was stopped after round 5 of 7, and one that came to its end."""
    top = tmp_path_factory.mktemp("folders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
        display = run_files.Interrupting(5)
        with pytest.raises(Interrupted):
            runner.run(config, top / "stopped", programs=programs, display=display)
        runner.run(config, top / "finished", programs=programs)
    return {path.name: path for path in top.iterdir()}


def content(out):
    return {
        path.relative_to(out): path.read_bytes() if path.is_file() else None
        for path in sorted(out.rglob("*"))
        if path.name != ".lock"
    }


def chosen_path(out, draw):
    """A file of the run, each of its parts as likely as the others."""
    part = draw.choice(["config.json", "metrics.jsonl", "summary.json", "checkpoints"])
    if not (out / part).is_dir():
        return out / part
    return draw.choice(sorted(path for path in (out / part).rglob("*")))


def delete(path, draw):
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def replace_by_folder(path, draw):
    delete(path, draw)
    path.mkdir(parents=True)


def replace_by_file(path, draw):
    delete(path, draw)
    path.write_text("")


def cut(path, draw):
    if path.is_file():
        path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size or 1)])


def flip(path, draw):
    if path.is_file() and (bytes_ := bytearray(path.read_bytes())):
        bytes_[draw.randrange(len(bytes_))] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes_)


def garble(path, draw):
    if path.is_dir():
        return
    texts = ["{", "[]", "3", "null", '"text"', '{"config": 3}', "\x00\xff", "{}\n[]\n"]
    path.write_text(draw.choice(texts))


def edit(path, draw):
    """Another value somewhere in a JSON object."""
    if path.suffix != ".json" or not path.is_file():
        return flip(path, draw)
    inner = values = json.loads(path.read_text())
    while isinstance(inner, dict) and inner:
        name = draw.choice(sorted(inner))
        if not isinstance(inner[name], dict):
            inner[name] = draw.choice([None, -1, "other", [], {}])
            break
        inner = inner[name]
    path.write_text(json.dumps(values))


def shuffle_lines(path, draw):
    lines = (path.parent / "metrics.jsonl").read_text().splitlines(keepends=True)
    kinds = [lines[::-1], lines[1:], lines[:1] + lines, lines[:-2]]
    (path.parent / "metrics.jsonl").write_text("".join(draw.choice(kinds)))


def rename_state(path, draw):
    states = sorted((path.parent / "checkpoints").iterdir())
    states[-1].rename(states[-1].with_name(f"round_{draw.choice([1, 9, 99])}"))


DAMAGES = (
    *(delete, replace_by_folder, replace_by_file, cut, flip, garble, edit),
    *(shuffle_lines, rename_state),
)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(TIMES))
@pytest.mark.parametrize("kind", ["stopped", "finished"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_folder(damage, kind, number, folders, config, programs, tmp_path):
    draw = random.Random(f"{SEED} {damage.__name__} {kind} {number}")
    out = shutil.copytree(folders[kind], tmp_path / "run")
    whole = damage in (shuffle_lines, rename_state)
    path = out / "config.json" if whole else chosen_path(out, draw)
    damage(path, draw)
    before = content(out)
    run, refusal = None, ""
    try:
        run = runner.run(config, out, programs=programs, resume=True)
    except (ValueError, OSError) as error:
        refusal = str(error)
    if run is None:
        names = ("config.json", "metrics.jsonl", "summary.json", "checkpoints")
        assert str(out) in refusal
        assert any(name in refusal for name in names)
        assert "\n" not in refusal
        assert content(out) == before
        return
    expected = runner.run(config, folders["finished"], programs=programs, resume=True)
    assert run_files.without_time(run.metrics) == run_files.without_time(
        expected.metrics
    )
    assert run.summary["final_accuracy"] == expected.summary["final_accuracy"]
