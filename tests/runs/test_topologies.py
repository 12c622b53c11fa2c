"""The page of graphs: all names, and ρ as it is known in closed form."""

import numpy as np
import pytest

from afga_jax.gossip.kernels import KERNELS
from afga_jax.gossip.sequences import SEQUENCES
from afga_jax.runs.papers import topologies


@pytest.fixture(scope="module")
def eight():
    return {graph.name: graph for graph in topologies.graphs(8)}


def test_every_name_is_there(eight):
    assert {*KERNELS, *SEQUENCES, "label_aware"} < set(eight)
    for graph in eight.values():
        for matrix in graph.matrices:
            np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-12)


def test_what_is_known_in_closed_form(eight):
    ring = 1 / 3 + 2 / 3 * np.cos(2 * np.pi / 8)
    assert eight["ring"].contraction == pytest.approx((ring, 1))
    assert eight["ring"].traffic == (16, 2)
    assert eight["complete"].traffic == (56, 7)
    # One peer at each of log₂ 8 steps: everybody's mean.
    peers = eight["one_peer_exponential"]
    assert peers.contraction == pytest.approx((0, 3), abs=1e-9)
    assert (len(peers.matrices), peers.traffic) == (3, (8, 1))
    assert eight["matchings"].drawn


def test_the_picture(tmp_path, monkeypatch, eight):
    few = [eight[name] for name in ("ring", "label_aware", "one_peer_exponential")]
    monkeypatch.setattr(topologies, "graphs", lambda names: few)
    (table,) = topologies.STUDY.write("small", tmp_path, tmp_path)
    assert "| `one_peer_exponential` | 0.000 |" in table
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 4
