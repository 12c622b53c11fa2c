"""An algorithm's own options: declared with it, checked, traced, recorded, refused."""

import json

import chex
import jax
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax.runs import flags, grid
from afga_jax.runs.config import Config, fields
from afga_jax.runs.experiment import from_config
from afga_jax.runs.settings import resolve, unused

KEY, TASK, CLIENTS = jax.random.key(0), toy.logistic(), toy.clients(6)
SIZES = {"num_clients": 6, "active": 3, "local_steps": 2}
SHARE = afga_jax.option(
    0.5, above=0, at_most=1, fix="1 is FedAvg", help="Share of the step that is taken."
)


@pytest.fixture
def cautious(registry):
    @afga_jax.algorithm(local_lr=0.3, share=SHARE, depth_of=2, mode="plain")
    def cautious(options):
        """FedAvg that takes a share of the step."""
        rate = options.server_lr * options.share
        server = afga_jax.average(rate)
        return afga_jax.compose(options, compute="fixed", server=server)

    return cautious


def params(algorithm, rounds=2, **numbers):
    state = algorithm.init(KEY, **numbers)
    for _ in range(rounds):
        state, _ = algorithm.round(KEY, state, CLIENTS)
    return state.params


def test_it_is_built_like_any_other(cautious):
    assert cautious(TASK, **SIZES).options.share == 0.5
    built = afga_jax.build("cautious", TASK, **SIZES, share=1.0)
    assert built.options.share == 1.0
    assert built.name == "cautious"
    fedavg = afga_jax.build("fedavg", TASK, **SIZES, local_lr=0.3)
    chex.assert_trees_all_equal(params(built), params(fedavg))


def test_another_value_does_not_compile_again(cautious):
    algorithm = cautious(TASK, **SIZES)
    once = jax.jit(chex.assert_max_traces(algorithm.round, 1))
    for share in (0.25, 1.0):
        state, _ = once(KEY, algorithm.init(KEY, share=share), CLIENTS)
        expected = params(cautious(TASK, **SIZES, share=share), rounds=1)
        chex.assert_trees_all_close(state.params, expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"share = 2.0.*<= 1: 1 is FedAvg"):
        algorithm.init(KEY, share=2.0)


def test_it_may_be_a_schedule(cautious):
    falling = cautious(TASK, **SIZES, share=lambda round: 1.0 - 0.5 * round)
    state, _ = falling.round(KEY, falling.init(KEY), CLIENTS)
    state, _ = falling.round(KEY, state, CLIENTS)
    one, half = (cautious(TASK, **SIZES, share=share) for share in (1.0, 0.5))
    expected, _ = one.round(KEY, one.init(KEY), CLIENTS)
    numbers = half.init(KEY).numbers
    expected, _ = half.round(KEY, expected.replace(numbers=numbers), CLIENTS)
    chex.assert_trees_all_close(state.params, expected.params, rtol=1e-6)


def test_one_for_each_client(registry):
    @afga_jax.algorithm(pull=afga_jax.option(0.1, per_client=True, at_least=0))
    def pulled(options):
        correction = afga_jax.corrections.proximal(options.pull)
        server = afga_jax.average(options.server_lr)
        return afga_jax.compose(
            options, compute="fixed", server=server, correction=correction
        )

    each = np.linspace(0.0, 1.0, 6)
    assert pulled(TASK, **SIZES, pull=each).options.pull is each
    with pytest.raises(ValueError, match=r"pull\[5\] = -1.0.*>= 0"):
        pulled(TASK, **SIZES, pull=each - 2 * (each == 1))
    with pytest.raises(ValueError, match=r"pull has shape \(2,\).*num_clients = 6"):
        pulled(TASK, **SIZES, pull=np.ones(2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"share": 0.0}, r"^share = 0.0, but it must be > 0 and <= 1: 1 is FedAvg\.$"),
        ({"share": "half"}, r"^share = 'half', but it must be a number\.$"),
        ({"share": np.ones(6)}, r"^share has shape \(6,\).*one number for all"),
        ({"depth_of": 0}, r"^depth_of = 0, but it must be >= 1\.$"),
        ({"depth_of": 1.5}, r"^depth_of = 1.5, but it must be a whole number\.$"),
        ({"mode": 3}, r"^mode = 3, but it must be a word\.$"),
        ({"shares": 0.1}, r"^option 'shares' is not known; did you mean 'share'\?$"),
        ({"mu": 0.1}, r"^mu = 0.1, but cautious has no such option, it is fedprox's"),
    ],
    ids=lambda x: str(x)[:20],
)
def test_wrong_values(cautious, given, message):
    with pytest.raises(ValueError, match=message) as refused:
        cautious(TASK, **SIZES, **given)
    assert "\n" not in str(refused.value)


