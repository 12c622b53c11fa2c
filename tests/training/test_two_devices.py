"""Two devices: the numbers of one."""

import pytest

import devices


def test_both_engines_on_two_devices():
    """One case, quick enough for `make check`; `test_scale` has all, and faults."""
    found = devices.printed("spread", 2, "on_two")
    assert found.keys() == {"afga", "afga, span"}
    assert max(*found["afga"], *found["afga, span"]) < 1e-12


@pytest.mark.slow
def test_two_devices_share_the_slots():
    """Without a mesh, too, for one seed and for several."""
    found = devices.printed("spread", 2, "shared_slots")
    assert found.pop("rounds") == [3, 3]
    assert found.keys() == {"afga", "moments", "scaffold", "fedcluster"}
    assert max(found.values()) < 1e-10


@pytest.mark.slow
def test_defences_and_compressors_on_two_devices():
    """Uploads lie where their clients do, in another order than on one device.

    Neighbours' messages, public copies and draws are those of one device.
    """
    found = devices.printed("spread", 2, "defences_on_two")
    assert len(found) == 10
    assert max(number for case in found.values() for number in case) < 1e-12
