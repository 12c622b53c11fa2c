"""One configuration: plain values, checked by what its fields say of themselves."""

import dataclasses
import json

import pytest

from afga_jax import Options
from afga_jax.runs.config import GROUPS, Config, differences, fields

# Values that no field of that kind takes, whatever its bounds.
WRONG_KIND = {
    str: [3, ""],
    int: ["many", 1.5, True],
    float: ["fast", float("nan"), float("inf"), True],
    bool: ["maybe", 1],
    tuple: [64, (), (8, 1.5)],
}


def outside(field):
    """Values just past each bound, and a name that is not known."""
    bounds, step = field.bounds, 1 if field.kind is int else 1e-6
    wrap = (lambda x: (x,)) if field.kind is tuple else (lambda x: x)
    step = 1 if field.kind is tuple else step
    if "above" in bounds:
        yield float(bounds["above"])
    if "at_least" in bounds:
        yield wrap(bounds["at_least"] - step)
    if "below" in bounds:
        yield float(bounds["below"])
    if "at_most" in bounds:
        yield wrap(bounds["at_most"] + step)
    if field.choices:
        yield "nonsense"


def test_every_bad_value_is_refused_in_one_line():
    for field in fields():
        for value in [*WRONG_KIND[field.kind], *outside(field)]:
            check_refused(field.name, value)


def check_refused(name, value):
    with pytest.raises(ValueError, match=rf"^{name} = ") as refused:
        Config(**{name: value})
    message = str(refused.value)
    assert "\n" not in message
    shown = value[-1] if isinstance(value, tuple) and len(value) else value
    assert repr(shown) in message or str(shown) in message
    assert message.endswith(".")


def test_every_field_says_what_it_is():
    for field in fields():
        assert field.group in GROUPS, field
        assert field.help.endswith("."), field
        assert field.kind in WRONG_KIND, field
        if field.default is None:
            assert getattr(Config(**{field.name: None}), field.name) is None
        else:
            with pytest.raises(ValueError, match=rf"^{field.name} = None"):
                Config(**{field.name: None})


def test_every_option_of_the_algorithms_is_a_field():
    # What only code can give is not for a flag.
    missing = {one.name for one in dataclasses.fields(Options)} - {
        one.name for one in fields() if one.option
    }
    # Faults have fields of their own.
    assert missing <= {"aggregator", "server_optimizer", "client_steps", "faults"}


def test_bounds_of_options_are_not_repeated():
    bounds = {one.name: one.bounds for one in fields()}
    for one in dataclasses.fields(Options):
        for key in ("above", "at_least", "below", "at_most"):
            if key in one.metadata:
                assert bounds[one.name][key] == one.metadata[key]


def test_groups_hold_every_field_once():
    listed = [one.name for group in GROUPS for one in fields(group)]
    assert sorted(listed) == sorted({one.name for one in fields()})
    # Parts are of runs of one's own: no flag can set them.
    fixed = {one.name for one in dataclasses.fields(Config)} - {"parts"}
    assert fixed < set(listed)


def test_older_runs_are_read():
    """What is gone from the settings changed no number."""
    assert Config.from_dict({"balance": True, "engine": "span"}).engine == "span"


def test_json_and_back():
    config = Config(algo="cafga", hidden=[64, 32], eps=1e-6, resume=True, local_lr=1)
    stored = json.loads(json.dumps(config.to_dict()))
    assert Config.from_dict(stored) == config
    assert config.hidden == (64, 32)
    assert isinstance(config.local_lr, float)


def test_a_name_that_is_not_known():
    with pytest.raises(ValueError, match=r"'lokal_lr' is not known.*'local_lr'"):
        Config.from_dict({"lokal_lr": 1.0})
    with pytest.raises(ValueError, match=r"'algoritm' is not known"):
        Config().replace(algoritm="afga")


def test_the_nearest_algorithm_is_suggested():
    with pytest.raises(ValueError, match=r"algo = 'agfa'.*did you mean 'afga'"):
        Config(algo="agfa")


def test_what_excludes_each_other():
    with pytest.raises(ValueError, match=r"active = 5 and participation = 0.1"):
        Config(active=5, participation=0.1)
    with pytest.raises(ValueError, match=r"stop_at_target needs a target"):
        Config(stop_at_target=True)


def test_files_pass_as_clusters_and_topologies():
    assert Config(clustering="labels.txt", topology="./graph").topology == "./graph"
    with pytest.raises(ValueError, match=r"clustering = 'eqal'.*'equal'"):
        Config(clustering="eqal")


def test_differences_leave_out_what_does_not_matter():
    first = Config(out="a", data_dir="b", resume=True, checkpoint_every=3)
    assert differences(first, Config()) == {}
    assert differences(first, Config(eps=1e-4)) == {"eps": (None, 1e-4)}


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().algo = "fedavg"