def test_what_other_algorithms_have_is_refused_with_their_name():
    with pytest.raises(ValueError, match=r"active_prob.*hafed_active's: leave it out"):
        afga_jax.build("afga", TASK, **SIZES, active_prob=0.1)
    with pytest.raises(ValueError, match=r"'no' .*true or false|shuffle = 'no'"):
        afga_jax.build("fedcluster", TASK, **SIZES, num_clusters=3, shuffle="no")


def test_a_cycle_has_the_options_of_what_is_inside():
    options = {**SIZES, "num_clusters": 3}
    built = afga_jax.build("fedcluster", TASK, **options, inner="fedprox", mu=0.2)
    assert built.options.mu == 0.2
    assert "mu" in built.init(KEY).numbers
    with pytest.raises(ValueError, match=r"mu = 0.2, but fedcluster has no such"):
        afga_jax.build("fedcluster", TASK, **options, mu=0.2)


def declare(name="mine", **values):
    def recipe(options):
        return afga_jax.ALGORITHMS["fedavg"].recipe(options)

    recipe.__name__ = name
    return afga_jax.algorithm(**values)(recipe)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lokal_lr": 0.1}, r"mine sets 'lokal_lr'; did you mean 'local_lr'\?"),
        ({"task": 1}, r"mine cannot have an option 'task': rename it"),
        ({"replace": 1}, r"mine cannot have an option 'replace'"),
        ({"mu": afga_jax.option(1)}, r"declares 'mu' otherwise than fedprox does"),
    ],
    ids=["near", "taken", "method", "another's"],
)
def test_wrong_declarations(registry, values, message):
    with pytest.raises(ValueError, match=message):
        declare(**values)
    assert "mine" not in registry


def test_a_default_that_could_change():
    with pytest.raises(ValueError, match=r"default = \[1\].*tuple"):
        afga_jax.option([1])


def test_a_default_of_anothers_option_keeps_its_bounds(registry):
    mine = declare(mu=0.5)
    assert mine(TASK, **SIZES).options.mu == 0.5
    with pytest.raises(ValueError, match=r"mu = -1.0.*FedAvg"):
        mine(TASK, **SIZES, mu=-1.0)
    declare(mu=0.7)  # again, as in a notebook
    assert registry["mine"].own["mu"].default == 0.7


def test_it_is_a_flag_with_help(cautious):
    values = flags.define()
    line = ["main", "--algo=cautious", "--share=0.25", "--mode=other", "--depth_of=3"]
    flags.parse(line, values)
    given = flags.given(values)
    assert given["share"] == 0.25
    page = " ".join(flags.help_page("", 80).split())
    about = "Share of the step that is taken. (> 0 and <= 1) Default: 0.5."
    assert f"--share=NUMBER cautious: {about}" in page
    resolved = resolve(given, dataset="quadratic")
    algorithm = from_config(resolved.config).algorithm
    options = algorithm.options
    assert (options.share, options.mode, options.depth_of) == (0.25, "other", 3)


