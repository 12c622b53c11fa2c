"""Advice without training: every number by hand, and the command."""

import csv

import pytest

from afga_jax.runs import advice, command
from afga_jax.runs.advice import Asked, advise
from afga_jax.runs.commands import advise as advising
from afga_jax.training.ledger import Links

# Four clients, two upload, three steps; five numbers are 20 bytes.
FOUR = {"num_clients": 4, "active": 2, "local_steps": 3, "parameters": 5}
PRICES = Links(server_seconds=10.0, client_seconds=1.0)


def found(**more):
    advices = advise(Asked(**{**FOUR, "links": PRICES, **more}))
    return {(one.topology, one.clusters, one.period): one for one in advices.best_first}


@pytest.fixture(scope="module")
def four():
    names = ("ring", "complete", "one_peer_exponential")
    return found(topologies=names, clusters=(1, 2), periods=(1, 2, 3))


def test_no_gossip_by_hand(four):
    one = four["none", 1, 1]
    # x_r to two, two uploads, one after another: 4 · 10 s.
    assert one.messages == 4
    assert one.spent["bytes"] == 4 * 20
    assert one.hours == pytest.approx(40 / 3600)
    assert one.drift == 3
    assert one.conditions == {}


def test_a_ring_by_hand(four):
    one = four["ring", 1, 1]
    # ρ = 1/3 + 2/3·cos(π/2). Passing on to two, one each; eight messages a step.
    assert one.contraction == pytest.approx((1 / 3, 1))
    assert one.drift == pytest.approx(1.5)
    assert one.spent["broadcasts"] == 2
    assert one.spent["gossip_messages"] == 3 * 8
    assert one.messages == 2 + 2 + 2 + 24
    assert one.spent["bytes"] == 30 * 20
    # Four server messages; one passed on and two a step wait for each other.
    assert one.hours == pytest.approx((4 * 10 + (1 + 3 * 2) * 1) / 3600)
    assert one.score == pytest.approx(one.hours * 1.5)
    assert one.conditions["R ≥ 𝓘·M"] == {"holds": True, "left": 500, "right": 6}
    assert one.conditions["ρ ≤ M/(M+N)"]["right"] == pytest.approx(2 / 6)


def test_mixing_less_often_by_hand(four):
    one = four["ring", 1, 3]
    assert one.spent["gossip_messages"] == 8
    assert one.hours == pytest.approx((4 * 10 + (1 + 2) * 1) / 3600)
    assert one.contraction == pytest.approx((1 / 3, 3))
    assert one.drift == 3  # 3/(1 − 1/3) is more than the round has
    assert one.conditions == {}  # the papers' clients mix after every step


def test_clusters_by_hand(four):
    one = four["complete", 2, 1]
    # Two pairs: each mean is exact; two messages in each of three steps and pairs.
    assert one.contraction == (0, 1)
    assert one.drift == 1
    assert one.spent["gossip_messages"] == 3 * 4
    assert one.hours == pytest.approx((4 * 10 + (1 + 3) * 1) / 3600)
    name = "ρ_max ≤ m/(m+n)"
    assert one.conditions[name] == {"holds": True, "left": 0, "right": 1 / 3}


def test_a_sequence_by_hand(four):
    every_step, every_second = (four["one_peer_exponential", 1, q] for q in (1, 2))
    assert every_step.contraction == pytest.approx((0, 2), abs=1e-12)
    assert every_step.drift == pytest.approx(2)
    assert every_step.spent["gossip_messages"] == 3 * 4
    # Only the client two behind is ever heard.
    assert every_second.contraction == pytest.approx((1, 2))
    assert every_second.drift == 3


def test_links_that_fail_by_hand():
    failing = found(topologies=("complete",), clusters=(2,), link_failure=0.25)
    one = failing["complete", 2, 1]
    # A pair meets with 3/4, or stays as far apart: ρ² = 1/4.
    assert one.contraction == pytest.approx((0.5, 1))
    assert one.drift == pytest.approx(2)
    assert not one.conditions["ρ_max ≤ m/(m+n)"]["holds"]
    assert one.spent["gossip_messages"] == 3 * 4  # as if every link were tried


