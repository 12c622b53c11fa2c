"""Several devices: the numbers of one, and no more sent than the topology takes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import spread

TESTS = Path(__file__).parent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results():
    """In a process of its own: the number of devices is fixed when JAX starts."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-c", "import spread; spread.main()"],
        cwd=TESTS,
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_same_numbers_on_two_four_and_eight_devices(results):
    assert results["double"].keys() == spread.CASES.keys()
    for name, found in results["double"].items():
        assert len(found) == 3
        assert max(found) < 1e-12, name


def test_same_numbers_in_single_precision(results):
    for name, found in results["single"].items():
        assert max(found) < 1e-5, name


def test_the_span_engine_shares_its_slots(results):
    assert set(results["span"]) == set(spread.SPANNED)
    for name, found in results["span"].items():
        assert max(found) < 1e-12, name


def test_seeds_and_clients_share_a_mesh(results):
    assert results["seeds"] < 1e-12


def test_a_ring_sends_two_models_over_each_edge_of_a_block(results):
    found = results["sent"]["afga"]
    looped = [(name, size) for name, size, inside in found["ops"] if inside]
    assert {name for name, _ in looped} == {"collective-permute"}
    assert sum(size for _, size in looped) == 2 * found["model"]
    assert "all-gather" not in {name for name, _, _ in found["ops"]}


def test_clusters_on_one_device_send_nothing_in_the_local_steps(results):
    ops = results["sent"]["cafga"]["ops"]
    assert not [name for name, _, inside in ops if inside]
    # The test can fail: the uploads are summed after them.
    assert {name for name, _, _ in ops} == {"all-reduce"}


def test_a_star_sums_in_the_local_steps(results):
    ops = results["sent"]["star, mix first"]["ops"]
    assert {name for name, _, inside in ops if inside} == {"all-reduce"}
