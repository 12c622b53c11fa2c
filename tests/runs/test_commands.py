"""Every command that README and docs print: it exists, and its flags are understood.

The slow tests run those that train, at smoke scale; where some are alike there, one of
them. `make` targets and notebooks are run by `.ci/run`, downloads by
`tests/runs/test_data_command.py` from a server of its own, benchmarks at their smallest
by `tests/test_benchmarks.py`: here they are started, and stopped once they have read
the flags that are printed.
"""

import argparse
import importlib
import re
import shlex
from pathlib import Path

import pytest

from afga_jax.data.store import catalog
from afga_jax.runs import flags, grid, main, runner
from afga_jax.runs.commands import (
    advise,
    compare,
    data,
    explore,
    paper,
    report,
    sweep,
)
from afga_jax.runs.settings import resolve

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    ROOT / "notebooks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
# Without data: digits stand in.
SMOKE = ["--scale=smoke", "--rounds=1", "--nocompile_cache", "--stand_in"]
# Parts of `make test`: `lint` formats the files that it checks, `check` is shorter.
BY_HAND = {"check", "lint"}
_FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"^ {4}.*$", re.MULTILINE)
_START = r"(?:(?:python|make) [-\w]|afga [a-z])"
_LINE = re.compile(rf"^ *(?:srun )?({_START}.*)$", re.MULTILINE)
_INLINE = re.compile(rf"`({_START}[^`\n]*)`")


def printed(text):
    """Commands on lines of their own, or between backticks, without comments.

    `afga NAME` is `python -m experiments.NAME`, which `tests/runs/test_main.py` shows.
    """
    text = re.sub(r" *\\\n *", " ", text)
    fenced = [block for kind, block in _FENCED.findall(text) if kind in ("", "sh")]
    alone = "\n".join(fenced + _INDENTED.findall(text))
    found = _INLINE.findall(text) + _LINE.findall(alone)
    named = [re.sub(r"^afga ", "python -m experiments.", line) for line in found]
    return [shlex.split(line, comments=True) for line in named]


def commands(program):
    """All printed commands of a program, each once, as a line."""
    every = {shlex.join(words) for page in PAGES for words in printed(page.read_text())}
    return sorted(line for line in every if line.startswith(program))


MAKE = commands("make")
PYTHON = commands("python")
BENCHMARKS = [line for line in PYTHON if "benchmarks" in line]
# Run by `tests/runs/test_plugin.py`, which has the plugins.
PLUGINS = [line for line in PYTHON if "--plugin" in line]
EXPERIMENTS = [x for x in PYTHON if "experiments." in x and x not in PLUGINS]
TESTS = [line for line in PYTHON if "pytest" in line]
# `test_paper` runs all; here is one, with a search for its rates.
PAPERS = [line for line in EXPERIMENTS if "experiments.paper" in line]
# What smoke scale replaces, what is like another number, and the default.
_ALIKE = r" --(scale|setting|rounds|eval_every|seed|resume|out)\b\S*| --algo=afga\b"
# Instead of these runs there are others: one, or several.
_FOLDERS = {
    r"( docs/\S+)+": " CURVES",
    r"( runs/\w+){2,}": " RUNS",
    r" runs/\w+": " RUN",
}
# Devices, processes, downloads and tables have tests of their own; `make demo` runs its
# command.
_ELSEWHERE = r"\.data|\.paper|--mesh|--coord| --setting=demo --num_seeds=5 "


def at_smoke_scale(line):
    """What is left of a command there; those of which the same is left are alike."""
    for pattern, name in {_ALIKE: "", **_FOLDERS}.items():
        line = re.sub(pattern, name, line)
    return line


HERE = [line for line in EXPERIMENTS if not re.search(_ELSEWHERE, line)]
TRAINED = [
    *[x for x in PAPERS if "--tune" in x][:1],
    *{at_smoke_scale(line): line for line in reversed(HERE)}.values(),
]
# Run by `tests/testing/test_vectors.py`.
VECTORS = "python -m afga_jax.testing.vectors OUT"
# Run by `tests/algorithms/test_signatures.py`.
STUB = "python tests/stub.py"


class Understood(Exception):
    """A benchmark has read its flags."""


def test_commands_are_found():
    text = "Do `make a`.\n```sh\npython -m b --c  # d\n```\n\n    make e\nmake no.\n"
    assert printed(text) == [["make", "a"], ["python", "-m", "b", "--c"], ["make", "e"]]
    text = "```python\nmake = 1\n```\nmake no.\n\n```\nmake f \\\n  g\n```\n"
    assert printed(text) == [["make", "f", "g"]]
    text = "`afga NAME` is a pattern\n\n    srun afga cifar --x\n"
    assert printed(text) == [["python", "-m", "experiments.cifar", "--x"]]
    assert len(EXPERIMENTS) > 10
    assert {*BENCHMARKS, *EXPERIMENTS, *PLUGINS, *TESTS, VECTORS, STUB} == set(PYTHON)
    assert {"make demo", "make test", "make slow"} <= set(MAKE)


@pytest.mark.parametrize("command", MAKE)
def test_make_target_is_run_by_ci(command):
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    steps = re.findall(r"^make (.+)$", (ROOT / ".ci" / "run").read_text(), re.M)
    _, target = command.split()
    assert target in targets
    assert target in {*" ".join(steps).split(), *BY_HAND}


def test_workflow_runs_what_ci_runs():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "run: .ci/run" in workflow


@pytest.mark.parametrize("command", TESTS)
def test_tests_exist(command):
    for word in command.split():
        assert not word.startswith("tests/") or (ROOT / word).is_file()


