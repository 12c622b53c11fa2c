"""Finished runs at other prices: by hand, against the ledger, and by the command."""

import csv
import functools
import itertools
import types
from pathlib import Path

import jax
import numpy as np
import pytest

import afga_jax
from afga_jax import models, topology
from afga_jax.runs import published
from afga_jax.runs.commands import compare
from afga_jax.runs.record import Run
from afga_jax.runs.report import curves_file, prices
from afga_jax.runs.report.prices import BANDWIDTH, LATENCY, Load, Prices, Share
from afga_jax.training import ledger
from afga_jax.training.ledger import Links

CURVES = Path(__file__).parents[2] / "docs/results/long-trial/curves"
ROUNDS = 3
TASK = models.classifier(models.create("mlp", num_classes=4), input_shape=(2, 2, 1))


def command(*arguments):
    return compare.command.execute(compare.compare, ["compare", *map(str, arguments)])


@functools.cache
def drawn(name, seed, **options):
    """An algorithm, the shapes of its state, and the plans of its first rounds."""
    chosen = {"num_clients": 10, "active": 2, "local_steps": 3, "local_lr": 0.1}
    algorithm = afga_jax.build(name, TASK, **chosen, **options)
    draw = jax.jit(jax.vmap(algorithm.plan, (None, 0)))
    plans = jax.device_get(draw(jax.random.key(seed), np.arange(ROUNDS)))
    rounds = [jax.tree.map(lambda x: x[r], plans) for r in range(ROUNDS)]  # noqa: B023
    return algorithm, jax.eval_shape(algorithm.init, jax.random.key(0)), rounds


def run_of(name, accuracies, *, seed=0, links=None, config=(), **options):
    """A run of one seed with the given accuracies, billed by the ledger."""
    algorithm, state, plans = drawn(name, seed, **options)
    costs = ledger.costs(algorithm, state, links)
    totals = dict.fromkeys(("gossip_messages", "uploads", "bytes", "hours"), 0.0)
    rows = []
    for number, (accuracy, plan) in enumerate(zip(accuracies, plans, strict=False)):
        uploads = 0 if algorithm.recipe.server is None else int(plan.cycles.upload.size)
        info = types.SimpleNamespace(uploads=uploads, faults={})
        bill = costs.per_round(info, number, plan)
        bill["uploads"] = uploads
        totals = {name: total + bill[name] for name, total in totals.items()}
        row = {f"{n}_total": total for n, total in totals.items() if n != "hours"}
        row |= {"seed": seed, "round": number + 1, "test_accuracy": accuracy}
        rows.append(row | {"hours": totals["hours"]})
    return Run({"algo": name, **dict(config)}, rows, summary={"finished": True})


def hours(load, links):
    ratio = links.client_seconds / links.server_seconds
    return load.hours(ratio, links.server_seconds)


# Rings, a denser graph, clusters, mixing among drawn clients, and all computing.
GOSSIP = [
    ("afga", {}),
    ("afga", {"topology": topology.complete}),
    ("cafga", {"num_clusters": 2}),
    ("afga_adapted", {}),
    ("hafed", {"num_clusters": 2}),
]


@pytest.mark.parametrize(("name", "options"), GOSSIP)
@pytest.mark.parametrize("links", [Links(), Links(5.0, 0.25), Links(1.0, 0.0)])
def test_other_prices_give_what_the_ledger_would_have_said(name, options, links):
    accuracies = [0.1, 0.2, 0.3]
    runs = [run_of(name, accuracies, **options), run_of("fedavg", accuracies)]
    again = [
        run_of(name, accuracies, links=links, **options),
        run_of("fedavg", accuracies, links=links),
    ]
    for sent, billed in zip(prices.ledgers(runs, "ab"), again, strict=True):
        for row in billed.metrics:
            spent = prices.reached(sent, row["test_accuracy"]).loads[LATENCY][0]
            assert hours(spent, links) == pytest.approx(row["hours"], rel=1e-12)


