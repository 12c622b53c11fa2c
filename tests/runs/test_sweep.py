"""Grids: how they are read, that nothing runs twice, and that sharing is harmless."""

import contextlib
import csv
import types

import pytest

from afga_jax.runs import grid, record, runner, together
from afga_jax.runs.command import Interrupted
from afga_jax.runs.commands import sweep
from afga_jax.runs.config import Config
from afga_jax.runs.load import load
from afga_jax.runs.summary import summarise

TINY = [
    "--dataset=digits",
    "--scale=smoke",
    "--algo=fedavg",
    "--rounds=2",
    "--num_clients=4",
    "--participation=0.5",
    "--local_steps=1",
    "--hidden=4",
    "--nocompile_cache",
]


def command(*arguments):
    return sweep.command.execute(sweep.sweep, ["sweep", *map(str, arguments)])


def read(*arguments):
    return grid.read(["sweep", *arguments], usage="")


def table(out):
    return list(csv.DictReader((out / "results.csv").read_text().splitlines()))


def test_values_with_commas_are_axes():
    found = read("--algo=afga,fedavg", "--local_lr", "0.1,1", "--eps=1e-6", "--resume")
    assert found.axes == {"algo": ["afga", "fedavg"], "local_lr": [0.1, 1.0]}
    assert found.given == {"eps": 1e-6, "resume": True}


def test_lists_of_whole_numbers_have_colons_between_values():
    found = read("--hidden=64,32:128", "--features=8,16")
    assert found.axes == {"hidden": [(64, 32), (128,)]}
    assert found.given == {"features": (8, 16)}


def test_yes_and_no_is_an_axis_and_a_path_is_not():
    found = read("--resample=true,false", "--data_dir=a,b", "--init_from=c,d")
    assert found.axes == {"resample": [True, False]}
    assert found.given == {"data_dir": "a,b", "init_from": "c,d"}


def test_the_last_of_two_flags_counts():
    assert read("--eps=1e-6,1e-8", "--eps=1e-4") == ({"eps": 1e-4}, {})
    assert read("--eps=1e-4", "--eps=1e-6,1e-8").given == {}


