"""The papers as commands: what is declared, what is written, what is never repeated."""

import csv
import io
import itertools
import re
import sys
import types

import numpy as np
import pytest

from afga_jax.runs import grid, papers, published, record
from afga_jax.runs.command import Interrupted
from afga_jax.runs.commands import paper, sweep
from afga_jax.runs.papers import (
    cells,
    claims,
    estimate,
    hours,
    presentation,
    reached,
    semi_decentralised,
    trial,
)
from afga_jax.runs.papers.declaration import Declaration
from afga_jax.runs.settings import resolve
from afga_jax.runs.summary import summarise
from cases import marked

DECLARED = [one for one in papers.NAMES.values() if isinstance(one, Declaration)]


def command(*arguments):
    words = ["python -m experiments.paper", *map(str, arguments)]
    return paper.command.execute(paper.paper, words)


def entries(name, scale, tmp_path, **chosen):
    return cells.entries(
        papers.find(name), scale, chosen, tmp_path, accelerator=scale == "paper"
    )


def test_every_table_and_figure_has_its_name():
    expected = [f"afga-table{n}" for n in range(1, 9)]
    expected += [f"afga-figure{n}" for n in range(1, 7)]
    expected += ["hafed-table1", *(f"hafed-figure{n}" for n in range(1, 10))]
    expected += [f"fedcluster-figure{n}" for n in range(2, 7)]
    studies = ["theory", "reach", "topologies", "checks"]
    for name in ("failures", "liars", "bits"):
        studies += [f"conditions-{name}", f"conditions-{name}-cifar10"]
    studies += ["semi-decentralised", "semi-decentralised-cifar10"]
    assert sorted(papers.NAMES) == sorted([*expected, *studies])


@pytest.mark.parametrize("scale", marked(["paper", "small", "smoke"], ["small"]))
@pytest.mark.parametrize("name", [one.name for one in DECLARED])
def test_lines_are_runs_and_differ(name, scale, tmp_path):
    found = entries(name, scale, tmp_path)
    for panel, here in itertools.groupby(found, key=lambda entry: entry.panel):
        folders = [entry.cell.folder for entry in here]
        assert len(set(folders)) == len(folders), panel
    assert all(entry.rates for entry in found)
    if scale == "smoke":
        assert len(found) <= 2
    # Who is sampled must exist: clusters at the small sizes break this first.
    names = ("algo", "num_clients", "num_clusters", "participation")
    distinct = {
        tuple(getattr(entry.cell.config, name) for name in names): entry.cell.config
        for entry in found
    }
    for config in distinct.values() if scale == "small" else ():
        assert estimate.gradients_per_round(config) > 0


@pytest.mark.parametrize("family", semi_decentralised.FAMILIES, ids=lambda f: f.name)
def test_methods_of_a_map_exist_at_its_places(family, tmp_path):
    assert len(family.methods) <= 8
    distinct = {
        (config.algo, config.num_clusters, config.participation): config
        for config in (point.cell.config for point in family.points("small", tmp_path))
    }
    for config in distinct.values():
        assert estimate.gradients_per_round(config) > 0


def test_published_numbers_are_those_of_the_table(tmp_path):
    found = {}
    for name in ("afga-table1", "afga-table4", "afga-table5", "afga-table8"):
        for entry in entries(name, "paper", tmp_path):
            number = entry.line.published
            found[name, entry.panel, entry.line.label] = number.accuracy
    assert found["afga-table1", "Setting 2", "AFGA"] == 80.02
    assert found["afga-table5", "Setting 2", "AFGA"] == 82.61
    assert found["afga-table8", "Setting 2", "AFGA"] == 82.16
    assert found["afga-table4", "Setting 2", "+ gossip"] == 77.39


def test_figures_draw_the_runs_of_their_tables(tmp_path):
    def folders(name):
        return {entry.cell.folder for entry in entries(name, "paper", tmp_path)}

    assert folders("afga-figure3") == folders("afga-table1")
    assert folders("afga-table7") < folders("afga-table1")