def test_it_is_part_of_the_record(cautious):
    resolved = resolve({"algo": "cautious", "depth_of": 4}, dataset="quadratic")
    config = resolved.config
    assert (config.share, config.depth_of, config.mode) == (0.5, 4, "plain")
    assert resolved.sources["share"] == "the algorithm's own default"
    stored = json.loads(json.dumps(config.to_dict()))
    assert (stored["share"], stored["depth_of"]) == (0.5, 4)
    assert Config.from_dict(stored) == config
    with pytest.raises(ValueError, match=r"^share = 0.0, but it must be > 0"):
        Config(algo="cautious", share=0.0)


def test_cells_that_differ_in_it_share_a_program(cautious, tmp_path):
    line = ["sweep", "--algo=cautious", "--share=0.25,0.5", "--depth_of=1,2"]
    asked = grid.read([*line, "--dataset=quadratic"], usage="")
    cells = grid.cells(asked, tmp_path, dataset="quadratic")
    assert [cell.config.depth_of for cell in cells] == [1, 1, 2, 2]
    assert [cell.config.share for cell in cells] == [0.25, 0.5, 0.25, 0.5]


def test_other_runs_do_not_know_of_it(cautious):
    plain = resolve({"algo": "afga"}).config
    name = grid.fingerprint(plain)
    assert "share" not in plain.to_dict()
    declare(other=0.1)
    assert grid.fingerprint(plain) == name
    assert plain.other is None
    assert "other" in [field.name for field in fields("algorithm")]


def test_what_has_no_effect_is_said_and_left_out(cautious):
    resolved = resolve({"algo": "afga", "share": 0.1})
    assert resolved.config.share is None
    note = "share has no effect with algo = 'afga'; it needs cautious."
    assert note in resolved.notes
    assert unused(Config(algo="cautious", share=0.1), ["share"]) == []


def test_a_name_that_runs_have_taken(registry):
    declare(alpha=afga_jax.option(0.1))
    assert afga_jax.build("mine", TASK, **SIZES, alpha=0.2).options.alpha == 0.2
    with pytest.raises(ValueError, match=r"'mine' has an option 'alpha'.*rename"):
        Config(algo="mine")
    assert Config(algo="afga", alpha=0.3).alpha == 0.3


def test_older_runs_are_read():
    """They held what belongs to one algorithm whatever the algorithm was."""
    stored = {"algo": "afga", "mu": 0.01, "inner": "fedavg", "pga_period": None}
    assert Config.from_dict(stored) == Config(algo="afga")
    inside = {"algo": "fedcluster", "inner": "fedprox", "mu": 0.1, "b3": 0.0}
    config = Config.from_dict(inside)
    assert (config.inner, config.mu, config.b3) == ("fedprox", 0.1, None)


def test_a_run_of_an_algorithm_that_is_not_there():
    with pytest.raises(ValueError, match=r"algo = 'cautious' is not known"):
        Config.from_dict({"algo": "cautious", "share": 0.1})


@pytest.mark.slow
def test_runs_of_ones_own_keep_it(cautious, registry, tmp_path):
    def make(share):
        return cautious(TASK, **SIZES, share=share)

    test = CLIENTS.full(0)
    shares = [0.25, 1.0]
    swept = afga_jax.sweep(
        make,
        {"share": shares},
        CLIENTS,
        test,
        out=tmp_path,
        rounds=2,
        eval_every=1,
        progress=False,
    )
    for share, run in zip(shares, swept.runs, strict=True):
        alone = afga_jax.fit(
            make(share), CLIENTS, key=KEY, rounds=2, test=test, progress=False
        )
        assert run.config["parts"]["share"] == share
        last = run.metrics[-1]["test_loss"]
        np.testing.assert_allclose(last, alone.history.test_loss[-1], rtol=1e-5)
    # Who reads the folder needs no such algorithm.
    del registry["cautious"]
    trained = afga_jax.load(swept.runs[0].folder, task=TASK)
    assert trained.config.share == 0.25
