"""Pages: their numbers are those of plans, matrices and records; names stay names."""

import html
import json
import types

import jax
import numpy as np
import pytest

import afga_jax
import run_files
import toy
from afga_jax.rounds import needed
from afga_jax.rounds.client_step import is_stateful
from afga_jax.rounds.span.dependencies import Finder
from afga_jax.runs import command, flags, record, runner
from afga_jax.runs.commands import explore, report
from afga_jax.runs.config import Config, differences
from afga_jax.runs.pages import explorer, labels, page, run_report
from afga_jax.runs.settings import resolve
from afga_jax.training import ledger
from cases import marked

KEY, ROUND = jax.random.key(3), 2
CASES = {
    "ring": ("afga", {}),
    "clusters": ("cafga", {"num_clusters": 2}),
    "mix first": ("afga", {"mixing_order": "before"}),
    "shifts without an own share": ("afga", {"topology": np.roll(np.eye(12), 1, 0)}),
    "momentum": ("afga", {"local_optimizer": "momentum"}),
    "every second step": ("hafed_partial", {"num_clusters": 2, "mix_every": 2}),
    "drawn rings": ("cafga_adapted", {"num_clusters": 2}),
    "clipped": ("afga", {"gossip_defence": afga_jax.robust.clipped(1)}),
    "nobody mixes": ("fedavg", {}),
    "cycles": (
        "fedcluster",
        {"inner": "afga", "num_clusters": 3, "topology": "ring", "participation": 0.5},
    ),
    "no server": ("dsgd", {"topology": "torus"}),
    "mixed before, no server": ("dadam", {}),
}
QUICK = ("mix first", "every second step", "drawn rings", "cycles", "no server")


def built(name, num_clients=12, **options):
    given = {"local_steps": 4, **options}
    if "participation" not in given:
        given.setdefault("active", 4)
    return afga_jax.build(name, toy.logistic(), num_clients=num_clients, **given)


def shares(algorithm, plan, cycle):
    """`[steps, clients, tasks]` by the operators' plain matrices, in client ids."""
    recipe, part = algorithm.recipe, plan.cycle(cycle)
    number = recipe.clustering.num_clients
    rows = recipe.mixing.rows(plan, cycle)
    ids = np.arange(number) if rows is None else np.asarray(rows)
    real = ids < number
    active = [row[row < number] for row in np.asarray(part.active).reshape(4, -1)]
    total, after = np.zeros((number, sum(map(len, active)))), []
    first = np.append(0, np.cumsum([len(row) for row in active]))
    for step, row in enumerate(active):
        mixing = np.eye(number)
        matrix = np.asarray(recipe.mixing.at(plan, step, cycle).matrix(), float)
        mixing[np.ix_(ids[real], ids[real])] = matrix[np.ix_(real, real)]
        new = np.zeros_like(total)
        new[row, first[step] + np.arange(len(row))] = 1
        mix_first = recipe.mix_first
        total = mixing @ total + new if mix_first else mixing @ (total + new)
        after.append(total)
    return after, active, first


@pytest.fixture(scope="module", params=marked(CASES, QUICK))
def case(request):
    name, options = CASES[request.param]
    algorithm = built(name, **options)
    view = explorer.look(algorithm, KEY, ROUND, toy.clients(12))
    return algorithm, algorithm.plan(KEY, ROUND), view


def test_weights_and_distances_are_products_of_matrices(case):
    algorithm, plan, view = case
    number = view.num_clients
    for cycle, shown in enumerate(view.cycles):
        after, active, first = shares(algorithm, plan, cycle)
        assert [row.tolist() for row in active] == shown.active
        final = np.full(number, 1 / number)
        if view.served:
            final = np.zeros(number)
            final[shown.uploads] = shown.upload_weight
            assert sum(shown.upload_weight) == pytest.approx(1)
        weights = final @ after[-1]
        # The page keeps seven digits, float32 matrices have as many.
        np.testing.assert_allclose(np.concatenate(shown.weight), weights, rtol=1e-6)
        reached = np.concatenate(shown.reaches)
        np.testing.assert_array_equal(reached, (after[-1] > 0).sum(0))
        for step, share in enumerate(after):
            so_far = (final @ share)[: first[step + 1]]
            assert shown.gradients[step] == len(so_far)
            assert shown.arrived[step] == pytest.approx((so_far > 0).mean())
            squares = len(so_far) * (so_far**2).sum()
            effective = so_far.sum() ** 2 / squares if squares else 0
            assert shown.effective[step] == pytest.approx(effective, rel=1e-5)
            far = ((share - share.mean(0)) ** 2).sum(1)
            np.testing.assert_allclose(shown.distance[step], far, rtol=2e-3, atol=1e-6)