def test_printed_hours_come_from_the_ledger():
    for algo, printed in published.HOURS.items():
        given = {"algo": algo, "setting": "1", "scale": "paper"}
        each = hours.per_round(resolve(given).config, hours.TABLE_7)
        for one in printed:
            assert each * one.rounds == pytest.approx(one.hours, abs=0.006)


def test_operations_are_those_of_the_models(tmp_path):
    """Multiply-adds of a forward pass, counted by hand."""
    first = entries("afga-table6", "paper", tmp_path)[0].cell.config
    resnet = estimate._forward(estimate._model_only(first), (32, 32, 3), 10)
    stages = 64 * 32**2 * 9 * (3 + 4 * 64)
    for channels, side in ((128, 16), (256, 8), (512, 4)):
        stages += channels * side**2 * (9 * 3.5 * channels + channels / 2)
    assert resnet == pytest.approx(2 * (stages + 512 * 10), rel=0.02)


def test_a_mistake_is_one_line(tmp_path, capsys):
    out = tmp_path / "out"
    for arguments, message in (
        (["afga-tabel1"], "did you mean 'afga-table1'?"),
        (["hafed-fig4"], "did you mean 'hafed-figure4'?"),
        ([], "--list"),
        (
            ["afga-figure1", "--topology=ring"],
            "--topology is what afga-figure1 is about",
        ),
        (["afga-table1", "--dataset=digits"], "--dataset is what"),
    ):
        assert command(*arguments, f"--out={out}") == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
    assert not out.exists()


def test_a_dry_run_shows_cells_and_hours_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    assert command("afga-table4", "--scale=paper", "--dry_run", f"--out={out}") == 0
    said = capsys.readouterr().out
    assert said.count("seeds of 500 rounds") == 4
    assert "estimated GPU hours" in said
    assert not out.exists()


class Pretended:
    """Runs that cost nothing: the accuracy falls with the distance from a rate."""

    def __init__(self, monkeypatch, best=0.1):
        self.ran, self.stop_after, self.best = [], None, best
        monkeypatch.setattr(sweep, "from_config", self.experiment)
        monkeypatch.setattr(sweep, "Programs", self.programs)
        monkeypatch.setattr(sweep.runner, "run", self.run)

    def experiment(self, config):
        facts = {"stand_in": False, "notes": []}
        return types.SimpleNamespace(config=config, facts=facts)

    def programs(self, experiment, execution):
        same = experiment.config
        return types.SimpleNamespace(
            experiment=experiment, accept=lambda config: config == same
        )

    def run(self, config, out, **options):
        if len(self.ran) == self.stop_after:
            raise Interrupted
        self.ran.append(out.name)
        accuracy = 1 / (2 + abs(np.log(config.local_lr / self.best)))
        rows = [
            {
                "seed": seed,
                "round": round,
                "test_accuracy": accuracy * round / config.rounds,
                "test_loss": 1.0,
                "train_loss": 1.0,
                "gradients_total": 7 * round,
            }
            for round in (1, config.rounds)
            for seed in range(config.num_seeds)
        ]
        with record.Record(out) as writer:
            writer.configure(config.to_dict(), facts={"stand_in": False})
            metrics = writer.write(rows)
            done = {"finished": True, "wall_seconds": 60.0, "rounds": config.rounds}
            writer.summarise(summarise(metrics, target=config.target) | done)
        return record.read(out)


def test_an_interrupted_table_goes_on(monkeypatch, tmp_path, capsys):
    pretended = Pretended(monkeypatch)
    asked = ["afga-table4", "--scale=small", "--nocompile_cache", f"--out={tmp_path}"]
    pretended.stop_after = 2
    assert command(*asked) == 130
    assert "the same command goes on" in capsys.readouterr().err
    folder = tmp_path / "small" / "afga-table4"
    assert not (folder / "table.md").exists()
    pretended.stop_after = None
    assert command(*asked) == 0
    assert len(pretended.ran) == len(set(pretended.ran)) == 4
    text = (folder / "table.md").read_text()
    assert "77.39 ± 0.01" in text
    assert "Wall time of all its runs: 4.0 min" in text
    assert f"`python -m experiments.paper {' '.join(asked[:-1])}`" in text
    # Another name that asks for the same runs repeats none of them.
    assert command("afga-figure3", *asked[1:], "--num_seeds=1") == 0
    assert len(pretended.ran) == len(set(pretended.ran))