@pytest.mark.parametrize("command", BENCHMARKS)
def test_benchmark_starts_and_understands_its_flags(command, monkeypatch):
    name, *given = shlex.split(command.removeprefix("python ").removeprefix("-m "))
    name = name.removesuffix(".py").replace("/", ".")
    source = (ROOT / f"{name.replace('.', '/')}.py").read_text()
    if "argparse" not in source:
        # Flags of absl would stay in this process.
        named = {re.match(r"--(\w+)", word)[1] for word in given}
        assert named <= set(re.findall(r'flags\.DEFINE_\w+\("(\w+)"', source))
        return
    read = argparse.ArgumentParser.parse_args

    def parse(parser):
        read(parser, given)
        raise Understood

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    with pytest.raises(Understood):
        importlib.import_module(name).main()


def test_benchmarks_are_listed(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["all", "--list"])
    module = importlib.import_module("benchmarks.all")
    module.main()
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == list(module.NAMES)


@pytest.mark.parametrize("command", EXPERIMENTS)
def test_flags_are_understood(command, tmp_path, monkeypatch):
    name, arguments = split(command)
    if name == "data":
        verb, *others = arguments or ["list"]
        if verb == "show":
            assert data.shown([name, *arguments])
        else:
            assert verb in ("list", "fetch", "verify")
            assert set(others) <= set(catalog.CATALOG)
    elif name == "advise":
        assert advise.read([name, *arguments])
    elif name == "paper":
        # Every cell is resolved before anything runs; what they cost takes longer.
        monkeypatch.setattr(paper, "_announce", lambda *ignored: None)
        assert paper.paper([name, *arguments, "--dry_run", f"--out={tmp_path}"]) == 0
    elif name == "report":
        assert all(word.startswith(("runs/", "--out=")) for word in arguments)
    elif name == "sweep":
        asked = grid.read([name, *arguments], usage="")
        assert grid.cells(asked, tmp_path, dataset=sweep.DATASET, accelerator=False)
    else:
        dataset, words, given = read(name, arguments)
        for algorithm in given.pop("algos", None) or [given.get("algo", "afga")]:
            asked = {**given, "algo": algorithm}
            assert resolve(asked, dataset=dataset).config.algo == algorithm
        assert not words or name == "compare"
        assert all((ROOT / word).exists() for word in words if word[:5] == "docs/")


@pytest.mark.slow
@pytest.mark.parametrize("command", TRAINED)
def test_runs_at_smoke_scale(command, tmp_path, monkeypatch):
    monkeypatch.setenv("AFGA_OFFLINE", "1")
    monkeypatch.setenv("AFGA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "nothing"))
    name, arguments = split(command)
    more = [*SMOKE, f"--out={tmp_path / 'out'}"]
    if name == "paper":
        # At smoke scale a name has two lines only, and not those that are asked for, of
        # built-in digits, which fit neither these models nor these numbers of clients.
        sizes = ("--only", "--num_clients", "--local_steps", "--width", "--depth")
        kept = [word for word in arguments if not word.startswith(sizes)]
        named = [word for word in more if word != "--stand_in"]
        assert paper.paper([name, *kept, *named]) == 0
    elif name == "advise":
        few = ["--topologies=ring,complete", "--periods=1"]
        assert advise.advise([name, *arguments, *few]) == 0
    elif name == "report":
        folders = [tmp_path / word for word in arguments if word.startswith("runs/")]
        for folder in folders:
            train("digits", [*SMOKE, f"--out={folder}"])
        assert report.report([name, *map(str, folders), more[-1]]) == 0
    elif name == "explore" and "--run=" in command:
        train("digits", [*SMOKE, f"--out={tmp_path / 'run'}"])
        assert explore.explore([name, f"--run={tmp_path / 'run'}", "--round=20"]) == 0
    elif name == "explore":
        assert explore.explore([name, *arguments, more[-1]]) == 0
    elif name == "sweep":
        # Two values of each: a grid of more is walked in the same way.
        few = [re.sub(r"^(--\w+=[^,]+,[^,]+),.*", r"\1", word) for word in arguments]
        assert sweep.sweep([name, *few, *more]) == 0
    elif name == "compare" and "--algos" in command:
        assert compare.compare([name, *arguments, *more]) == 0
    elif name == "compare" and "curves" in command.lower():
        curves = ROOT / "docs" / "results" / "long-trial" / "curves"
        asked = [word for word in arguments if word.startswith("--")]
        assert compare.compare([name, str(curves), *asked, more[-1]]) == 0
    elif name == "compare":
        folders = [tmp_path / word for word in arguments]
        for folder in folders:
            train("digits", [*SMOKE, f"--out={folder}"])
        assert compare.compare([name, *map(str, folders), more[-1]]) == 0
    else:
        train(dataset_of(name), [*arguments, *more])


def train(dataset, arguments):
    with pytest.raises(SystemExit) as end:
        runner.main(dataset, arguments=["main", *arguments])
    assert end.value.code == 0


def split(command):
    """The experiment's name, and its arguments."""
    module, *arguments = shlex.split(command)[2:]
    name = module.removeprefix("experiments.")
    assert (ROOT / "experiments" / f"{name}.py").is_file()
    return name, arguments


def read(name, arguments):
    """The data set that is meant, words that are no flags, and the choices."""
    if name == "compare":
        values = compare.define()
        words = flags.parse([name, *arguments], values, words=True)
        return compare.DATASET, words, {**flags.given(values), "algos": values.algos}
    values = explore.define() if name == "explore" else flags.define()
    words = flags.parse([name, *arguments], values)
    if name == "explore":
        return explore.DATASET, words, flags.given(values)
    return dataset_of(name), words, flags.given(values)


def dataset_of(name):
    return main.COMMANDS[name].dataset