def test_counts_follow_from_the_prices_that_a_run_was_billed_with():
    dear, accuracies = {"server_seconds": 7.0, "client_seconds": 0.5}, [0.1, 0.2]
    cases = [{}, {"links": Links(**dear), "config": dear}]
    pairs = [
        [run_of(name, accuracies, **case) for name in ("afga", "fedavg")]
        for case in cases
    ]
    plain, other = (prices.ledgers(runs, "ab") for runs in pairs)
    for one, two in zip(plain, other, strict=True):
        np.testing.assert_array_equal(one.loads[LATENCY], two.loads[LATENCY])


def test_bandwidth_counts_the_bytes_that_wait():
    """Ring of 10, 2 upload, 3 steps: 4 server messages; 3·2 and (10 − 2)/2 others."""
    runs = [run_of(name, [0.5]) for name in ("afga", "fedavg", "scaffold")]
    afga, fedavg, scaffold = prices.ledgers(runs, "abc")
    size = runs[1].metrics[0]["bytes_total"] / 4
    model = afga_jax.build("fedavg", TASK, num_clients=10, active=2, local_steps=3)
    params = jax.eval_shape(model.init, jax.random.key(0)).params
    assert size == sum(4 * leaf.size for leaf in jax.tree.leaves(params))
    assert afga.loads[LATENCY].ravel().tolist() == [4, 10]
    assert afga.loads[BANDWIDTH].ravel().tolist() == [4 * size, 10 * size]
    assert fedavg.loads[BANDWIDTH].ravel().tolist() == [4 * size, 0]
    assert scaffold.loads[LATENCY].ravel().tolist() == [4, 0]
    assert scaffold.loads[BANDWIDTH].ravel().tolist() == [8 * size, 0]


@pytest.mark.parametrize("name", ["fedamsgrad", "afga", "cafga"])
def test_table_7_of_the_paper(name):
    """Setting 1: 5 uploads, 24 steps on a ring, no broadcast, and the factor of 10."""
    for cell in published.HOURS[name]:
        client = 0 if name == "fedamsgrad" else 24 * 2 * cell.rounds
        spent = Load(10 * cell.rounds, client)
        assert 10 * hours(spent, Links()) == pytest.approx(cell.hours, abs=0.01)


def test_break_even_of_the_papers_table_7():
    """At 78 %: 388 rounds of 10 messages against 302 and 233 of 10 and 48."""
    baseline = Load(3880, 0)
    afga, cafga = Load(3020, 302 * 48), Load(2330, 233 * 48)
    assert prices.break_even(afga, baseline) == pytest.approx(860 / 14496)
    assert prices.break_even(cafga, baseline) == pytest.approx(1550 / 11184)


def test_at_the_break_even_both_take_equally_long():
    gossip, baseline = Load(300, 7000), Load(450, 0)
    ratio = prices.break_even(gossip, baseline)
    assert ratio == 150 / 7000
    assert gossip.hours(ratio, 18.0) == pytest.approx(baseline.hours(ratio, 18.0))
    assert gossip.hours(0.9 * ratio, 18.0) < baseline.hours(0.9 * ratio, 18.0)
    assert gossip.hours(1.1 * ratio, 18.0) > baseline.hours(1.1 * ratio, 18.0)


@pytest.mark.parametrize("server", [450, 500])
def test_free_links_do_not_help_who_takes_as_many_rounds(server):
    assert prices.break_even(Load(server, 7000), Load(450, 0)) == 0


def test_the_cheapest_changes_at_crossings_only():
    """Lines 1 + 100r, 2 + 10r, 3: they meet at 1/90 and 1/10."""
    loads = [Load(3, 0), Load(1, 100), Load(2, 10)]
    shares = prices.cheapest(loads, 0.001, 1.0)
    assert [share.method for share in shares] == [1, 2, 0]
    edges = [shares[0].low, *(share.high for share in shares)]
    assert edges == pytest.approx([0.001, 1 / 90, 0.1, 1.0])


def test_a_line_that_is_never_lowest_has_no_share():
    loads = [Load(3, 0), Load(1, 100), Load(2.9, 90)]
    assert {share.method for share in prices.cheapest(loads, 0.001, 1.0)} == {0, 1}
    assert prices.cheapest([Load(3, 0), Load(3, 0)], 0.1, 1.0) == [Share(0, 0.1, 1.0)]


