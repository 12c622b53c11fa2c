"""A run folder knows itself: what does not belong together is refused, and named."""

import json
import shutil
from pathlib import Path

import pytest

import run_files
from afga_jax.runs import folder, record, runner
from afga_jax.runs.checkpoint import FORMAT, CheckpointError
from afga_jax.runs.command import Interrupted
from afga_jax.runs.load import load


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
def begun(programs, config, tmp_path_factory):
    """Stopped after round 5 of 7, with states of rounds 4 and 5 and lines up to 4."""
    out = tmp_path_factory.mktemp("begun") / "run"
    with pytest.raises(Interrupted):
        runner.run(config, out, programs=programs, display=run_files.Interrupting(5))
    return out


@pytest.fixture
def out(begun, tmp_path):
    """A copy of it that may be changed."""
    return shutil.copytree(begun, tmp_path / "run")


def content(out):
    """All that is in a folder, but for what only opening it leaves."""
    return {
        path.relative_to(out): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def edit(path, change):
    text = json.loads(path.read_text())
    change(text)
    path.write_text(json.dumps(text))


def check_refused(out, config, programs, match, *, resume=(True,)):
    """A refusal that names the file, and nothing is changed."""
    before = content(out)
    for going_on in resume:
        with pytest.raises(ValueError, match=match):
            runner.run(config, out, programs=programs, resume=going_on)
    assert content(out) == before


def test_as_it_was_it_goes_on(out, config, programs):
    run = runner.run(config, out, programs=programs, resume=True)
    assert run.summary["rounds"] == 7


@pytest.mark.parametrize("gone", ["all", "content", "replaced"])
def test_lost_states_do_not_start_again_at_round_0(gone, out, config, programs):
    shutil.rmtree(out / "checkpoints")
    match = r"checkpoints has no state, but the run was evaluated to round 4"
    if gone == "content":
        (out / "checkpoints").mkdir()
    elif gone == "replaced":
        (out / "checkpoints").write_text("")
        match = "checkpoints is a file"
    check_refused(out, config, programs, match)


def test_before_the_first_state_a_run_starts_again(begun, out, config, programs):
    """Killed after its first evaluation: nothing was saved, nothing is lost."""
    shutil.rmtree(out / "checkpoints")
    lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    (out / "metrics.jsonl").write_text(lines[0])
    run = runner.run(config, out, programs=programs, resume=True)
    whole = shutil.copytree(begun, out.with_name("whole"))
    expected = runner.run(config, whole, programs=programs, resume=True)
    run_files.assert_same(run, expected, programs)


@pytest.mark.parametrize(
    "damage",
    {
        "deleted": lambda lines: None,
        "emptied": lambda lines: [],
        "cut": lambda lines: lines[:1],
        "a line missing": lambda lines: [lines[0], *lines[2:]],
        "doubled": lambda lines: [lines[0], *lines],
        "reordered": lambda lines: lines[::-1],
        "altered": lambda lines: [
            lines[0].replace('"seed": 0', '"seed": 1'),
            *lines[1:],
        ],
    }.items(),
    ids=lambda item: item[0],
)
def test_metrics_that_are_not_those_of_the_state(damage, out, config, programs):
    path = out / "metrics.jsonl"
    lines = damage[1](path.read_text().splitlines(keepends=True))
    path.unlink() if lines is None else path.write_text("".join(lines))
    match = r"metrics\.jsonl does not have the \d lines that belong to the state of "
    check_refused(out, config, programs, match)


@pytest.mark.parametrize(
    "line", ['{"seed": 0}', '"text"', "[1]", '{"seed": 0, "round": "two"}', "{", "\x00"]
)
def test_lines_that_are_no_rows(line, out, config, programs):
    path = out / "metrics.jsonl"
    path.write_text(line + "\n" + path.read_text())
    check_refused(
        out, config, programs, r"metrics\.jsonl cannot be read", resume=(True, False)
    )


def test_a_line_after_the_last_state_is_measured_again(out, config, programs):
    path = out / "metrics.jsonl"
    lines = path.read_text()
    path.write_text(lines + lines.splitlines()[-1].replace('"round": 4', '"round": 6'))
    run = runner.run(config, out, programs=programs, resume=True)
    assert [row["round"] for row in run.metrics] == [2, 3, 4, 5, 6, 7]


def test_more_rounds_twice_in_a_row(out):
    """Lines that only an old end asked for go; a state that noted them still serves."""
    programs = run_files.programs("afga")
    programs.accept = lambda config: True  # the rate is constant, whatever the rounds
    for rounds, at in ((30, 6), (40, 7)):
        longer = programs.experiment.config.replace(rounds=rounds)
        shown = run_files.Interrupting(at)
        with pytest.raises(Interrupted):
            runner.run(longer, out, programs=programs, resume=True, display=shown)
        for path in (out / "checkpoints").iterdir():  # as if killed before these
            if int(path.name.removeprefix("round_")) > 5:
                shutil.rmtree(path)
    # Rounds 3 and 5 were among the last five of 7, and are not of 40.
    assert [row["round"] for row in record.read(out).metrics][:3] == [2, 4, 6]


@pytest.mark.parametrize("left", ["checkpoints", "metrics.jsonl", "summary.json"])
def test_parts_of_a_run_without_its_settings_are_no_new_run(
    left, out, config, programs
):
    (out / "summary.json").write_text("{}")
    for path in out.iterdir():
        if path.name not in (left, ".lock"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    match = f"has {left} of a run, but no config.json"
    check_refused(out, config, programs, match, resume=(True, False))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"config"', '{"config": 3}', '{"config": {"sed": 1}}']
)
def test_settings_that_cannot_be_read(text, out, config, programs):
    (out / "config.json").write_text(text)
    check_refused(out, config, programs, "config.json|not known", resume=(True,))


@pytest.mark.parametrize(
    ("name", "value"), [("seed", 3), ("local_lr", 0.5), ("algo", "fedavg")]
)
def test_edited_settings(name, value, out, config, programs):
    edit(out / "config.json", lambda text: text["config"].update({name: value}))
    match = r"config\.json was changed after the run had written it"
    check_refused(out, config, programs, match, resume=(True, False))


def test_other_data(out, config):
    own = folder.identity(config, 12345)
    with pytest.raises(ValueError, match=r"config\.json is of a run on another data"):
        folder.check_begun(record.read(out), config, own, out)


@pytest.mark.parametrize("gone", ["checksum", "identity"])
def test_a_folder_of_an_older_format(gone, out, config, programs):
    content = json.loads((out / "config.json").read_text())
    del content["checksum"], content[gone if gone == "identity" else "versions"]
    (out / "config.json").write_text(json.dumps(content))
    check_refused(out, config, programs, r"config\.json is of an older format")


def test_a_state_of_another_run(out, config, programs, tmp_path):
    other, elsewhere = config.replace(seed=7), tmp_path / "other"
    shown = run_files.Interrupting(5)
    with pytest.raises(Interrupted):
        runner.run(other, elsewhere, programs=programs, display=shown)
    shutil.rmtree(out / "checkpoints")
    shutil.copytree(elsewhere / "checkpoints", out / "checkpoints")
    check_refused(out, config, programs, r"round_5 is a state of another run")
    with pytest.raises(CheckpointError, match=r"round_5 is a state of another run"):
        load(out)


def test_a_state_of_another_round(out, config, programs):
    shutil.move(out / "checkpoints" / "round_5", out / "checkpoints" / "round_6")
    check_refused(out, config, programs, r"round_6 is the state of round 5, not 6")


def test_a_state_of_another_format(out, config, programs, monkeypatch):
    monkeypatch.setattr("afga_jax.runs.checkpoint.FORMAT", FORMAT + 1)
    check_refused(out, config, programs, rf"round_5 has the format {FORMAT}, but only")


def test_an_empty_folder_among_the_states(out, config, programs, caplog):
    (out / "checkpoints" / "round_99").mkdir()
    run = runner.run(config, out, programs=programs, resume=True)
    assert run.summary["rounds"] == 7
    assert "the state of round 99" in caplog.text
    assert "going on from round 5" in caplog.text


def test_the_look_at_a_folder_and_its_lock_are_one_step(
    out, config, programs, monkeypatch
):
    looked, look = [], folder.existing

    def looking(path, resume):
        refused = pytest.raises(ValueError, match="another program is running")
        with refused, folder.alone(Path(path)):
            pass
        looked.append(path)
        return look(path, resume)

    monkeypatch.setattr(folder, "existing", looking)
    runner.run(config, out, programs=programs, resume=True)
    assert looked == [out]


def test_a_run_that_cannot_start_leaves_nothing(tmp_path, config, programs):
    with pytest.raises(ValueError, match="more than numbers"):
        runner.run(config.replace(batch_size=3), tmp_path / "new", programs=programs)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(ValueError, match="more than numbers"):
        runner.run(config.replace(batch_size=3), tmp_path / "mine", programs=programs)
    assert (tmp_path / "mine").is_dir()
