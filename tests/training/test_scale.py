"""Several devices: the numbers of one, and no more sent than the topology takes."""

import pytest

import devices
import spread

# What they look at is computed once, so by one process.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("scale")]


@pytest.fixture(scope="module")
def results():
    return devices.printed("spread", 8)


def test_same_numbers_on_two_four_and_eight_devices(results):
    """By both engines, with samples in blocks."""
    expected = {*spread.CASES, *(f"{name}, span" for name in spread.SPANNED)}
    assert results["double"].keys() == expected
    for name, found in results["double"].items():
        numbers = 3 if name.removesuffix(", span") in spread.NAMED else 1
        assert len(found) == numbers
        assert max(found) < 1e-12, name


def test_same_numbers_in_single_precision(results):
    spanned = {f"{name}, span" for name in spread.SPANNED if name in spread.NAMED}
    assert results["single"].keys() == {*spread.NAMED, *spanned}
    for name, found in results["single"].items():
        assert len(found) == 3
        assert max(found) < 1e-5, name


def test_data_that_cannot_be_split_are_copied(results):
    assert max(results["copied"]) < 1e-12


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