def test_shares_agree_with_trying_every_ratio():
    generator = np.random.default_rng(0)
    for _ in range(20):
        loads = [Load(*pair) for pair in generator.uniform(0, 9, (5, 2))]
        shares = prices.cheapest(loads, 0.01, 10.0)
        assert shares[0].low == 0.01
        assert shares[-1].high == 10.0
        for one, two in itertools.pairwise(shares):
            assert one.high == two.low
        for ratio in np.geomspace(0.011, 9.9, 200):
            times = [load.hours(ratio, 1.0) for load in loads]
            share = next(s for s in shares if s.low <= ratio <= s.high)
            assert times[share.method] == pytest.approx(min(times))


def test_a_method_is_there_when_all_of_its_seeds_are():
    one = run_of("afga", [0.2, 0.6, 0.5], seed=0)
    two = run_of("afga", [0.2, 0.3, 0.5], seed=1)
    both = Run(one.config, one.metrics + two.metrics)
    sent, _ = prices.ledgers([both, run_of("fedavg", [0.5])], "ab")
    assert prices.reached(sent, 0.6) is None
    assert prices.highest(sent) == 0.5
    spent = prices.reached(sent, 0.5)
    assert spent.rounds == [2, 3]
    each = spent.loads[LATENCY]
    assert prices.mean(each) == Load(10, 25)
    seeds = [load.hours(0.1, 18.0) for load in each]
    assert prices.mean(each).hours(0.1, 18.0) == pytest.approx(np.mean(seeds))


@pytest.mark.parametrize(("best", "whole"), [(0.29, 0.29), (0.7299, 0.72), (0.7, 0.7)])
def test_the_common_target_is_a_whole_percent(best, whole):
    runs = [run_of("afga", [0.1, best]), run_of("fedavg", [0.95])]
    assert prices.common_target(prices.ledgers(runs, "ab")) == whole


def test_the_committed_curves_hold_the_ledgers_hours():
    """The papers' 18 s and 1.8 s give back every recorded hour."""
    runs = curves_file.read(sorted(CURVES.glob("s2-*.csv")))
    labels = [run.config["algo"] for run in runs]
    for run, sent in zip(runs, prices.ledgers(runs, labels), strict=True):
        server, client = sent.loads[LATENCY]
        recorded = prices.values(run, "hours")
        again = Load(server, client).hours(0.1, 18.0)
        np.testing.assert_allclose(again, recorded, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hours": None}, "has no hours"),
        ({"hours": 0.01234}, "no whole number of messages"),
        ({"hours": 0.0}, "no whole number of messages"),
        ({"bytes_total": 1000.0}, "not all of"),
    ],
    ids=["no hours", "other prices", "less than its uploads", "another model"],
)
def test_curves_that_cannot_be_priced(change, message):
    run = run_of("afga", [0.5])
    run.metrics[0].update(change)
    with pytest.raises(ValueError, match=message):
        prices.ledgers([run, run_of("fedavg", [0.5])], ["mine", "other"])


def test_hours_at_no_cost_count_no_messages():
    free = {"client_seconds": 0.0}
    run = run_of("afga", [0.5], links=Links(18.0, 0.0), config=free)
    with pytest.raises(ValueError, match="messages of 0 s"):
        prices.ledgers([run, run_of("fedavg", [0.5])], ["mine", "other"])


@pytest.mark.parametrize("name", ["afga", "fedavg"])
def test_one_kind_of_method_has_no_break_even(name):
    with pytest.raises(ValueError, match="give both"):
        prices.ledgers([run_of(name, [0.5])], ["mine"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"server_seconds": 0.0},
        {"client_seconds": -1.0},
        {"server_speed": 0.0},
        {"client_speed": float("nan")},
        {"lowest_ratio": 0.0},
        {"lowest_ratio": 1.0, "highest_ratio": 1.0},
        {"lowest_ratio": 2.0, "highest_ratio": 1.0},
    ],
)
def test_prices_out_of_bounds(wrong):
    with pytest.raises(ValueError, match="but it must be"):
        Prices(**wrong)