def test_on_a_terminal_all_runs_of_a_name_have_one_bar(monkeypatch, tmp_path):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    Pretended(monkeypatch)
    monkeypatch.setattr(sys, "stderr", Terminal())
    asked = ["afga-table4", "--scale=small", "--nocompile_cache", f"--out={tmp_path}"]
    assert command(*asked) == 0
    shown = re.findall(r"(run \d of \d), .*?\|.*?\| .*? left", sys.stderr.getvalue())
    assert list(dict.fromkeys(shown)) == [f"run {n} of 4" for n in (1, 2, 3, 4)]


def test_all_methods_are_tuned_with_the_same_budget(monkeypatch, tmp_path):
    pretended = Pretended(monkeypatch, best=0.3)
    asked = ["afga-table4", "--scale=small", "--tune", "--nocompile_cache"]
    assert command(*asked, f"--out={tmp_path}") == 0
    # FedAMSGrad and AFGA (for two lines) and CAFGA; then four lines.
    assert len(pretended.ran) == 3 * (9 + 3) + 4
    folder = tmp_path / "small" / "afga-table4"
    rows = list(csv.DictReader((folder / "results.csv").read_text().splitlines()))
    # The nearest to 0.3 among 1, a third and a ninth of the paper's 1 and 2.
    rates = [float(row["local_lr"]) for row in rows]
    assert rates == pytest.approx([1 / 3, 2 / 9, 2 / 9, 2 / 9])
    assert all(row["rates_from"].startswith("tuned: best of 9") for row in rows)
    for name in ("fedavg", "dsgd", "afga", "dadam"):
        (cell,) = grid.cells(
            grid.Grid({"algo": name, "dataset": "cifar10"}, {}),
            tmp_path,
            dataset="cifar10",
        )
        line = papers.find("afga-table1").panels[0].lines[0]
        entry = cells.Entry("", line, cell, "", cell)
        trials = cells.trials(entry, tmp_path)
        assert len({trial.folder for trial in trials}) == 9
        assert {trial.config.seed for trial in trials} == {1000}
        assert [one.config.rounds for one in cells.budget(entry, tmp_path)] == [
            *[14] * 9,
            *[40] * 3,
        ]


def test_who_starts_fast_does_not_win_by_that_alone(tmp_path):
    (entry, *_) = entries("afga-table4", "small", tmp_path)
    ran = []

    def train(some):
        """The larger a rate, the better in short; in long it is the other way round."""
        found = []
        for cell in some:
            config = cell.config
            ran.append(config)
            merit = config.local_lr if config.rounds < 20 else -config.local_lr
            diverged = 3 if config.local_lr == 1 else None
            summary = {"final_accuracy": merit - config.eps, "final_loss": 1.0}
            summary["diverged_at"] = diverged
            found.append((cell, types.SimpleNamespace(summary=summary)))
        return found

    (chosen,) = cells.tuned([entry], tmp_path, train)
    assert [config.rounds for config in ran] == [14] * 9 + [40] * 3
    # Of those that did not diverge, a third of the paper's rate is best in short.
    assert {config.local_lr for config in ran[9:]} == {1 / 3}
    assert (chosen.cell.config.local_lr, chosen.cell.config.eps) == (1 / 3, 1e-10)
    with pytest.raises(ValueError, match=r"all trials of fedamsgrad diverged: set loc"):
        cells.tuned([entry], tmp_path, lambda some: [train(some)[-1]] * 3)


def test_epsilon_is_searched_for_where_it_stands(tmp_path):
    """Inside the root, or, as its root, beside it."""
    found = {}
    for entry in entries("afga-table1", "small", tmp_path):
        trials = cells.trials(entry, tmp_path)
        found[entry.cell.config.algo] = {trial.config.eps for trial in trials}
    assert found["afga"] == {1e-10, 1e-8, 1e-6}
    assert sorted(found["fedadam"]) == pytest.approx([1e-5, 1e-4, 1e-3])
    assert len(found["fedavg"]) == 1


