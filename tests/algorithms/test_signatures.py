"""Every algorithm is a function whose signature and docstring say what it uses."""

import inspect

import pytest

import afga_jax
import stub
import toy
from afga_jax import algorithms

TASK = toy.logistic()
# Options that every algorithm reads.
ALWAYS = {"local_steps", "local_optimizer", "local_lr", "full_batch"}


@pytest.mark.parametrize("name", stub.NAMES)
def test_its_signature_and_docstring_are_its_own(name):
    made = getattr(algorithms, name)
    assert made is afga_jax.ALGORITHMS[name]
    shown = inspect.signature(made).parameters
    assert list(shown)[:3] == ["task", "num_clients", "data"]
    assert set(shown) >= ALWAYS | set(made.own)
    kinds = {parameter.kind for parameter in list(shown.values())[1:]}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
    defaults = {option: shown[option].default for option in list(shown)[3:]}
    options = made.options(num_clients=100)
    for option, default in defaults.items():
        assert getattr(options, option, default) == default
    text = inspect.getdoc(made)
    assert text.startswith(inspect.getdoc(made.recipe))
    for option in shown:
        assert f"\n  {option}: " in text


def test_only_what_it_uses_is_shown():
    def shown(name):
        return set(inspect.signature(getattr(algorithms, name)).parameters)

    server = {"server_lr", "server_optimizer", "aggregator", "active", "participation"}
    moments = {"eps", "b1", "b2"}
    assert server | moments <= shown("afga")
    assert server <= shown("fedavg")
    assert not moments & shown("fedavg")
    assert not server & shown("dsgd")
    assert {"b1", "eps"} <= shown("fedadagrad")
    assert "b2" not in shown("fedadagrad")
    assert not {"active", "num_clusters", "clustering", "topology"} & shown("sgd")
    assert {"inner", "shuffle", "mu", "eps"} <= shown("fedcluster")
    own = {"mu", "feddyn_alpha", "b3", "pga_period", "active_prob", "inner", "shuffle"}
    assert not own & shown("afga")
    assert own & shown("fedprox") == {"mu"}


def test_the_function_is_build():
    options = {"num_clients": 6, "active": 3, "mu": 0.2}
    first = algorithms.fedprox(TASK, **options)
    second = afga_jax.build("fedprox", TASK, **options)
    assert first.name == second.name == "fedprox"
    for name in inspect.signature(algorithms.fedprox).parameters:
        if name not in ("task", "data"):
            same = getattr(first.options, name), getattr(second.options, name)
            assert name == "clustering" or same[0] == same[1]
    assert first.options.mu == 0.2


def test_a_recipe_is_not_called_with_options():
    options = algorithms.fedavg.options(num_clients=4, active=2)
    with pytest.raises(ValueError, match=r"its recipe is fedavg.recipe\(options\)"):
        algorithms.fedavg(options)
    assert algorithms.fedavg.recipe(options).server is not None


def test_the_stub_is_up_to_date():
    assert stub.STUB.read_text() == stub.stub(), "run: python tests/stub.py"
    assert set(stub.NAMES) == set(afga_jax.ALGORITHMS) & set(algorithms.__all__)


def test_a_recipe_that_cannot_be_looked_at(registry):
    @afga_jax.algorithm(client_steps=(1, 2))
    def two_only(options):
        """For two clients."""
        return algorithms.fedavg.recipe(options)

    shown = inspect.signature(two_only).parameters
    assert shown["options"].kind is inspect.Parameter.VAR_KEYWORD
    assert inspect.getdoc(two_only).startswith("For two clients.\n\nArgs:\n  task:")

    @afga_jax.algorithm()
    def fails(options):
        raise RuntimeError("elsewhere")

    assert set(inspect.signature(fails).parameters) >= {"eps", "server_lr", "topology"}


def test_optimizers_have_a_place():
    assert afga_jax.optimizers.fedamsgrad is afga_jax.fedamsgrad
    assert set(afga_jax.optimizers.__all__) >= {"average", "fedadam", "dadam"}