def test_best_first_and_what_cannot_be_first(four):
    choices = list(four.values())
    scores = [one.score for one in choices]
    assert scores == sorted(scores)
    kept = [
        one
        for one, mark in zip(choices, advice.undominated(choices), strict=True)
        if mark
    ]
    for one in choices:
        assert one in kept or any(
            other.hours <= one.hours and other.drift <= one.drift for other in kept
        )
    shares = advice.ranges(choices)
    assert (shares[0].low, shares[-1].high) == (0, 1)
    for share in shares:
        middle = (share.low + share.high) / 2
        least = min(one.hours * one.drift**middle for one in choices)
        first = choices[share.method]
        assert first.hours * first.drift**middle == pytest.approx(least)
        assert first in kept
    assert choices[shares[0].method].topology == advice.NONE
    assert shares[-1].method == 0


@pytest.mark.slow
def test_every_topology_is_tried_or_named():
    """A number that is no power of two, links that fail: what cannot be says why."""
    advices = advise(Asked(6, 2, 2, periods=(1,), clusters=(1,), link_failure=0.1))
    tried = {one.topology for one in advices.best_first} - {advice.NONE}
    left_out = {line.partition(",")[0] for line in advices.left_out}
    assert tried | left_out == set(advice.names())
    one_way = {"exponential", "one_peer_exponential", "epidemic"}
    assert left_out == {"hypercube", *one_way}


def test_clusters_that_divide_clients_and_uploads():
    assert Asked(32, 12).numbers_of_clusters() == (1, 2, 4)
    assert Asked(17, 5).numbers_of_clusters() == (1,)


def run(capsys, *arguments):
    words = ["python -m experiments.advise", *arguments]
    code = command.execute(advising.advise, words)
    return code, *capsys.readouterr()


def test_the_command(capsys, tmp_path):
    path = tmp_path / "deep" / "advice.csv"
    few = ["--num_clients=4", "--participation=0.5", "--local_steps=3"]
    some = ["--topologies=ring,hypercube", "--clusters=1", "--periods=1,3", "--show=2"]
    size = ["--parameters=250000", "--server_speed=8", "--client_speed=80"]
    code, page, errors = run(capsys, *few, *some, *size, f"--out={path}")
    assert (code, errors) == (0, "")
    first, second, _, head, *lines = page.splitlines()
    assert first.startswith("4 clients, 2 upload, 3 local steps, 500 rounds")
    # A million bytes are 8 Mbit.
    assert (
        second == "a message is 1 MB: 1 s to or from the server, 0.1 s between clients"
    )
    names = "topology K q ρ in steps D theory messages sent h/round h × D"
    assert " ".join(head.split()) == names
    assert [line.split()[1:4] for line in lines[:2]] == [
        ["ring", "1", "1"],
        ["hypercube", "1", "1"],
    ]
    assert "3 more: --show=5." in lines
    assert any("h from 0.00" in line and "no gossip" in line for line in lines)
    assert max(map(len, page.splitlines()[:-1])) <= 100
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [int(row["place"]) for row in rows] == [1, 2, 3, 4, 5]
    # (4 · 1 s + 7 · 0.1 s) · 3/2
    assert float(rows[0]["hours_times_drift"]) == pytest.approx(4.7 / 3600 * 1.5)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("--num_clients=1", "num_clients = 1, but it must be >= 2"),
        ("--num_clients=2000", "num_clients = 2000, but it must be"),
        ("--active=60", "active = 60, but it must be"),
        ("--link_failure=1.5", "link_failure = 1.5, but it must be"),
        ("--server_seconds=0", "server_seconds = 0.0, but it must be > 0"),
        ("--client_speed=-1", "client_speed = -1.0, but it must be > 0"),
        ("--topologies=rign", "did you mean 'ring'?"),
        ("--clusters=3", "it must divide num_clients = 50"),
        ("--clusters=2", "it must divide active = 5"),
        ("--periods=25", "periods = 25, but it must be"),
        ("--show=0", "show = 0, but it must be >= 1"),
        ("--show=few", "show = 'few', but it must be a whole number"),
        ("--algo=afga", "--algo is not a flag"),
    ],
)
def test_mistakes_are_one_line(given, told, capsys):
    code, page, errors = run(capsys, given)
    assert (code, page) == (2, "")
    assert told in errors
    assert errors.count("\n") == 1


def test_either_active_or_a_share(capsys):
    code, _, errors = run(capsys, "--active=5", "--participation=0.1")
    assert code == 2
    assert "give one of them" in errors