def test_an_ablation_has_the_rates_of_its_method(tmp_path):
    """Rates are chosen on the method as it is, not on a figure's first topology."""

    def trials(name, algo):
        return {
            trial.folder
            for entry in entries(name, "small", tmp_path)
            if entry.cell.config.algo == algo
            for trial in cells.trials(entry, tmp_path)
        }

    for algo in ("afga", "cafga"):
        # Both settings share them, and so do the adapted variants in all four.
        assert len(trials("afga-table1", algo)) == 9
        for name in ("afga-figure1", "afga-figure2", "afga-table5"):
            assert trials(name, algo) == trials("afga-table1", algo)
        adapted = trials("afga-table5", f"{algo}_adapted")
        assert adapted == trials("afga-table1", algo)
    assert trials("afga-figure6", "cafga") == trials("afga-table1", "cafga")
    active = trials("hafed-figure9", "hafed_active")
    assert active == trials("hafed-figure9", "hafed_partial")


def test_names_share_their_runs(tmp_path):
    def runs(name, algo):
        return {
            entry.cell.folder
            for entry in entries(name, "small", tmp_path)
            if entry.cell.config.algo == algo and entry.cell.config.setting == "2"
        }

    for name in ("afga-table4", "afga-table8", "afga-figure1", "afga-figure2"):
        assert runs("afga-table1", "afga") <= runs(name, "afga"), name
    for name in ("afga-table4", "afga-figure6"):
        assert runs("afga-table1", "cafga") <= runs(name, "cafga"), name


def test_what_all_lines_share_can_be_chosen(tmp_path):
    found = entries("hafed-figure4", "small", tmp_path, local_lr=1.0)
    assert {entry.cell.config.local_lr for entry in found} == {1.0}
    for subject in ({"local_steps": 2}, {"variance": 1.0}, {"algo": "hafed"}):
        with pytest.raises(ValueError, match="is what hafed-figure4 is about"):
            entries("hafed-figure4", "small", tmp_path, **subject)


def test_some_lines_of_a_table(capsys, tmp_path):
    asked = ["afga-table1", "--scale=small", "--dry_run", f"--out={tmp_path}"]
    assert command(*asked, "--only=Setting 2, (FedAMSGrad|C?AFGA)$") == 0
    shown = [line for line in capsys.readouterr().out.split("\n") if "line=" in line]
    assert [line.split(":")[0].split(", ")[1] for line in shown] == [
        "FedAMSGrad",
        "AFGA",
        "CAFGA",
    ]
    for wrong, expected in (
        ("Setting 7", "leaves nothing of afga-table1: its lines at --scale=small are"),
        ("Setting (2", "not a regular expression"),
    ):
        assert command(*asked, f"--only={wrong}") != 0
        assert expected in capsys.readouterr().err
    asked[0] = "conditions-failures"
    assert command(*asked, "--only=^links, C?AFGA") == 2
    assert "leaves nothing of conditions-failures" in capsys.readouterr().err
    assert command(*asked, "--only=^links.*, AFGA") == 0
    assert "4 runs" in capsys.readouterr().out
    assert command("theory", *asked[1:], "--only=AFGA") == 2
    assert "theory has no lines" in capsys.readouterr().err


def test_more_gradients_are_said(tmp_path):
    found = entries("hafed-figure7", "paper", tmp_path)
    first = found[0].cell.config
    runs = [
        record.Run(
            {**entry.cell.config.to_dict(), "num_seeds": 1},
            [{"seed": 0, "round": 1, "gradients_total": 384 * factor}],
            {"finished": True},
        )
        for entry, factor in zip(found, (1, 1, 1, 1, 4), strict=True)
    ]
    text = presentation.markdown(list(zip(found, runs, strict=True)), ("train_loss",))
    assert "HA-Fed computes 4 times the gradients of FedAvg in a round." in text
    most = estimate.gradients_per_round(found[-1].cell.config)
    assert most == 4 * estimate.gradients_per_round(first)


