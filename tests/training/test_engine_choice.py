"""Which engine is chosen, by which rule, and that a run keeps its own."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

import afga_jax
import run_files
import toy
from afga_jax.mesh import make_mesh
from afga_jax.rounds.execution import Execution
from afga_jax.runs import devices, record, runner
from afga_jax.runs.command import Interrupted
from afga_jax.training import engine_choice, flops, memory
from afga_jax.training.seeds import keys_of
from afga_jax.typing import Batch, Task

KEY = jax.random.key(3)
UNEQUAL = [0] * 4 + [1] * 9 + [2] * 7


def built(algo="afga", **options):
    given = {"num_clients": 20, "active": 4, "local_steps": 4, **options}
    return afga_jax.build(algo, toy.logistic(), **given)


def chosen(algo="afga", execution=Execution(), **options):
    return engine_choice.choose(built(algo, **options), KEY, execution)[0]


# The rule.


@pytest.mark.parametrize(
    ("algo", "options"),
    [
        ("afga", {}),
        ("afga", {"topology": "complete"}),
        ("afga", {"local_optimizer": "adam", "mix_every": 2}),
        ("cafga", {"num_clusters": 2}),
        ("afga_adapted", {}),
        ("hafed_active", {"num_clusters": 2}),
        # Everybody but one, and everybody but at one client's last step.
        ("afga", {"active": 19}),
        ("hafed", {"num_clusters": 2, "client_steps": [4] * 19 + [3]}),
    ],
)
def test_some_compute_and_mix(algo, options):
    choice = chosen(algo, **options)
    assert choice.engine == "span"
    assert str(choice) == "span engine: not everybody computes at every step"
    assert choice.other.engine == "dense"


@pytest.mark.parametrize(
    ("algo", "options"),
    [
        ("hafed", {"num_clusters": 2}),
        ("hafed", {"active": None, "participation": 0.3, "clustering": UNEQUAL}),
        ("afga", {"active": 20}),
        ("hafed_active", {"num_clusters": 2, "active_prob": 1.0}),
        ("fedcluster", {"inner": "afga", "active": 20, "num_clusters": 2}),
    ],
)
def test_everybody_computes(algo, options):
    choice = chosen(algo, **options)
    assert str(choice) == "dense engine: everybody computes at every step"


@pytest.mark.parametrize("algo", ["dsgd", "pga", "damsgrad"])
def test_there_is_no_server(algo):
    choice = chosen(algo)
    assert choice.engine == "dense"
    assert "no common start" in choice.reason


def test_nobody_mixes(monkeypatch):
    for algo in ("fedavg", "scaffold", "fedcluster"):
        assert "nobody mixes" in chosen(algo, num_clusters=1).reason
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    choice = chosen("fedavg")
    assert str(choice) == "span engine on 2 devices: devices share the gradients"
    mesh = Execution(mesh=make_mesh({"clients": 1}))
    assert chosen("fedavg", mesh).engine == "dense"


def test_everybody_by_everybody_is_not_scheduled():
    for clients, expected in ((2048, "span"), (2049, "dense")):
        choice = chosen(num_clients=clients, topology="complete")
        assert choice.engine == expected
    assert "everybody by everybody" in choice.reason
    assert chosen(num_clients=10_000).engine == "span"


def test_neither_memory_nor_seeds_nor_processes_change_the_choice(monkeypatch):
    expected = chosen()
    monkeypatch.setattr(memory, "available", lambda: 1.0)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert chosen() == expected
    several, _ = engine_choice.choose(built(), keys_of(3, 1))
    assert several == expected


def test_width_of_a_slot(monkeypatch):
    assert chosen().width == 1
    assert chosen(execution=Execution(slot_width=3)).width == 3
    monkeypatch.setattr(jax, "local_device_count", lambda: 4)
    assert (chosen().width, chosen().devices) == (4, 4)


def test_devices_meet_only_for_gradients_that_are_worth_it(monkeypatch):
    monkeypatch.setattr(jax, "local_device_count", lambda: 4)
    data = toy.clients(100)
    small, _ = engine_choice.choose(built(), KEY, data=data)
    assert (small.engine, small.devices) == ("span", 1)
    # Where nobody mixes, devices are all that speaks for the span engine.
    assert engine_choice.choose(built("fedavg"), KEY, data=data)[0].engine == "dense"
    large = flops.Work(operations=2.0**26, bytes=0.0)
    monkeypatch.setattr(flops, "count", lambda *_, **__: large)
    assert engine_choice.choose(built(), KEY, data=data)[0].devices == 4
    assert engine_choice.choose(built("fedavg"), KEY, data=data)[0].engine == "span"
    narrow = chosen(execution=Execution(slot_width=6))
    assert (narrow.width, narrow.devices) == (6, 2)
    monkeypatch.setattr(engine_choice, "on_cpu", lambda: False)
    assert (chosen().width, chosen().devices) == (8, 1)


# What follows from a choice.


@pytest.mark.parametrize("algo", ["afga", "hafed"])
def test_a_choice_is_made_again_from_its_record(algo):
    options = {} if algo == "afga" else {"num_clusters": 2}
    choice = chosen(algo, **options)
    asked = Execution(choice.engine, slot_width=choice.record.get("wave_width"))
    again = chosen(algo, asked, **options)
    assert again == dataclasses.replace(choice, reason="as asked")


def test_the_other_engine_of_one_that_was_asked_for():
    other = engine_choice.alternative(built(), KEY)
    assert other == chosen(execution=Execution("span")).run
    assert engine_choice.alternative(built("dsgd"), KEY) is None
    assert engine_choice.alternative(built("hafed", num_clusters=2), KEY) is None


@pytest.mark.parametrize("asked", ["dense", "span"])
def test_a_resumed_run_keeps_its_engine(asked, tmp_path, monkeypatch):
    monkeypatch.setattr("afga_jax.runs.report.curves", lambda run, path: None)
    experiment = run_files.programs("afga").experiment
    monkeypatch.setattr(runner, "from_config", lambda config: experiment)
    config, out = experiment.config, tmp_path / "run"
    against = "another rule" if asked == "dense" else None
    monkeypatch.setattr(engine_choice, "reason_for_dense", lambda *_: against)
    with pytest.raises(Interrupted):
        runner.run(config, out, display=run_files.Interrupting(3))
    expected = {"engine": "dense"}
    if asked == "span":
        expected = {"engine": "span", "wave_width": 1}
    assert record.read(out).facts["engine"] == expected
    # The rule of a later version may be another.
    monkeypatch.setattr(
        engine_choice, "reason_for_dense", lambda *_: None if against else "another"
    )
    runner.run(config, out, resume=True)
    assert record.read(out).facts["engine"] == expected
    begun = devices.execution_of(config, record.read(out))
    assert (begun.engine, begun.slot_width) == (asked, expected.get("wave_width"))


def test_a_run_that_fits_with_the_other_engine_says_so(tmp_path, monkeypatch):
    programs = run_files.programs("afga", engine="dense")
    monkeypatch.setattr(programs.trainer, "start", None)
    found = programs.trainer.choose(keys_of(0, 1))
    dense = found.holding(programs.experiment.clients).run
    # Models so large that a thousand of them are far from fitting.
    large = dataclasses.replace(dense, model=10**8, rows=1000)
    small = dataclasses.replace(large, engine="span", rows=1)
    choice = dataclasses.replace(found, run=large, other=small)
    monkeypatch.setattr(programs.trainer, "choice", choice)
    monkeypatch.setattr(memory, "available", lambda: 1.5 * small.total)
    with pytest.raises(ValueError, match="take engine=span"):
        runner.run(programs.experiment.config, tmp_path / "run", programs=programs)


def test_a_run_that_cannot_fit_is_refused_before_it_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1e6)
    programs = run_files.programs("afga")
    monkeypatch.setattr(programs.trainer, "start", None)
    with pytest.raises(ValueError, match=r"needs about .* but there are 1 MB"):
        runner.run(programs.experiment.config, tmp_path / "run", programs=programs)
    assert not (tmp_path / "run").exists()


# The work of a gradient.


def test_operations_of_products_convolutions_and_loops():
    def loss(params, stats, batch, key, train):
        image = jax.lax.conv(batch.inputs, params["kernel"], (1, 1), "VALID")
        flat = image.reshape(len(image), -1) @ params["dense"]
        step = lambda x, _: (x @ params["square"], None)  # noqa: E731
        return jax.lax.scan(step, flat, None, length=5)[0].sum(), (stats, {})

    def init(key):
        shapes = {"kernel": (6, 2, 3, 3), "dense": (6 * 4 * 4, 7), "square": (7, 7)}
        return {name: jnp.zeros(shape) for name, shape in shapes.items()}, ()

    class Data:
        def batch(self, key, client):
            return Batch(jnp.zeros((10, 2, 6, 6)), jnp.zeros(10))

    jax.tree_util.register_static(Data)
    convolution = 2 * (10 * 6 * 4 * 4) * (2 * 3 * 3)
    products = 2 * 10 * 7 * (6 * 4 * 4) + 5 * 2 * 10 * 7 * 7
    found = flops.count(Task(init, loss), Data())
    # Three times, with the way back; the view and the sum are all that is left.
    assert found.operations / 3 - convolution - products == 10 * 6 * 16 + 1
    assert found.bytes >= 4 * 10 * (2 * 36 + 6 * 16 + 7)
