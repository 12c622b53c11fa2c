"""Several devices: the numbers of one, and no more sent than the topology takes."""

import pytest

import devices
import spread

pytestmark = pytest.mark.slow


def test_same_numbers_on_four_and_eight_devices():
    """By both engines, with samples in blocks."""
    results = devices.printed("spread", 8, "double")
    assert results.keys() == {*spread.CASES, *map(spanned, spread.SPANNED)}
    for name, (found,) in results.items():
        assert found < 1e-12, name


def spanned(name):
    return f"{name}, span"


def test_what_else_is_the_same_and_what_is_sent():
    results = devices.printed("spread", 8, "others")
    check_single_precision(results["single"])
    # Data that cannot be split are copied; seeds and clients share a mesh.
    assert max(results["copied"]) < 1e-12
    assert results["seeds"] < 1e-12
    check_a_ring_sends_two_models_over_each_edge_of_a_block(results["sent"])
    check_clusters_on_one_device_send_nothing_in_the_local_steps(results["sent"])
    check_a_star_sums_in_the_local_steps(results["sent"])


def check_single_precision(results):
    both = set(spread.SINGLE) & set(spread.SPANNED)
    assert results.keys() == {*spread.SINGLE, *map(spanned, both)}
    for name, (found,) in results.items():
        assert found < 1e-5, name


def check_a_ring_sends_two_models_over_each_edge_of_a_block(sent):
    found = sent["afga"]
    looped = [(name, size) for name, size, inside in found["ops"] if inside]
    assert {name for name, _ in looped} == {"collective-permute"}
    assert sum(size for _, size in looped) == 2 * found["model"]
    assert "all-gather" not in {name for name, _, _ in found["ops"]}


def check_clusters_on_one_device_send_nothing_in_the_local_steps(sent):
    ops = sent["cafga"]["ops"]
    assert not [name for name, _, inside in ops if inside]
    # The test can fail: the uploads are summed after them.
    assert {name for name, _, _ in ops} == {"all-reduce"}


def check_a_star_sums_in_the_local_steps(sent):
    ops = sent["star, mix first"]["ops"]
    assert {name for name, _, inside in ops if inside} == {"all-reduce"}