def test_what_the_papers_print_is_checked():
    """Verdicts that are worked out by hand from the presentation."""
    found = {(one.place, one.says): one for one in claims.claims()}
    assert found["HA-Fed §6", "a ring of 8 has ρ = 0.805"].holds
    factor = found["AFGA Table 7", "hours of afga follow from 18 s and 1.8 s a message"]
    assert not factor.holds
    assert "10.000 to 10.000 times" in factor.found
    # M/(M+N) = 5/105; 24·5 rounds; 1/(2√6), τ·M = 96·8.
    bound = found["AFGA Theorem 4.6", "ρ ≤ M/(M+N) is met by Setting 1"]
    assert (bound.found, bound.holds) == ("0.9987 against 0.04762", False)
    assert found["AFGA Theorem 4.6", "R ≥ 𝓘·M is met by Setting 1"].holds
    long = ("HA-Fed Corollary 5.11", "T > τ·M is met by its setting, local_steps = 96")
    assert (found[long].found, found[long].holds) == ("500 against 768", False)
    sooner = "cafga, Setting 2, cifar100 is the first at 52 %"
    assert found["AFGA Table 2", sooner].found == "round 230 against 235 (scaffold)"
    assert found["AFGA Table 2", sooner].holds


def test_weights_in_delta_are_powers_of_the_mixing_matrix():
    """Each upload reads a gradient of step s with (W^(𝓘−s))ᵢⱼ, followed by hand."""
    algorithm = reached._algorithm("ring", 1)
    plan = reached.jax.tree.map(
        np.asarray, algorithm.plan(reached.jax.random.key(3), 0)
    )
    matrix = reached.topology.ring(reached._CLIENTS)
    uploads = plan.cycles.upload[0].ravel()
    expected = []
    for step, ids in enumerate(plan.cycles.active[0].reshape(reached._STEPS, -1)):
        power = np.linalg.matrix_power(matrix, reached._STEPS - step)
        expected += list(power[np.ix_(uploads, ids)].mean(0))
    found = reached.weights(reached.Finder(algorithm.recipe).graph(plan))
    np.testing.assert_allclose(np.sort(found), np.sort(expected), rtol=0, atol=1e-12)


def test_the_rates_on_trial_are_the_theorys():
    for axis, config in trial.cells("small"):
        steps, active = config.local_steps, config.active
        assert config.local_lr == pytest.approx(config.rounds**-0.5 / steps)
        expected = (steps * active) ** 0.5
        if config.algo == "afga":
            expected = config.num_clients * (steps / active) ** 0.5
        assert config.server_lr == pytest.approx(expected), axis
        assert config.rounds >= steps * active or axis == "ρ"


def test_slopes_are_fitted_to_each_seed():
    x = [2.0, 4.0, 8.0]
    points = [
        trial.Point(
            "M", "afga", 256, one, np.array([one**-0.5, one**-0.3]), "ring", True
        )
        for one in x
    ]
    ((axis, algo, rounds, mean, error),) = trial._fits(points)
    assert (axis, algo, rounds) == ("M", "afga", 256)
    assert mean == pytest.approx(-0.4)
    assert error == pytest.approx(0.1)


@pytest.mark.slow
def test_every_name_runs(tmp_path, monkeypatch, capsys):
    """The smallest size of all names, in one go: they share their runs."""
    # Curves of single runs have their own tests, and take a third of the time.
    monkeypatch.setattr(sweep.runner.report, "curves", lambda run, path: None)
    asked = ["--scale=smoke", "--nocompile_cache", f"--out={tmp_path}"]
    assert command("all", *asked) == 0
    for name in papers.NAMES:
        folder = tmp_path / "smoke" / name
        text = (folder / "table.md").read_text()
        assert f"`python -m experiments.paper {name} {' '.join(asked[:-1])}`" in text
        rows = list(csv.DictReader((folder / "results.csv").read_text().splitlines()))
        if name == "checks":  # arithmetic: as much at any size, and nothing to draw
            assert len(rows) == len(claims.claims())
            continue
        assert 1 <= len(rows) <= 2
        assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
        if isinstance(papers.find(name), Declaration):
            assert "gradients per round" in text
            assert all(row["gradients_per_round"] for row in rows), name
    capsys.readouterr()
    # Nothing is left to do: no experiment is built again.
    monkeypatch.setattr(sweep, "from_config", None)
    monkeypatch.setattr(trial, "from_config", None)
    assert command("afga-table1", "hafed-figure4", "theory", *asked) == 0