def test_what_is_needed_is_what_the_engines_compute(case):
    algorithm, plan, view = case
    recipe = algorithm.recipe
    params = jax.eval_shape(algorithm.init, KEY).params
    for cycle, shown in enumerate(view.cycles):
        mask = needed.mask(recipe, plan, cycle, stateful=is_stateful(recipe, params))
        if mask is None:
            assert all(map(all, shown.needed))
            continue
        number = recipe.clustering.num_clients
        ids = np.asarray(plan.cycle(cycle).active).reshape(4, -1)
        # `mask` is in the order of `flat_active`, with padding last.
        order = np.argsort(ids >= number, axis=1, kind="stable")
        real = np.take_along_axis(ids, order, 1) < number
        for step, row in enumerate(np.asarray(mask)):
            assert shown.needed[step] == row[real[step]].tolist()
        for row, wanted in zip(shown.weight, shown.needed, strict=True):
            assert all(w or not weight for weight, w in zip(row, wanted, strict=True))


def test_weights_are_those_that_uploads_read():
    algorithm = built("afga", 30, active=3)
    view = explorer.look(algorithm, KEY, ROUND)
    plan = jax.tree.map(np.asarray, algorithm.plan(KEY, ROUND))
    graph = Finder(algorithm.recipe).graph(plan)
    tasks = len(graph.step)
    first = graph.first[tasks]
    read = np.bincount(graph.task[first:], graph.weight[first:], minlength=tasks) / 3
    (cycle,) = view.cycles
    shown = {
        (step, client): weight
        for step, row in enumerate(cycle.active)
        for client, weight in zip(row, cycle.weight[step], strict=True)
    }
    assert len(shown) == graph.planned > tasks
    for step, client, weight in zip(graph.step, graph.client, read, strict=True):
        assert shown[step, client] == pytest.approx(weight, rel=1e-6)
    assert sum(weight > 0 for weight in shown.values()) == tasks


def test_the_last_entry_of_the_ledger_is_the_rounds():
    algorithm = built("cafga", num_clusters=2)
    view = explorer.look(algorithm, KEY, ROUND)
    costs = ledger.costs(algorithm, jax.eval_shape(algorithm.init, KEY))
    info = types.SimpleNamespace(uploads=4, faults={})
    assert view.ledger[-1] == costs.per_round(info, ROUND)
    assert len(view.ledger) == 4 + 2


def test_who_holds_which_labels():
    inputs, targets = np.zeros((6, 2), np.float32), np.array([0, 0, 1, 2, 2, 2])
    clients = afga_jax.data.from_arrays(
        inputs, targets, [[0, 2], [1, 3, 4, 5]], batch_size=1
    )
    counts = labels.label_counts(clients, np.arange(2))
    assert counts.tolist() == [[1, 1, 0], [1, 0, 3]]
    assert labels.label_shares(clients, np.arange(2))[1] == [0.25, 0, 0.75]


def test_of_many_clients_a_neighbourhood_is_shown():
    algorithm = built("afga", 2000, active=3)
    view = explorer.look(algorithm, KEY, ROUND)
    assert len(view.clients) == explorer.MOST_CLIENTS
    assert "500 of 2,000 clients are shown" in view.notes[0]
    (cycle,) = view.cycles
    assert cycle.gradients[-1] == 12
    assert cycle.uploads
    graph = view.graphs[cycle.mixing[0]]
    # Inside the neighbourhood everybody has its neighbours on the ring.
    widths = [sum(row[1::2]) - sum(row[::2]) for row in graph.columns]
    assert max(widths) == 3
    assert all(isinstance(weights, int) for weights in graph.weights)


def test_what_is_too_large_or_lacks_data_is_said(monkeypatch):
    monkeypatch.setattr(explorer, "_MOST_ENTRIES", 143)
    with pytest.raises(ValueError, match="W, which has 144 numbers here, and at most"):
        explorer.look(built("afga", topology="random"), KEY, 0)
    with pytest.raises(ValueError, match="give the data"):
        explorer.look(built("fedavg", weighting="size"), KEY, 0)
    with pytest.raises(ValueError, match=r"round = -1, but it must be >= 0"):
        afga_jax.explore(built("afga"), round=-1)


def test_a_notebook_shows_the_page_in_a_frame(tmp_path):
    shown = afga_jax.explore(built("afga"), name='<b>"hostile"')
    frame = shown._repr_html_()
    assert html.escape(shown.html) in frame
    assert "<b>" not in shown.html.split("<body")[1].split("<script>")[0]
    assert shown.save(tmp_path / "new" / "page.html").read_text() == shown.html


