"""Several devices: the numbers of one, and no more sent than the topology takes."""

import pytest

import devices
import spread

pytestmark = pytest.mark.slow


def test_same_numbers_on_two_four_and_eight_devices():
    """By both engines, with samples in blocks."""
    results = devices.printed("spread", 8, "double")
    assert results.keys() == {*spread.CASES, *map(spanned, spread.SPANNED)}
    for name, found in results.items():
        named = name.removesuffix(", span") in spread.NAMED
        assert len(found) == (2 if named else 1)
        assert max(found) < 1e-12, name


def test_same_numbers_in_single_precision():
    results = devices.printed("spread", 8, "single")
    both = set(spread.SINGLE) & set(spread.SPANNED)
    assert results.keys() == {*spread.SINGLE, *map(spanned, both)}
    for name, (found,) in results.items():
        assert found < 1e-5, name


def spanned(name):
    return f"{name}, span"


def test_copied_data_and_several_seeds():
    """Data that cannot be split are copied; seeds and clients share a mesh."""
    results = devices.printed("spread", 8, "others")
    assert max(results["copied"]) < 1e-12
    assert results["seeds"] < 1e-12


@pytest.fixture(scope="module")
def sent():
    return devices.printed("spread", 8, "collectives_of_rounds")


def test_a_ring_sends_two_models_over_each_edge_of_a_block(sent):
    found = sent["afga"]
    looped = [(name, size) for name, size, inside in found["ops"] if inside]
    assert {name for name, _ in looped} == {"collective-permute"}
    assert sum(size for _, size in looped) == 2 * found["model"]
    assert "all-gather" not in {name for name, _, _ in found["ops"]}


def test_clusters_on_one_device_send_nothing_in_the_local_steps(sent):
    ops = sent["cafga"]["ops"]
    assert not [name for name, _, inside in ops if inside]
    # The test can fail: the uploads are summed after them.
    assert {name for name, _, _ in ops} == {"all-reduce"}


def test_a_star_sums_in_the_local_steps(sent):
    ops = sent["star, mix first"]["ops"]
    assert {name for name, _, inside in ops if inside} == {"all-reduce"}
