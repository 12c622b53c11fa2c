"""`afga`: every experiment by its name, quickly listed, and named as it was started."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from afga_jax.runs import command, main, record
from afga_jax.runs.progress import Display
from cases import marked

ROOT = Path(__file__).parents[2]
EXPERIMENTS = {path.stem for path in (ROOT / "experiments").glob("[a-z]*.py")}


def afga(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main.main(words)
    return end.value.code, *capsys.readouterr()


def test_it_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"afga": "afga_jax.runs.main:main"}


def test_every_experiment_is_a_command():
    assert set(main.COMMANDS) == EXPERIMENTS


def test_commands_are_listed(capsys):
    pages = [afga(capsys, *words)[1] for words in ([], ["--help"])]
    assert pages[0] == pages[1]
    usage, _, *lines = pages[0].splitlines()
    assert usage.startswith("usage: afga COMMAND")
    assert [line.split()[0] for line in lines] == list(main.COMMANDS)


def test_an_unknown_command_is_one_line(capsys):
    code, output, errors = afga(capsys, "sweeep", "--algo=afga")
    assert (code, output) == (2, "")
    assert errors == "error: 'sweeep' is not a command; did you mean 'sweep'?\n"


@pytest.mark.parametrize("name", main.COMMANDS)
def test_help_of_each_names_the_way_it_was_started(name, capsys):
    code, page, _ = afga(capsys, name, "--help")
    assert code == 0
    assert f"    afga {name}" in page
    assert "python -m" not in page
    with pytest.raises(SystemExit):
        main.start(name, [f"python -m experiments.{name}", "--help"])
    other = capsys.readouterr().out
    assert f"    python -m experiments.{name}" in other
    assert other.replace(f"python -m experiments.{name}", f"afga {name}") == page


@pytest.mark.parametrize("name", marked(["digits", "synthetic"], ["digits"]))
def test_it_trains(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
    given = ["--scale=smoke", "--rounds=1", "--hidden=8", "--nocompile_cache"]
    code, output, errors = afga(capsys, name, *given, f"--out={tmp_path / 'run'}")
    assert code == 0, errors
    _, engine, first, *_, last = output.splitlines()
    assert last.startswith("final ")
    assert record.read(tmp_path / "run").summary["finished"]
    # Seconds are said once they were measured, none are predicted beside the engine.
    assert " engine" in engine
    assert not re.search(r"\d ?(s|ms|min|h)\b", engine)
    assert re.search(r"^compiled in [\d.]+ s; [\d.]+ (s|ms) per round", first)


@pytest.mark.parametrize("program", ["afga digits", "python -m experiments.digits"])
def test_how_to_go_on_is_said_as_it_was_started(program, tmp_path, capsys, monkeypatch):
    def press(display, config, facts, folder, done):
        raise KeyboardInterrupt

    monkeypatch.setattr(Display, "begin", press)
    out = tmp_path / "a run"
    given = ["--scale=smoke", "--nocompile_cache", f"--out={out}"]
    with pytest.raises(SystemExit) as end:
        main.start("digits", [program, *given])
    assert end.value.code == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"stopped at once; go on with: {program} --resume --out='{out}'"


def test_errors_name_commands_as_they_are_started(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("AFGA_CACHE_DIR", str(tmp_path / "cache"))
    given = ["--dataset=mnist", "--offline", f"--data_dir={tmp_path}", "--scale=smoke"]
    code, _, errors = afga(capsys, "mnist", *given, "--nocompile_cache")
    assert code == 1
    assert "`afga data fetch mnist`" in errors


@pytest.mark.parametrize(
    "words",
    [
        ["from afga_jax.runs.main import main; main(['--help'])"],
        pytest.param(
            ["from afga_jax.runs.main import main; main(['digits', '--help'])"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["list", "help"],
)
def test_who_stops_reading_hears_nothing(words):
    """As in `afga digits --help | head`."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing) as unread:
        ended = subprocess.run(
            [sys.executable, "-c", *words],
            cwd=ROOT,
            stdout=unread,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (ended.stderr, ended.returncode) == ("", 141)


def test_a_command_that_nobody_reads_ends_without_an_error():
    def print_on(arguments):
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        command.execute(print_on, ["main"])


def test_commands_to_go_on_with_can_be_copied(monkeypatch, tmp_path):
    """Also where nobody activated the environment that `make` made."""
    bin = tmp_path / ".venv" / "bin"
    monkeypatch.setattr(sys, "executable", str(bin / "python"))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert command.interpreter() == str(bin / "python")
    monkeypatch.chdir(tmp_path)
    assert command.interpreter() == ".venv/bin/python"
    line = f"  {command.interpreter()} -m experiments.sweep --algo=afga"
    assert command.as_started(line, "afga compare") == "  afga sweep --algo=afga"
    monkeypatch.setattr("shutil.which", lambda name: str(bin / name))
    assert command.interpreter() == "python"
