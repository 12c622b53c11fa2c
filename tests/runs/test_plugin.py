"""Plugins: one small module brings an algorithm, a model, a data set, a topology."""

import functools
import sys

import numpy as np
import pytest

import afga_jax
import test_guides
from afga_jax.runs import command, plugins, record, runner
from afga_jax.runs.commands import data as data_command
from afga_jax.runs.config import Config

PLUGIN = test_guides.blocks(test_guides.OWN_WORK, "python")[-1]
NAMES = ("halved", "tiny", "blobs", "loop")


def forget():
    sys.modules.pop("my_plugin", None)
    for _, registry in plugins._REGISTRIES:
        for name in NAMES:
            registry.pop(name, None)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a plugin in it that is not imported yet."""
    (tmp_path / "my_plugin.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    # As for the command `afga`, which does not look into the current folder.
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    yield tmp_path
    forget()


def train(*arguments):
    main = functools.partial(runner._train, "digits", "")
    return command.execute(main, ["afga digits", *arguments])


def known():
    return [set(registry) for _, registry in plugins._REGISTRIES]


def test_all_that_it_registers_is_used_and_found_again(folder, capsys, monkeypatch):
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
    printed = test_guides.blocks(test_guides.OWN_WORK, "sh")[-1].split()
    page = printed[printed.index("experiments.digits") + 1 :]
    assert "--plugin=my_plugin" in page
    asked = ["--scale=smoke", "--rounds=1", "--num_clusters=1", "--nocompile_cache"]
    assert train(*page, *asked, "--out=run") == 0, capsys.readouterr().err
    config = record.read("run").config
    found = [config[name] for name in ("algo", "model", "dataset", "topology")]
    assert found == [NAMES[0], NAMES[1], NAMES[2], NAMES[3]]
    assert (config["plugin"], config["num_clients"]) == ("my_plugin", 4)
    # As in another program, which is told nothing but the folder.
    forget()
    trained = afga_jax.load("run")
    assert trained.params["Dense_1"]["kernel"].shape == (3, 2)
    assert trained.predict(np.zeros((5, 3), np.float32)).shape == (5, 2)
    forget()
    assert train("--resume", "--out=run", "--rounds=1") == 0
    assert "is finished" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("flag", [["--plugin=my_plugin"], ["--plugin", "my_plugin"]])
def test_help_knows_what_it_registers(flag, capsys):
    with pytest.raises(SystemExit) as end:
        train(*flag, "--help")
    assert end.value.code == 0
    page = capsys.readouterr().out
    assert all(name in page for name in (*NAMES, "--plugin"))


@pytest.mark.usefixtures("folder")
def test_another_command_takes_it_too(capsys):
    arguments = ["afga data", "--plugin=my_plugin", "--offline", "list"]
    assert command.execute(data_command.data, arguments) == 0, capsys.readouterr().err
    assert "halved" in afga_jax.ALGORITHMS


BAD = {
    "missing": (None, "there is no module 'my_plugin': give its name without .py"),
    "failing": ("x = 1\nx = 1 / 0\n", r"ZeroDivisionError: .*my_plugin.py, line 2\)."),
    "half": (
        PLUGIN + "\nimport nothing_of_that_name\n",
        "plugin my_plugin fails: ModuleNotFoundError: No module named 'nothing_of",
    ),
    "syntax": ("x = = 1\n", r"SyntaxError: invalid syntax \(.*my_plugin.py, line 1\)."),
    "algorithm": (
        PLUGIN.replace("def halved", "def fedavg"),
        "plugin my_plugin: the algorithm 'fedavg' is there already: rename yours",
    ),
    "model": (PLUGIN.replace('"tiny"', '"cnn"'), "the model 'cnn' is there already"),
    "topology": (
        PLUGIN.replace('"loop"', '"star"'),
        "topology 'star' is there already",
    ),
    "data set": (
        PLUGIN.replace("def blobs", "def mnist"),
        "data set 'mnist' is",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_plugin_is_one_line(case, folder, capsys):
    text, message = BAD[case]
    before = known()
    (folder / "my_plugin.py").unlink()
    if text is not None:
        (folder / "my_plugin.py").write_text(text)
    assert train("--plugin=my_plugin", "--algo=halved") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("error: plugin")
    with pytest.raises(ValueError, match=message):
        Config(plugin="my_plugin")
    assert known() == before
    assert "my_plugin" not in sys.modules


@pytest.mark.usefixtures("folder")
def test_a_data_set_that_is_none(capsys):
    plugins.load("my_plugin")
    made = afga_jax.data.OWN_DATASETS["blobs"]
    wrong = made._replace(make=lambda settings: [1, 2])
    afga_jax.data.OWN_DATASETS["blobs"] = wrong
    assert train("--dataset=blobs", "--scale=smoke", "--out=run") == 1
    assert "gives a list, but its function must return" in capsys.readouterr().err


def test_an_own_option_of_its_algorithm_is_a_flag(folder, capsys):
    text = PLUGIN.replace("(local_lr=0.3)", "(local_lr=0.3, share=0.5)")
    text = text.replace("average(0.5)", "average(options.share)")
    assert "options.share" in text
    (folder / "my_plugin.py").write_text(text)
    with pytest.raises(SystemExit):
        train("--plugin=my_plugin", "--algo=halved", "--help=algorithm")
    assert "--share=NUMBER" in capsys.readouterr().out
    forget()
    config = Config.from_dict({"plugin": "my_plugin", "algo": "halved", "share": 0.2})
    assert config.to_dict()["share"] == 0.2
