"""Which engine is chosen, by which predictions, and that a run keeps its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import afga_jax
import runs
import toy
from afga_jax import (
    calibrate,
    cost,
    engine,
    gradient,
    memory,
    outline,
    record,
    schedule,
)
from afga_jax.cost import Cost, Counts
from afga_jax.execution import Execution
from afga_jax.typing import Batch, Task
from experiments import engines, runner
from experiments.interrupts import Interrupted

KEY = jax.random.key(3)


@pytest.fixture
def steady(monkeypatch):
    """A machine that moves 8 GB and computes 64 billion operations in a second."""
    monkeypatch.setattr(cost, "pass_seconds", lambda count: count / 8e9)
    monkeypatch.setattr(cost, "operation_seconds", lambda: 1 / 64e9)


def built(algo="afga", **options):
    given = {"num_clients": 20, "active": 4, "local_steps": 4, **options}
    return afga_jax.build(algo, toy.logistic(), **given)


# Calibration.


def test_a_pass_takes_longer_over_more_and_is_measured_once():
    first = calibrate.pass_seconds(2.0**30)
    assert first == calibrate.pass_seconds(2.0**30)
    assert calibrate.pass_seconds(2.0**31) == 2 * first
    assert calibrate.fresh_seconds(1e3) == 0 < calibrate.fresh_seconds(1e9)
    assert calibrate.operation_seconds() == calibrate.operation_seconds()
    assert np.log2(calibrate.operation_seconds()) % 1 == 0


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
    found = gradient.count(Task(init, loss), Data())
    # Three times, with the way back; the view and the sum are all that is left.
    assert found.operations / 3 - convolution - products == 10 * 6 * 16 + 1
    assert found.bytes >= 4 * 10 * (2 * 36 + 6 * 16 + 7)
    assert found.operations > gradient.of_weights(6 * 18 + 96 * 7 + 49).operations / 5


# Costs.


def test_costs_follow_their_counts(steady):
    counts = Counts(cycles=2, steps=3, active=4, rows=5, uploads=5, model=8000)
    mixing = built().recipe.mixing
    dense = cost.dense_cost(mixing, counts)
    # 2 cycles of 3 steps: 5 rows mixed, 4 gradients with 4 passes, at 1 µs each.
    assert dense.moves == pytest.approx(2 * 3 * (5 * 1 + 4 * 4) * 1e-6, rel=1e-12)
    assert dense.gradients == 2 * 3 * 4
    sizes = [(12, schedule.Sizes(slots=7, rows=9, reads=30, memories=0))]
    alone, shared = (cost.span_cost(sizes, counts, devices) for devices in (1, 2))
    assert alone.moves == pytest.approx(2 * (30 * 4 + 12 * 4) * 1e-6, rel=1e-12)
    assert (alone.gradients, shared.gradients) == (2 * 12, 2 * 7)
    assert Cost(1.0, 3).seconds(2.0) == 7.0


def test_the_bound_without_a_schedule_is_one(steady):
    everybody = built("hafed", num_clusters=2, num_clients=16)
    _, planner = engine.choose(everybody, KEY, Execution("span"))
    sizes = planner.sizes(KEY)
    mixing = everybody.recipe.mixing
    counts = outline.Outline(everybody, KEY, Execution()).counts
    least = cost.least_span_cost(mixing, counts, 1)
    assert 0 < least.moves <= cost.span_cost(sizes, counts, 1).moves
    assert cost.least_span_cost(mixing, counts._replace(uploads=2), 1) is None


# Choices.


def test_work_is_counted_only_where_it_matters(steady, monkeypatch):
    def never():
        raise AssertionError("counted")

    # On one device both compute the same gradients, one after another.
    assert engine.choose(built(), KEY, work=never)[0].seconds
    monkeypatch.setattr(cost, "span_cost", lambda *_: Cost(1.0, 0))
    with pytest.raises(AssertionError, match="counted"):
        engine.choose(built(), KEY, work=never)
    short, long = gradient.Work(1.0, 0.0), gradient.Work(1e12, 0.0)
    assert engine.choose(built(), KEY, work=lambda: short)[0].engine == "dense"
    assert engine.choose(built(), KEY, work=lambda: long)[0].engine == "span"


def test_a_choice_is_made_again_from_its_record(steady):
    for algorithm in (built(), built("hafed", num_clusters=2)):
        choice, _ = engine.choose(algorithm, KEY)
        asked = Execution(choice.engine, slot_width=choice.record.get("wave_width"))
        again, _ = engine.choose(algorithm, KEY, asked)
        assert again.record == choice.record
        assert again.run == choice.run


def test_what_does_not_fit_is_not_taken(monkeypatch):
    monkeypatch.setattr(cost, "span_cost", lambda *_: Cost(1e9, 0))
    choice, _ = engine.choose(built(), KEY)
    assert choice.engine == "dense"
    between = (choice.run.total + choice.other.total) / 2
    assert choice.other.total < between
    monkeypatch.setattr(memory, "available", lambda: between)
    choice, _ = engine.choose(built(), KEY)
    assert str(choice) == "span engine: the dense engine would not fit"


def test_the_other_engine_of_one_that_was_asked_for():
    other = engine.alternative(built(), KEY)
    assert other == engine.choose(built(), KEY, Execution("span"))[0].run
    assert engine.alternative(built("dsgd"), KEY) is None


def test_everybody_by_everybody_is_not_scheduled():
    many = built(num_clients=10_000, topology="complete")
    assert "everybody by everybody" in engine.choose(many, KEY)[0].reason


@pytest.mark.parametrize(("first", "then"), [(0.0, 1e9), (1e9, 0.0)])
def test_a_resumed_run_keeps_its_engine(first, then, tmp_path, monkeypatch):
    monkeypatch.setattr("afga_jax.report.curves", lambda run, path: None)
    experiment = runs.programs("afga").experiment
    monkeypatch.setattr(runner, "from_config", lambda config: experiment)

    def measure(seconds):
        monkeypatch.setattr(cost, "span_cost", lambda *_: Cost(seconds, 0))

    measure(first)
    config, out = experiment.config, tmp_path / "run"
    with pytest.raises(Interrupted):
        runner.run(config, out, display=runs.Interrupting(3))
    expected = {"engine": "dense"} if first else {"engine": "span", "wave_width": 1}
    assert record.read(out).facts["engine"] == expected
    measure(then)
    runner.run(config, out, resume=True)
    assert record.read(out).facts["engine"] == expected
    begun = engines.execution_of(config, record.read(out))
    assert begun.engine == expected["engine"]
    assert begun.slot_width == expected.get("wave_width")


def test_a_run_that_cannot_fit_is_refused_before_it_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1e6)
    programs = runs.programs("afga")
    monkeypatch.setattr(programs.trainer, "start", None)
    with pytest.raises(ValueError, match=r"needs about .* but there are 1 MB"):
        runner.run(programs.experiment.config, tmp_path / "run", programs=programs)
    assert not (tmp_path / "run").exists()
