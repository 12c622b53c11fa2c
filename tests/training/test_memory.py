"""Memory that is known before a run, and refusals that name what would fit."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

import afga_jax
import toy
from afga_jax.training import engine_choice, memory
from afga_jax.training.memory import Footprint
from afga_jax.training.seeds import keys_of, seeded_init

MEGA = 10**6
DENSE = Footprint("dense", clients=100, rows=100, active=5, uploads=5, model=MEGA)
SPAN = Footprint("span", clients=100, rows=20, active=5, uploads=4, model=MEGA)
PROGRAMS = SPAN.total - SPAN.models


def test_parts_add_up():
    assert DENSE.models == (2 * 100 + 5) * MEGA
    assert SPAN.models == (20 + 1.25 * 4) * MEGA
    run = dataclasses.replace(
        SPAN, server=3, each=2, data=7, gradient=11, together=2, devices=2
    )
    assert run.state == (3 + 100 * 2) * 2
    assert run.gradients == 11 * 2 * 2
    parts = 2 * 7 + run.state + run.models + run.gradients
    assert run.total == parts + PROGRAMS
    assert dataclasses.replace(run, seeds=4).state == (3 + 100 * 2) * 9 * 2


def test_what_fits_passes():
    memory.check_fits(DENSE, limit=DENSE.total)
    with pytest.raises(ValueError, match="needs about 505 MB"):
        memory.check_fits(DENSE, limit=DENSE.total - 1)


def refusal(run, other, limit):
    with pytest.raises(ValueError, match="needs about") as error:
        memory.check_fits(run, other, limit=limit)
    return str(error.value).split(": ")[-1]


def test_only_what_would_fit_is_said():
    fits_fifty = PROGRAMS + 105 * MEGA
    assert refusal(DENSE, None, fits_fifty) == "take 50 clients."
    either = "take Execution(engine='span'), or 10 clients."
    assert refusal(DENSE, SPAN, SPAN.total) == either
    assert "engine" not in refusal(DENSE, SPAN, SPAN.total - 1)
    two = dataclasses.replace(SPAN, devices=2)
    assert refusal(two, None, SPAN.total) == "take 1 CPU device."
    assert refusal(two, None, PROGRAMS) == "take a smaller model or batch."
    seeds = dataclasses.replace(SPAN, server=10 * MEGA, seeds=8)
    room = dataclasses.replace(seeds, seeds=3).total
    assert refusal(seeds, None, room) == "take 3 seeds."
    chunk = dataclasses.replace(DENSE, gradient=MEGA, together=5, clients=1000)
    room = dataclasses.replace(chunk, together=2).total
    assert refusal(chunk, None, room) == "take Execution(chunk=2)."


def test_a_caller_names_its_own_settings():
    remedies = dict.fromkeys(memory.REMEDIES, "--setting={}")
    with pytest.raises(ValueError, match="take --setting=50"):
        memory.check_fits(DENSE, limit=PROGRAMS + 105 * MEGA, remedies=remedies)


def test_the_data_that_is_there_already_is_not_asked_for_again():
    held = dataclasses.replace(SPAN, data=500 * MEGA)
    memory.check_fits(held, limit=SPAN.total)
    with pytest.raises(ValueError, match="data 1 GB"):
        memory.check_fits(dataclasses.replace(held, devices=2), limit=SPAN.total)


def test_free_memory_of_the_machine_and_of_a_container(tmp_path):
    info = tmp_path / "meminfo"
    info.write_text("MemTotal: 9 kB\nMemAvailable:    5 kB\n")
    assert memory._free_memory(info) == 5 * 1024
    own = tmp_path / "cgroup"
    own.write_text("4:memory:/some/group\n3:cpu:/\n")
    group = tmp_path / "memory/some/group"
    group.mkdir(parents=True)
    assert memory._free_in_group(own, tmp_path) is None
    (group / "memory.limit_in_bytes").write_text("1000\n")
    (group / "memory.usage_in_bytes").write_text("300\n")
    assert memory._free_in_group(own, tmp_path) == 700
    own.write_text("0::/\n")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("5\n")
    assert memory._free_in_group(own, tmp_path) is None
    assert memory.available() > 0


@pytest.mark.parametrize(
    ("name", "options"),
    [("scaffold", {}), ("feddyn", {}), ("dsgd", {}), ("fedavg", {"active": 8})],
)
def test_the_state_is_counted_as_it_is(name, options):
    given = {"num_clients": 8, "active": 4, "local_steps": 2, **options}
    algorithm = afga_jax.build(name, toy.logistic(), **given)
    keys = keys_of(0, 3)
    choice, _ = engine_choice.choose(algorithm, keys)
    state = jax.eval_shape(seeded_init(algorithm.init), keys)
    run = dataclasses.replace(choice.run, seeds=1, devices=1)
    assert 3 * run.state == memory.bytes_of(state)
    assert choice.run.seeds == 3
    assert run.model == memory.bytes_of((state.params, state.stats)) / 3


def test_keys_have_no_bytes():
    assert memory.bytes_of({"key": jax.random.key(0), "x": jnp.zeros(3)}) == 12
