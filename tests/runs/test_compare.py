"""Runs side by side, from folders and from names, through the command's function."""

import csv

import pytest

from afga_jax.runs import record
from afga_jax.runs.commands import compare
from afga_jax.runs.loop import Diverged
from afga_jax.runs.summary import summarise

TINY = [
    "--dataset=digits",
    "--scale=smoke",
    "--rounds=2",
    "--num_clients=4",
    "--participation=0.5",
    "--local_steps=1",
    "--hidden=4",
    "--num_seeds=2",
    "--nocompile_cache",
]


def command(*arguments):
    return compare.command.execute(compare.compare, ["compare", *map(str, arguments)])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("compare")
    code = command("--algos=fedavg,fedamsgrad", *TINY, f"--out={out}")
    return out, code


def test_each_algorithm_runs_into_its_folder(trained):
    out, code = trained
    assert code == 0
    for name in ("fedavg", "fedamsgrad"):
        run = record.read(out / name)
        assert run.config["algo"] == name
        assert run.summary["finished"]
        assert {row["seed"] for row in run.metrics} == {0, 1}


def test_tables_and_figure_are_beside_the_runs(trained):
    out, _ = trained
    rows = list(csv.DictReader((out / "table.csv").read_text().splitlines()))
    assert [row["algorithm"] for row in rows] == ["fedavg", "fedamsgrad"]
    summary = record.read(out / "fedavg").summary
    assert float(rows[0]["accuracy"]) == pytest.approx(100 * summary["final_accuracy"])
    deviation = 100 * summary["final_accuracy_std"]
    assert float(rows[0]["accuracy_std"]) == pytest.approx(deviation)
    assert (out / "table.md").read_text().startswith("| algorithm")
    assert r"\begin{tabular}" in (out / "table.tex").read_text()
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_finished_runs_are_not_repeated(trained, monkeypatch, capsys):
    out, _ = trained

    def refuse(*arguments, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr("afga_jax.runs.loop.train", refuse)
    assert command("--algos=fedavg,fedamsgrad", *TINY, f"--out={out}") == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    # A line for each run, as there is no terminal for a bar; then what came out.
    assert [line.split(":")[0] for line in lines[:2]] == [
        "[1/2] fedavg",
        "[2/2] fedamsgrad",
    ]
    assert lines[2:4] == [
        "digits, mlp, 4 clients, 2 of them at a time, mean ± std of 2 seeds",
        "1,442 training samples, 310 parameters",
    ]
    names = [out / f"table.{ending}" for ending in ("md", "tex", "csv")]
    assert f"tables: {', '.join(map(str, names))}" in lines
    assert f"figure: {out / 'comparison.png'}" in lines
    assert all(name.exists() for name in names)
    hints = [line for line in lines if "-m experiments." in line]
    assert [line.split("experiments.")[1].split()[0] for line in hints] == [
        *("compare", "sweep", "cifar")
    ]
    assert len(lines[2:]) < 30


def test_what_is_shown_fits_a_terminal(trained, capsys):
    out, _ = trained
    assert command(out, f"--out={out}") == 0
    shown = capsys.readouterr().out.split("tables:")[0]
    assert max(map(len, shown.splitlines())) <= 80


def test_other_settings_in_the_same_folder_are_refused(trained, capsys):
    out, _ = trained
    code = command("--algos=fedavg", *TINY, "--local_lr=0.5", f"--out={out}")
    assert code == 1
    assert "local_lr" in capsys.readouterr().err


def test_folders(trained, tmp_path, capsys):
    out, _ = trained
    code = command(out / "fedamsgrad", out / "fedavg", f"--out={tmp_path / 'both'}")
    said = capsys.readouterr()
    assert code == 0
    assert said.out.index("fedamsgrad") < said.out.index("fedavg")
    assert "warning" not in said.err
    assert (tmp_path / "both" / "comparison.png").exists()


def test_what_differs_beside_the_algorithm_is_named(trained, tmp_path, capsys):
    out, _ = trained
    other = record.read(out / "fedavg")
    with record.Record(tmp_path / "other") as writer:
        writer.configure({**other.config, "alpha": 9.0}, facts=other.facts)
        writer.write(other.metrics)
    assert command(out / "fedavg", tmp_path / "other", f"--out={tmp_path}") == 0
    said = capsys.readouterr().err
    assert "warning: these runs differ in more than the algorithm: alpha" in said


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "either the folders of runs, or --algos"),
        (["here", "--algos=afga"], 2, "either the folders of runs, or --algos"),
        (["--algos=afag"], 2, "did you mean 'afga'?"),
        (["--algos=afga", "--algo=fedavg"], 2, "name it in --algos"),
        (["docs/results/long-trial/curves", "--target=72"], 1, "0.78 is 78 %"),
        (["here", "--rounds=3"], 2, "--rounds has no effect on runs"),
        (["--algos=afga", "--rounds=0"], 1, "rounds = 0, but it must be >= 1"),
        (["no_such_run"], 1, "no_such_run holds no run"),
    ],
    ids=["nothing", "both", "typo", "algo", "target", "unused flag", "bound", "no run"],
)
def test_a_mistake_is_one_line(arguments, code, message, capsys):
    assert command(*arguments) == code
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not said.out


def test_one_that_diverges_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    def pretended(config, out, **options):
        diverges = config.algo == "fedavg"
        with record.Record(out) as writer:
            writer.configure(config.to_dict(), facts={"stand_in": False})
            rows = writer.write([{"seed": 0, "round": 1, "test_accuracy": 0.5}])
            ending = {"diverged_at": 2} if diverges else {}
            ending |= {"finished": not diverges, "wall_seconds": 1.0}
            writer.summarise({**summarise(rows), **ending})
        if diverges:
            raise Diverged(2, [0], config)
        return record.read(out)

    monkeypatch.setattr(compare.runner, "run", pretended)
    code = command("--algos=fedavg,fedprox", *TINY, f"--out={tmp_path}")
    said = capsys.readouterr()
    assert code == 1
    assert "error: fedavg: " in said.err
    assert "in round 2 of seed 0" in said.err
    assert "\nfedavg (diverged in round 2)  " in said.out
    assert "\nfedprox  " in said.out
    assert "next:" not in said.out


def test_curves_are_drawn_again_without_the_runs(trained, tmp_path, capsys):
    out, _ = trained
    assert command(out / "curves.csv", f"--out={tmp_path}", "--target=0.1") == 0
    assert "round at 10 %" in capsys.readouterr().out
    for name in ("curves.csv", "comparison.png"):
        assert (tmp_path / name).exists()
    assert (tmp_path / "curves.csv").read_text() == (out / "curves.csv").read_text()
    before, after = (
        list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
        for folder in (out, tmp_path)
    )
    assert [row["algorithm"] for row in after] == ["fedavg", "fedamsgrad"]
    for one, other in zip(before, after, strict=True):
        # Curves keep four digits of an accuracy.
        assert float(one["accuracy"]) == pytest.approx(
            float(other["accuracy"]), abs=0.01
        )


@pytest.mark.parametrize("content", [None, "method,seed\nafga,x\n", "a,b\n1,2\n"])
def test_files_that_hold_no_curves(content, tmp_path, capsys):
    path = tmp_path / "curves.csv"
    if content is not None:
        path.write_text(content)
    assert command(path, f"--out={tmp_path / 'out'}") == 1
    assert f"error: {path} holds no curves" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