def test_both_kinds_of_prices():
    asked = Prices(server_seconds=20.0, client_seconds=1.0, server_speed=8.0)
    assert asked.ratio(LATENCY) == 0.05
    assert asked.ratio(BANDWIDTH) == 0.08
    # A megabyte takes a second at 8 Mbit/s.
    assert Load(1e6, 0).hours(0.0, asked.server(BANDWIDTH)) * 3600 == pytest.approx(1)


def test_the_command_prices_the_committed_curves(tmp_path, capsys):
    assert command(CURVES, "--prices", "--target=0.72", f"--out={tmp_path}") == 0
    said = capsys.readouterr().out
    assert "### Hours to 72 % by latency: 18 s a message to the server" in said
    assert "### Hours to 72 % by bandwidth: 10 Mbit/s to the server" in said
    text = (tmp_path / "prices.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    paper = {
        row["method"]: float(row["hours"])
        for row in rows
        if row["links"] == "latency" and float(row["ratio"]) == 0.1
    }
    # What the curves themselves say at the first round of each seed at 72 %.
    for run in curves_file.read(sorted(CURVES.glob("s2-*.csv"))):
        first = {}
        for row in run.metrics:
            if row["test_accuracy"] >= 0.72:
                first.setdefault(row["seed"], row["hours"])
        expected = np.mean(list(first.values()))
        assert paper[run.config["algo"]] == pytest.approx(expected, abs=1e-9)
    assert (tmp_path / "prices.png").read_bytes().startswith(b"\x89PNG")
    assert "break-even r against" in (tmp_path / "prices.md").read_text()


def test_runs_without_accuracy_need_others(tmp_path, capsys, monkeypatch):
    without_figures(monkeypatch)
    runs = run_of("afga", [None]), run_of("fedavg", [0.5, 0.6])
    path = write_curves(tmp_path / "curves", *runs)
    assert command(path, "--prices", f"--out={tmp_path / 'out'}") == 1
    said = capsys.readouterr().err
    assert "no accuracy that all of these runs reach" in said
    hours, _ = prices_of(path, "--target=0.6")
    assert {method for method, _ in hours} == {"fedavg"}


def without_figures(monkeypatch):
    """Drawing takes more than all else; one test looks at the figure."""
    for place in ("report.comparison", "break_even.figure"):
        monkeypatch.setattr(f"afga_jax.runs.commands.compare.{place}", lambda *_: None)


def write_curves(folder, *runs):
    folder.mkdir(exist_ok=True)
    path = folder / "curves.csv"
    path.write_text(curves_file.text(runs))
    return path


@pytest.fixture
def curves(tmp_path, monkeypatch):
    """AFGA is at 50 % after one round of 4 + 10 messages, FedAvg after two of 4."""
    without_figures(monkeypatch)
    runs = run_of("afga", [0.5, 0.6, 0.8]), run_of("fedavg", [0.4, 0.5, 0.6])
    return write_curves(tmp_path / "curves", *runs)


def prices_of(curves, *flags):
    """Hours by method and ratio of latency, and the command's table."""
    out = curves.parent / "out"
    assert command(curves, "--prices", *flags, f"--out={out}") == 0
    rows = csv.DictReader((out / "prices.csv").read_text().splitlines())
    hours = {
        (row["method"], float(row["ratio"])): float(row["hours"])
        for row in rows
        if row["links"] == "latency"
    }
    return hours, (out / "prices.md").read_text()


def test_hours_and_break_even_by_hand(curves):
    hours, text = prices_of(curves, "--target=0.5")
    assert hours["fedavg", 0.1] == pytest.approx(8 * 18 / 3600)
    assert hours["afga", 0.0] == pytest.approx(4 * 18 / 3600)
    assert hours["afga", 0.1] == pytest.approx((4 * 18 + 10 * 1.8) / 3600)
    assert hours["afga", 1.0] == pytest.approx(14 * 18 / 3600)
    # 4 messages of the server are saved by 10 between clients.
    assert "0.4 |" in text.split("break-even")[1]