def test_cells_are_named_by_their_configuration(tmp_path):
    def cells(*arguments):
        return grid.cells(read(*TINY, *arguments), tmp_path, dataset="digits")

    first = cells("--local_lr=0.1,0.2,0.10", "--weighting=size,uniform")
    assert len(first) == 4  # 0.10 is 0.1
    assert [cell.label for cell in first] == [
        # Cells that differ in numbers only follow each other.
        "local_lr=0.1 weighting=size",
        "local_lr=0.2 weighting=size",
        "local_lr=0.1 weighting=uniform",
        "local_lr=0.2 weighting=uniform",
    ]
    (alone,) = cells("--local_lr=0.2", "--weighting=size", "--out=elsewhere")
    assert alone.folder == first[1].folder
    assert alone.label == "fedavg"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--local_lr=0.1,x"], 2, "local_lr = 'x', but it must be a number"),
        (["--local_lr=0.1,-1"], 2, "local_lr = -1.0, but it must be >= 0"),
        (["--lokal_lr=0.1,1"], 2, "did you mean --local_lr?"),
        (["--algo=afga,fedag"], 2, "algo = 'fedag' is not known"),
        (["here"], 2, "'here' is not a flag"),
        (["--active=2", "--participation=0.1,0.2"], 1, "(at {'participation': 0.1})"),
    ],
    ids=["no number", "bound", "flag", "name", "word", "combination"],
)
def test_a_mistake_is_one_line(arguments, code, message, capsys, tmp_path):
    assert command(*arguments, f"--out={tmp_path / 'sweep'}") == code
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "sweep").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A real sweep, and how often programs were made for it."""
    out, made = tmp_path_factory.mktemp("sweep"), []

    def counted(experiment, execution):
        made.append(experiment)
        return programs(experiment, execution)

    programs = sweep.Programs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "Programs", counted)
        code = command(*TINY, "--local_lr=0.1,0.5,1e30", f"--out={out}")
    return out, code, made


def test_numbers_share_one_program(trained):
    out, code, made = trained
    assert code == 0
    assert len(made) == 1
    assert [row["local_lr"] for row in table(out)] == ["0.1", "0.5", "1e+30"]


def test_results_are_those_of_the_runs(trained):
    out, _, _ = trained
    *done, wild = table(out)
    for row in done:
        run = record.read(row["folder"])
        assert run.config["local_lr"] == float(row["local_lr"])
        final = 100 * run.summary["final_accuracy"]
        assert float(row["accuracy"]) == pytest.approx(final, rel=1e-12)
    assert (wild["accuracy"], wild["diverged_at"]) == ("", "2")


def test_a_cell_equals_a_run_of_its_own(trained, tmp_path):
    out, _, made = trained
    row = table(out)[1]
    swept = record.read(row["folder"])
    config = Config.from_dict(swept.config)
    assert made[0].config.local_lr != config.local_lr  # built with another number
    alone = runner.run(config, tmp_path / "alone")
    assert timeless(swept) == timeless(alone)


def test_finished_cells_are_not_repeated(trained, monkeypatch, capsys):
    out, _, _ = trained
    monkeypatch.setattr(sweep, "from_config", None)  # would fail
    before = table(out)
    assert command(*TINY, "--local_lr=0.1,0.5,1e30", f"--out={out}") == 0
    assert table(out) == before
    said = capsys.readouterr().out
    best = max(before[:2], key=lambda row: float(row["accuracy"]))
    assert f"best: local_lr={best['local_lr']}, accuracy" in said
    assert "local_lr=1e+30: diverged in round 2" in said


def timeless(run):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.metrics]


@pytest.mark.slow
def test_side_by_side_equals_one_after_another(trained, tmp_path, monkeypatch):
    out, _, made = trained
    asked = read(*TINY, "--local_lr=0.1,0.5,1e30")
    cells = grid.cells(asked, tmp_path, dataset="digits")
    monkeypatch.setattr(sweep, "from_config", lambda config: made[0])
    calls = []

    @contextlib.contextmanager
    def after_one_call():
        calls.append(1)
        yield lambda: len(calls) == 1

    with monkeypatch.context() as patch:
        patch.setattr(together.command, "remembered", after_one_call)
        with pytest.raises(Interrupted):
            sweep.train(cells, tmp_path, side_by_side=3)
    # Who stops a run does not wait for its evaluation; who goes on makes up for it.
    assert [record.read(cell.folder).metrics for cell in cells] == [[], [], []]

    found = sweep.train(cells, tmp_path, side_by_side=3)
    for (_, run), row in zip(found, table(out), strict=True):
        alone = record.read(row["folder"])
        for mine, other in zip(timeless(run), timeless(alone), strict=True):
            unknown = {name for name, value in other.items() if value is None}
            assert {name for name, value in mine.items() if value is None} == unknown
            for name in set(other) - unknown:
                assert mine[name] == pytest.approx(other[name], rel=1e-5), name
        assert run.summary.get("diverged_at") == alone.summary.get("diverged_at")
    assert load(found[1][1].folder).round == 2


class Pretended:
    """Programs and runs that cost nothing: the accuracy is the learning rate."""

    def __init__(self, monkeypatch, accuracy=True):
        self.ran, self.stop_at, self.accuracy = [], None, accuracy
        monkeypatch.setattr(sweep, "from_config", self.experiment)
        monkeypatch.setattr(sweep, "Programs", self.programs)
        monkeypatch.setattr(sweep.runner, "run", self.run)

    def experiment(self, config):
        facts = {"stand_in": False, "notes": []}
        return types.SimpleNamespace(config=config, facts=facts)

    def programs(self, experiment, execution):
        return types.SimpleNamespace(experiment=experiment, accept=lambda config: True)

    def run(self, config, out, **options):
        if config.local_lr == self.stop_at:
            raise Interrupted
        self.ran.append(config.local_lr)
        row = {"seed": 0, "round": 1, "test_loss": config.local_lr}
        if self.accuracy:
            row["test_accuracy"] = config.local_lr
        with record.Record(out) as writer:
            writer.configure(config.to_dict())
            metrics = writer.write([row])
            ended = {"finished": True, "wall_seconds": 1.0}
            writer.summarise(summarise(metrics) | ended)
        return record.read(out)


def test_an_interrupted_sweep_goes_on(monkeypatch, tmp_path, capsys):
    pretended = Pretended(monkeypatch)
    asked = [*TINY, "--local_lr=0.1,0.2,0.3", f"--out={tmp_path}"]
    pretended.stop_at = 0.2
    assert command(*asked) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert [row["local_lr"] for row in table(tmp_path)] == ["0.1"]
    pretended.stop_at = None
    assert command(*asked) == 0
    assert pretended.ran == [0.1, 0.2, 0.3]
    assert "best: local_lr=0.3, accuracy 30.00 %" in capsys.readouterr().out


def test_a_larger_grid_only_adds_what_is_new(monkeypatch, tmp_path):
    pretended = Pretended(monkeypatch)
    command(*TINY, "--local_lr=0.1,0.2", f"--out={tmp_path}")
    command(*TINY, "--local_lr=0.05,0.2,0.1", "--seed=0", f"--out={tmp_path}")
    assert pretended.ran == [0.1, 0.2, 0.05]
    assert len(table(tmp_path)) == 3


def test_without_accuracy_the_lowest_loss_is_best(monkeypatch, tmp_path, capsys):
    Pretended(monkeypatch, accuracy=False)
    command(*TINY, "--local_lr=0.3,0.2,0.4", f"--out={tmp_path}")
    assert "best: local_lr=0.2, loss 0.2" in capsys.readouterr().out
