"""States on disk: whole or not at all; damage is noticed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from afga_jax.runs.checkpoint import CheckpointError, Checkpoints


def state(step):
    return {
        "x": jnp.arange(6.0).reshape(2, 3) * step,
        "nothing": (),
        "totals": np.arange(3) / 7 + step,  # float64, whatever JAX's default is
        "round": (jnp.int32(step),),
    }


LIKE = jax.tree.map(np.zeros_like, state(0))


@pytest.fixture
def folder(tmp_path):
    checkpoints = Checkpoints(tmp_path / "states")
    for step in (10, 20, 30):
        checkpoints.save(step, state(step))
    return tmp_path / "states"


def files(folder, step):
    return sorted(x for x in (folder / f"round_{step}").rglob("*") if x.is_file())


def largest(folder, step):
    parts = [path for path in files(folder, step) if path.name != "checksums.json"]
    return max(parts, key=lambda x: x.stat().st_size)


def check_restored(folder, step):
    found, tree = Checkpoints(folder).restore(LIKE)
    assert found == step
    assert tree["totals"].dtype == np.float64
    jax.tree.map(np.testing.assert_array_equal, tree, state(step))


def test_the_newest_of_two_comes_back_bit_for_bit(folder):
    assert Checkpoints(folder).steps() == [20, 30]
    check_restored(folder, 30)


def test_nothing_saved(tmp_path):
    checkpoints = Checkpoints(tmp_path / "none")
    assert checkpoints.restore(LIKE) is None
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("damage", ["cut", "lost", "altered"])
def test_a_damaged_state_falls_back_with_a_warning(folder, damage, caplog):
    path = largest(folder, 30)
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "lost":
        path.unlink()
    else:
        middle = len(content) // 2
        flipped = bytes([content[middle] ^ 1])
        path.write_bytes(content[:middle] + flipped + content[middle + 1 :])
    check_restored(folder, 20)
    assert "round 30" in caplog.text
    assert "going on from round 20" in caplog.text
    # The run that goes on comes to the damaged one's round again.
    checkpoints = Checkpoints(folder)
    checkpoints.restore(LIKE)
    checkpoints.save(30, state(30))
    check_restored(folder, 30)


def test_a_state_without_its_list_is_read(folder):
    """Killed between Orbax's last act and the list of checksums."""
    (folder / "round_30" / "checksums.json").unlink()
    check_restored(folder, 30)


def test_half_a_state_is_swept_away(folder):
    """Killed while saving: Orbax's folder has not got its name yet."""
    half = folder / "round_40.orbax-checkpoint-tmp"
    half.mkdir()
    (half / "content").write_text("half")
    check_restored(folder, 30)
    assert not half.exists()


def test_all_damaged_is_an_error_and_nothing_is_removed(folder):
    for step in (20, 30):
        largest(folder, step).unlink()
    with pytest.raises(CheckpointError, match=r"round 30: .* lost; round 20: .* lost"):
        Checkpoints(folder).restore(LIKE)
    assert Checkpoints(folder).steps() == [20, 30]


def test_a_state_of_another_shape_is_refused(folder):
    other = {**LIKE, "x": np.zeros((4, 3), np.float32)}
    with pytest.raises(CheckpointError, match=r"shape \(2, 3\) instead of"):
        Checkpoints(folder).restore(other)


def test_keeping_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"keep = 0.*>= 1"):
        Checkpoints(tmp_path, keep=0)