def test_other_prices_and_ratios(curves):
    flags = ("--prices=10,2", "--ratios=0.02,0.5", "--target=0.5")
    hours, text = prices_of(curves, *flags)
    assert {ratio for _, ratio in hours} == {0, 0.02, 0.03, 0.1, 0.2, 0.3, 0.5}
    assert hours["afga", 0.2] == pytest.approx((4 * 10 + 10 * 2) / 3600)
    assert "10 s a message" in text


def test_a_ratio_that_is_round_but_for_its_last_bit_has_one_column(curves):
    assert 1.2 / 12 != 0.1
    _, text = prices_of(curves, "--prices=12,1.2", "--target=0.5")
    assert text.split("bandwidth")[0].count("r = 0.1 ") == 1


def test_other_speeds(curves):
    _, text = prices_of(curves, "--speeds=2,8", "--target=0.5")
    assert "2 Mbit/s to the server" in text
    assert "r = 0.25 " in text


def test_without_a_target_it_is_the_highest_that_all_reach(curves):
    _, text = prices_of(curves)
    assert "Hours to 60 %" in text


def test_a_target_that_only_gossip_reaches(curves):
    hours, text = prices_of(curves, "--target=0.7")
    assert {method for method, _ in hours} == {"afga"}
    assert "always" in text
    assert "> 3" in text


def test_a_target_that_only_the_baseline_reaches(tmp_path, monkeypatch):
    without_figures(monkeypatch)
    runs = run_of("afga", [0.2, 0.3]), run_of("fedavg", [0.4, 0.5])
    hours, text = prices_of(write_curves(tmp_path, *runs), "--target=0.5")
    assert {method for method, _ in hours} == {"fedavg"}
    assert "never" in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--prices=-18,1.8"], "server_seconds = -18.0, but it must be > 0"),
        (["--prices=18,-1"], "client_seconds = -1.0, but it must be >= 0"),
        (["--prices=cheap"], "prices = 'cheap', but it must be two numbers"),
        (["--prices=18"], "prices = '18', but it must be two numbers"),
        (["--prices="], "prices = '', but it must be two numbers"),
        (["--prices=18,nan"], "client_seconds = nan"),
        (["--prices", "--speeds=0,1"], "server_speed = 0.0, but it must be > 0"),
        (["--prices", "--ratios=1,1"], "the range is empty"),
        (["--prices", "--ratios=1,0.1"], "the range is empty"),
        (["--prices", "--ratios="], "ratios = '', but it must be two numbers"),
        (["--prices", "--ratios=0,1"], "lowest_ratio = 0.0, but it must be > 0"),
        (["--prices", "--target=0.95"], "target = 0.95, but it must be"),
        (["--prices", "--target=-0.1"], "target = -0.1, but it must be"),
    ],
)
def test_bad_prices_are_one_line(flags, message, curves, tmp_path, capsys):
    assert command(curves, *flags, f"--out={tmp_path / 'out'}") == 1
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not said.out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flag", ["--ratios=0.1,1", "--speeds=1,2"])
def test_flags_of_prices_alone(flag, curves, capsys):
    assert command(curves, flag) == 2
    assert "has no effect" in capsys.readouterr().err


def test_a_folder_of_curves(tmp_path, capsys, monkeypatch):
    without_figures(monkeypatch)
    for name in ("afga", "fedavg"):
        path = tmp_path / f"{name}.csv"
        path.write_text(curves_file.text([run_of(name, [0.5])]))
    assert command(tmp_path, "--prices", f"--out={tmp_path / 'out'}") == 0
    capsys.readouterr()
    # What a comparison wrote has tables beside its curves.
    assert command(tmp_path / "out", f"--out={tmp_path / 'again'}") == 0
    assert "\nfedavg" in capsys.readouterr().out


def test_the_same_curve_from_two_files_is_refused(tmp_path, capsys):
    for name in ("ring", "complete"):
        path = tmp_path / f"{name}.csv"
        path.write_text(curves_file.text([run_of("afga", [0.5])]))
    assert command(tmp_path, f"--out={tmp_path / 'out'}") == 1
    said = capsys.readouterr().err
    assert "afga with seed 0" in said
    assert "ring.csv" in said