@pytest.mark.parametrize("topology", ["ring", "complete", "unbalanced_complete"])
def test_pages_stay_below_two_megabytes(topology):
    shown = afga_jax.explore(built("afga", 500, active=25, topology=topology))
    assert len(shown.html.encode()) < 2e6
    assert "http" not in shown.html.replace("http-equiv", "").replace(
        "http://www.w3.org/2000/svg", ""
    )


def test_data_cannot_leave_their_element():
    hostile = "</script><script>alert(1)</script>\u2028{{pages.js}}\ud800"
    text = page.as_json({"name": hostile})
    assert not set("<>&") & set(text)
    assert text.isascii()
    assert json.loads(text) == {"name": hostile}
    assert page.fill("report", {"name": hostile}).html.count("</script>") == 2


def written(folder, *, algo="afga", seeds=(0, 1), rounds=(2, 4, 6), scale=1.0, **more):
    """The folder of a run that was never trained."""
    given = {
        "algo": algo,
        "rounds": 6,
        "num_seeds": len(seeds),
        "scale": "smoke",
        **more,
    }
    config = resolve(given, dataset="digits").config
    rows = [
        {
            "seed": seed,
            "round": round,
            "test_accuracy": scale * (0.1 * round + 0.01 * seed),
            "test_loss": 1 / (round + seed + 1),
            "train_loss": 2 / round,
            "uploads_total": 4 * round,
            "gossip_messages_total": 0 if algo == "fedavg" else 48 * round,
            "gradients_total": 16 * round,
            "bytes_total": 1000 * round * (8 if algo == "fedavg" else 60),
            # Eight messages to and from the server a round, four between clients.
            "hours": round * (8 * 18 + (0 if algo == "fedavg" else 4 * 1.8)) / 3600,
            "seconds": 1.5 * round,
        }
        for round in rounds
        for seed in seeds
    ]
    with record.Record(folder) as writer:
        writer.configure(config.to_dict(), facts={"label_names": list("abcdefghij")})
        writer.write(rows)
    return folder


def test_curves_are_those_of_the_metrics(tmp_path):
    run = record.read(written(tmp_path / "run"))
    view = run_report.view([run])
    (shown,) = view.runs
    assert shown.rounds == [2, 4, 6]
    assert shown.x["bytes_total"] == [120e3, 240e3, 360e3]
    of_round = [[r for r in run.metrics if r["round"] == round] for round in (2, 4, 6)]
    for name in ("test_accuracy", "test_loss", "train_loss"):
        pairs = [[row[name] for row in rows] for rows in of_round]
        assert shown.mean[name] == pytest.approx(np.mean(pairs, 1))
        assert shown.deviation[name] == pytest.approx(np.std(pairs, 1, ddof=1))
    assert [name for name, _ in view.metrics] == [
        "test_accuracy",
        "test_loss",
        "train_loss",
    ]
    assert shown.versions == record.versions()
    (partition,) = view.partitions
    assert np.shape(partition.counts) == (run.config["num_clients"], 10)
    assert partition.label_names == list("abcdefghij")


def test_runs_side_by_side(tmp_path):
    folders = [written(tmp_path / algo, algo=algo) for algo in ("fedavg", "afga")]
    view = run_report.view([record.read(folder) for folder in folders])
    differing = [name for name, differs, _ in view.settings if differs]
    assert differing[0] == "algo"
    assert [row[1] for row in view.settings[: len(differing)]] == [True] * len(
        differing
    )
    assert len(view.partitions) == 1
    assert view.break_even["target"] == 0.6
    assert view.break_even["kinds"][0]["table"][1][0] == "afga"
    assert view.ledger[1][:4] == ["fedavg", "6", "96", "24"]
    alone = run_report.view([record.read(folders[0])])
    assert "no run with messages between clients" in alone.break_even["reason"]


def test_every_client_of_a_run_that_logged_them(tmp_path):
    folder = written(tmp_path / "run")
    accuracy = np.array([[0.5, 1.0, 0.7], [0.5, 0.8, 0.7]])
    about = {"round": 6, "seeds": [0, 1], "sizes": np.full(3, 10), "loss": accuracy}
    record.Record(folder).write_clients({**about, "accuracy": accuracy})
    (clients,) = run_report.view([record.read(folder)]).clients
    assert clients["values"] == [0.5, 0.7, 0.9]
    assert (clients["round"], clients["worst_tenth"]) == (6, 0.5)


@pytest.mark.parametrize(
    "given",
    [
        {"algo": "afga"},
        {"algo": "cafga", "hidden": (8, 4), "consensus": True, "num_seeds": 3},
        {"algo": "hafed_active", "dataset": "quadratic", "scale": "smoke"},
        {"algo": "fedavg", "dataset": "logistic", "local_lr": 1e-05, "resample": False},
    ],
)
def test_a_commands_line_repeats_the_run(given):
    config = resolve(given, dataset="digits").config
    _, _, module, *words = run_report.command_line(config).split()
    values = flags.define()
    flags.parse([module, *words], values)
    dataset = {"synthetic": "quadratic"}.get(module.split(".")[1], "digits")
    again = resolve(flags.given(values), dataset=dataset).config
    assert not differences(config, again)


def executed(capsys, function, *words):
    code = command.execute(function, ["afga x", *map(str, words)])
    return code, *capsys.readouterr()


def test_the_report_of_a_folder_of_runs(tmp_path, capsys):
    for algo in ("fedavg", "afga"):
        written(tmp_path / algo, algo=algo)
    code, output, errors = executed(capsys, report.report, tmp_path)
    assert (code, output) == (0, f"report: {tmp_path / 'report.html'}\n"), errors
    text = (tmp_path / "report.html").read_text()
    assert text.index('"name":"afga"') < text.index('"name":"fedavg"')


@pytest.mark.parametrize("damage", ["empty", "edited", "cut", "clients", "nothing"])
def test_what_cannot_be_shown_is_one_line_and_no_page(damage, tmp_path, capsys):
    folder = written(tmp_path / "run", rounds=() if damage == "empty" else (2,))
    if damage == "edited":
        (folder / "config.json").write_text((folder / "config.json").read_text() + " x")
    if damage == "cut":
        (folder / "metrics.jsonl").write_text('{"seed": 0}\n')
    if damage == "clients":
        (folder / "clients.npz").write_bytes(b"PK")
    words = [] if damage == "nothing" else [folder]
    code, output, errors = executed(capsys, report.report, *words)
    assert code == (2 if damage == "nothing" else 1)
    assert not output
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert str(folder) in errors or damage == "nothing"
    assert not list(tmp_path.rglob("*.html"))


def test_a_run_that_is_watched_rewrites_its_report(tmp_path, monkeypatch):
    monkeypatch.setattr(run_report, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(run_report, "_FACTOR", 0.0)
    seen, save = [], page.Page.save

    def noted(self, path):
        save(self, path)
        content = path.read_text().split('id="data">')[1].split("</script>")[0]
        seen.append(json.loads(content))

    monkeypatch.setattr(page.Page, "save", noted)
    config = run_files.CONFIG.replace(live=True)
    run = runner.run(config, tmp_path / "run", programs=run_files.programs())
    assert [view["live"] for view in seen] == [True] * (len(seen) - 1) + [False]
    rounds = [view["runs"][0]["rounds"] for view in seen]
    every = [row["round"] for row in run.metrics]
    assert rounds == [every[: n + 1] for n in range(len(every))] + [every]
    assert seen[-1]["runs"][0]["status"] == "finished after 7 rounds"


TINY = ["--scale=smoke", "--num_clients=4", "--local_steps=2", "--nocompile_cache"]


def data_of(path):
    content = path.read_text().split('id="data">')[1].split("</script>")[0]
    return json.loads(content)


def test_a_round_without_training(tmp_path, capsys):
    out = tmp_path / "page.html"
    words = ["--algo=afga", "--round=3", "--participation=0.5", *TINY, f"--out={out}"]
    code, output, errors = executed(capsys, explore.explore, *words)
    assert (code, output) == (0, f"explorer: {out}\n"), errors
    shown = data_of(out)
    assert (shown["round"], shown["name"]) == (3, "afga on digits")
    assert np.shape(shown["labels"]) == (4, 10)
    assert shown["measured"] is None


def test_a_round_of_a_run(tmp_path, capsys):
    folder = written(tmp_path / "run", num_clients=4)
    code, _, errors = executed(capsys, explore.explore, f"--run={folder}", "--round=1")
    assert code == 0, errors
    shown = data_of(folder / "explorer.html")
    assert shown["measured"]["round"] == [2, 4, 6]
    assert shown["measured"]["consensus"] == [None] * 3
    plan = data_of(folder / "explorer.html")["cycles"][0]["active"]
    config = Config.from_dict(record.read(folder).config)
    assert len(plan) == config.local_steps


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--round=-1"], 2, "round = -1, but it must be >= 0"),
        (["--run=here", "--algo=afga"], 2, "--algo has no effect on a run"),
        (["--run=no_such_run"], 1, "no_such_run holds no run"),
        (["--algo=afag"], 1, "did you mean 'afga'?"),
    ],
)
def test_a_mistake_is_one_line(words, code, message, capsys):
    ended, output, errors = executed(capsys, explore.explore, *words)
    assert (ended, output) == (code, "")
    assert message in errors
    assert errors.count("\n") == 1
