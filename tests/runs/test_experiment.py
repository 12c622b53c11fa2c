"""A run from its configuration alone: data, model, algorithm and the facts of both."""

import json

import jax
import numpy as np
import pytest

from afga_jax import ALGORITHMS, data
from afga_jax.gossip import designed, kernels, mixing, topology
from afga_jax.runs import devices
from afga_jax.runs.config import Config
from afga_jax.runs.experiment import from_config, model_of
from afga_jax.runs.loop import Training
from afga_jax.runs.programs import Programs
from afga_jax.runs.settings import resolve

SMOKE = {"algo": "afga", "dataset": "digits", "scale": "smoke"}


def digits(**given):
    return from_config(resolve(SMOKE | given).config)


@pytest.fixture
def nowhere(tmp_path):
    """No data, no network."""
    (tmp_path / "empty").mkdir()
    return data.Access(tmp_path / "empty", tmp_path / "cache", offline=True)


def test_digits():
    made = digits()
    assert made.clients.num_clients == made.config.num_clients == 8
    assert len(made.test.targets) == 200
    assert made.facts["parameters"] == 64 * 100 + 100 + 100 * 10 + 10
    assert made.facts["partition"]["clients"] == 8
    assert made.facts["input_shape"] == [8, 8, 1]
    assert (made.facts["classes"], made.facts["stand_in"]) == (10, False)
    batch = made.clients.batch(jax.random.key(0), 3)
    assert batch.inputs.shape == (made.config.batch_size, 8, 8, 1)


def test_facts_are_json():
    facts = digits(algo="cafga").facts
    assert json.loads(json.dumps(facts)) == facts


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_algorithm_can_be_built_by_its_defaults(algo):
    for scale, setting in (("small", "2"), ("small", "hafed"), ("smoke", "2")):
        given = {"algo": algo, "dataset": "quadratic", "scale": scale}
        made = from_config(resolve(given | {"setting": setting}).config)
        assert made.algorithm.options.num_clients == made.config.num_clients
        assert made.facts["gradients_per_round"] >= made.config.local_steps


@pytest.mark.parametrize("setting", ["1", "2", "3", "4", "hafed", "fedcluster"])
def test_every_setting_deals_digits(setting):
    for scale in ("paper", "small", "smoke"):
        made = digits(algo="fedavg", setting=setting, scale=scale)
        assert made.facts["partition"]["smallest"] >= 1


def test_problems_with_a_known_optimum():
    for dataset in ("quadratic", "logistic"):
        made = digits(dataset=dataset)
        loss, _ = made.task.loss(
            np.zeros(made.config.dimension, np.float32), (), made.test, None, False
        )
        assert float(loss) > made.facts["minimum"]
        assert made.facts["partition"] is made.facts["classes"] is None


def test_gaussians():
    made = digits(algo="hafed", dataset="gaussians", scale="small")
    assert made.facts["parameters"] == 2 * 10 + 10 + 10 * 2 + 2
    assert made.algorithm.recipe.full_batch
    with pytest.raises(ValueError, match=r"num_clients = 3.*set num_clients = 2"):
        digits(dataset="gaussians", num_clients=3)


def test_text(monkeypatch):
    roles = [
        data.shakespeare.Role(f"u{i}", "play", f"S{i}", "To be or not. " * 90)
        for i in range(9)
    ]
    monkeypatch.setattr(data, "load_roles", lambda access: roles)
    given = {"dataset": "shakespeare", "test_samples": 7}
    for partition in ("dirichlet", "grouped"):
        made = digits(**given, partition=partition)
        assert made.test.inputs.shape == (7, 80)
        assert made.facts["input_dtype"] == "int32"
    with pytest.raises(ValueError, match=r"num_clients = 8.*num_clients = 9"):
        digits(**given, partition="natural")
    natural = digits(**given, partition="natural", num_clients=9, clustering="similar")
    assert natural.clients.num_clients == 9
    with pytest.raises(ValueError, match=r"partition = 'iid'.*dirichlet, natural"):
        digits(**given, partition="iid")


def test_femnist_is_of_its_writers(monkeypatch):
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (60, 28, 28, 1), dtype=np.uint8)
    labels, writers = random.integers(0, 62, 60), np.arange(60) // 5
    femnist = data.Dataset(
        *("femnist", images, labels, images[:9], labels[:9]),
        num_classes=62,
        train_clients=writers,
    )
    monkeypatch.setattr(data, "load", lambda name, access: femnist)
    given = {"dataset": "femnist", "algo": "fedavg"}
    made = digits(**given)
    assert (made.config.partition, made.clients.num_clients) == ("natural", 8)
    held = [data.partition.members(made.clients.assignment, i) for i in range(8)]
    assert all(len(set(writers[samples])) == 1 for samples in held)
    assert len({writers[samples[0]] for samples in held}) == 8
    joined = digits(**given, partition="grouped", num_clients=4)
    assert joined.clients.assignment.sizes.tolist() == [15] * 4
    assert digits(**given, partition="iid").clients.num_clients == 8
    with pytest.raises(ValueError, match=r"num_clients = 14.*of 12 clients.*most 12"):
        digits(**given, num_clients=14)


def test_data_that_was_asked_for_is_not_replaced(nowhere):
    config = resolve({"algo": "afga", "dataset": "cifar10"}).config
    with pytest.raises(data.DataError, match=r"cifar10 is neither prepared.*data_dir"):
        from_config(config, nowhere)


def test_an_open_configuration():
    with pytest.raises(ValueError, match=r"leaves dataset, num_clients.*resolve"):
        from_config(Config())


def test_theory_of_the_papers_settings():
    # SPEC: .995 > .091, .873 > .091 in Setting 2; HA-Fed .805 > .204.
    given = {"scale": "paper", "num_clients": 50, "participation": 0.1}
    one = digits(**given, rounds=120)
    held = one.facts["theory"]
    assert one.facts["rho"] == pytest.approx(0.995, abs=5e-4)
    assert held["ρ ≤ M/(M+N)"]["right"] == pytest.approx(5 / 55)
    assert not held["ρ ≤ M/(M+N)"]["holds"]
    assert held["R ≥ 𝓘·M"] == {"holds": True, "left": 120, "right": 120}
    clustered = digits(algo="cafga", num_clusters=5, **given).facts
    assert clustered["rho"] == pytest.approx(0.873, abs=5e-4)
    assert clustered["theory"]["ρ_max ≤ m/(m+n)"]["right"] == pytest.approx(1 / 11)
    partial = digits(algo="hafed_partial", setting="hafed", scale="paper").facts
    assert partial["rho"] == pytest.approx(0.805, abs=5e-4)
    found = partial["theory"]
    assert found["ρ_max ≤ 1/(2√(n−m))"]["right"] == pytest.approx(0.204, abs=5e-4)
    # 500 > 48·8 holds; n = 8 > K = 4.
    assert found["T > τ·M"] == {"holds": True, "left": 500, "right": 384}
    assert found["n > K"]["holds"]
    everyone = digits(algo="hafed", setting="hafed", scale="paper").facts["theory"]
    assert everyone == {"T > τ·N": {"holds": False, "left": 500, "right": 48 * 32}}
    assert digits(algo="fedavg").facts["theory"] == {}


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [2.0, 2.0, 2.0]),
        ("cosine", [2.0, 1.0, 2 * (1 + np.cos(np.pi * 5 / 6)) / 2]),
        ("linear", [2.0, 1.0, 2 / 6]),
        ("step", [2.0, 1.0, 0.5]),
    ],
    ids=["constant", "cosine", "linear", "step"],
)
def test_schedules(schedule, expected):
    made = digits(
        lr_schedule=schedule, lr_decay=0.5, rounds=6, local_lr=2.0, server_lr=2.0
    )
    for name in ("local_lr", "server_lr"):
        rate = getattr(made.algorithm.options, name)
        seen = [float(rate(r)) if callable(rate) else rate for r in (0, 3, 5)]
        np.testing.assert_allclose(seen, expected, rtol=1e-6)


def test_the_period_of_steps():
    made = digits(lr_schedule="step", lr_decay_every=1, rounds=6, local_lr=1.0)
    assert float(made.algorithm.options.local_lr(2)) == pytest.approx(0.01)


def test_clusterings(tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(["north", "south"] * 4))
    given = digits(algo="cafga", clustering=str(labels), participation=0.5)
    assert given.algorithm.recipe.clustering.sizes.tolist() == [4, 4]
    major = digits(algo="cafga", clustering="major_class", rho_cluster=0.5)
    assert major.algorithm.recipe.clustering.num_clusters == 2
    similar = digits(algo="cafga", clustering="similar", participation=1.0)
    assert similar.algorithm.recipe.clustering.num_clusters == 2
    with pytest.raises(ValueError, match=r"nothing.txt cannot be read.*one label"):
        digits(algo="cafga", clustering=str(tmp_path / "nothing.txt"))
    with pytest.raises(ValueError, match=r"clustering = 'similar' looks at the labels"):
        digits(algo="cafga", dataset="quadratic", clustering="similar")


def test_major_classes_are_those_of_the_partition():
    made = digits(
        algo="cafga",
        partition="major_class",
        rho_device=0.8,
        clustering="major_class",
        rho_cluster=1.0,
        num_clients=20,
        num_clusters=10,
        participation=0.5,
    )
    major = made.clients.assignment.major_class
    members = made.algorithm.recipe.clustering.members
    assert all(len({int(major[i]) for i in cluster}) == 1 for cluster in members)


def test_topologies(tmp_path):
    file = tmp_path / "ring.csv"
    np.savetxt(file, topology.ring(8), delimiter=",")
    read = digits(topology=str(file)).facts["rho"]
    assert read == pytest.approx(digits(topology="ring").facts["rho"], abs=1e-9)
    wanted = digits(topology="unbalanced_complete", topology_rho=0.125)
    assert wanted.facts["rho"] == pytest.approx(0.125, abs=1e-9)
    first, second = (digits(topology="random", topology_seed=i) for i in (0, 1))
    kernel = first.algorithm.recipe.mixing.kernels[0]
    assert isinstance(kernel, kernels.Matrix)
    other = second.algorithm.recipe.mixing.kernels[0]
    assert not np.array_equal(kernel.weights, other.weights)
    with pytest.raises(ValueError, match=r"topology_rho = 0.5.*random"):
        digits(topology="ring", topology_rho=0.5)
    file.write_text("a,b\n")
    with pytest.raises(ValueError, match=r"ring.csv.*matrix of numbers"):
        digits(topology=str(file))


def test_fastest_weights():
    made = digits(topology="chain", topology_weights="fastest")
    # Boyd et al., Fastest mixing Markov chain on a path, 2006: ρ = cos(π/n).
    assert made.facts["rho"] == pytest.approx(np.cos(np.pi / 8), abs=2e-3)
    plain = digits(topology="chain", topology_weights="named").facts["rho"]
    assert plain == digits(topology="chain").facts["rho"] > made.facts["rho"]
    for name, message in (
        (None, "topology = None is no graph"),
        ("matchings", "'matchings' is no graph"),
        ("exponential", "'exponential' is directed.*hypercube"),
    ):
        with pytest.raises(ValueError, match=message):
            digits(topology=name, topology_weights="fastest")


@pytest.mark.parametrize("clusters", [1, 2])
def test_neighbours_by_label_are_of_the_runs_own_data(clusters):
    given = {"algo": "cafga", "num_clusters": clusters, "active": 2}
    made = digits(topology="label_aware", topology_seed=3, **given)
    groups, mixed = made.algorithm.recipe.clustering, made.algorithm.recipe.mixing
    for ids, size, kernel in zip(
        groups.table(), groups.sizes, mixed.kernels, strict=True
    ):
        held = [made.clients.full(int(i)) for i in ids[:size]]
        labels = [np.asarray(b.targets)[np.asarray(b.mask) > 0] for b in held]
        counts = [np.bincount(own, minlength=10) for own in labels]
        expected = designed.label_aware(np.stack(counts), seed=3)
        np.testing.assert_array_equal(kernel.matrix(), expected)


def test_neighbours_by_label_need_labels():
    with pytest.raises(ValueError, match=r"label_aware.*quadratic.*'ring'"):
        from_config(resolve({"topology": "label_aware"}, dataset="quadratic").config)


def test_random_graphs_of_clusters_of_one():
    made = digits(algo="cafga", topology="random", num_clusters=8, active=8)
    assert made.facts["rho"] == 0


def test_a_warning_comes_back_as_a_note():
    made = digits(algo="cafga_adapted", active=2)
    assert any("mixes nothing" in note for note in made.facts["notes"])
    assert isinstance(made.algorithm.recipe.mixing, mixing.AmongSelected)


def test_everybody_computes_is_said():
    notes = digits(algo="dsgd").facts["notes"]
    assert any("all 8 clients compute at every step" in note for note in notes)
    assert digits(algo="fedavg").facts["gradients_per_round"] == 4 * 4
    assert digits(algo="dsgd").facts["gradients_per_round"] == 8 * 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"norm": "batch"}, r"model 'mlp' has no option 'norm'"),
        ({"model": "lstm", "hidden": (4, 4)}, r"hidden = 4,4, but lstm has one"),
        ({"active": 9}, r"active = 9.*<= num_clients = 8"),
        ({"num_clients": 5000}, r"5000 clients.*'overlap'"),
        ({"algo": "cafga", "num_clusters": 3}, r"not divisible by num_clusters = 3"),
        ({"partition": "natural"}, r"'natural', but digits does not say whose"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_does_not_fit_together(given, message):
    with pytest.raises(ValueError, match=message):
        digits(**given)


def test_models_take_their_sizes():
    config = Config(model="convmixer", width=8, depth=2, patch=4, norm="group")
    model = model_of(config, 10)
    assert (model.width, model.depth, model.patch, model.norm) == (8, 2, 4, "group")
    assert (
        model_of(Config(model="alexnet", features=(4,), hidden=(8, 6)), 10).features
        == 4
    )
    assert model_of(Config(model="lstm", hidden=(16,)), 10).hidden == 16
    assert model_of(Config(model="cnn", features=(4, 8)), 10).features == (4, 8)


@pytest.mark.parametrize(
    "given",
    [{"per_client": True}, {"target": 0.5}, {"target": 0.5, "stop_at_target": True}],
    ids=lambda given: list(given)[-1],
)
def test_what_needs_an_accuracy_is_refused_where_there_is_none(given):
    config = resolve({"dataset": "quadratic", "algo": "afga", **given}).config
    with pytest.raises(ValueError, match=f"quadratic has.*leave {next(iter(given))}"):
        from_config(config)


@pytest.mark.parametrize("dataset", ["quadratic", "logistic"])
def test_a_problem_that_is_too_large_to_be_drawn(dataset):
    config = resolve({"dataset": dataset, "num_clients": 10**10}).config
    with pytest.raises(ValueError, match=r"num_clients = 10000000000, .* of memory"):
        from_config(config)


def test_a_seed_that_k_means_does_not_take():
    with pytest.raises(
        ValueError, match="clustering_seed = 1099511627776, but it must"
    ):
        digits(algo="cafga", clustering="similar", clustering_seed=2**40)


@pytest.mark.parametrize(
    ("given", "notes"),
    [
        pytest.param({"engine": "span"}, 1, marks=pytest.mark.slow),
        ({}, 1),  # by the rule it is the span engine, too
        pytest.param({"engine": "dense"}, 0, marks=pytest.mark.slow),
        ({"local_steps": 2}, 0),
    ],
    ids=["span", "auto", "dense", "short"],
)
def test_long_planning_is_announced(given, notes, monkeypatch):
    class Planning(Exception):
        """It begins, after what is said."""

    def choose(trainer, *arguments):
        raise Planning

    monkeypatch.setattr("afga_jax.training.trainer.Trainer.choose", choose)
    adapted = SMOKE | {"algo": "afga_adapted", "local_steps": 100_000, **given}
    config, said = resolve(adapted).config, []
    programs = Programs(from_config(config), devices.execution_of(config))
    with pytest.raises(Planning):
        devices.fitting(Training(config, programs), said.append)
    assert len(said) == notes
    assert all("min: take fewer local_steps, or engine=dense" in x for x in said)


def test_liars_by_name():
    attack = digits(attack="label_flip", liars=0.25).algorithm.recipe.attack
    assert attack.share == 0.25
    assert attack.batch is not None
    assert digits(attack="alie", liars=0.0).algorithm.recipe.attack is None


def test_defences_by_name():
    made = digits(aggregator="krum", assumed_liars=1, krum_multi=2)
    assert made.algorithm.recipe.aggregator.least_uploads == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"aggregator": "trimmed_mean"}, "needs assumed_liars"),
        ({"attack": "nan"}, "needs liars"),
        ({"gossip_defence": "clipped"}, "needs assumed_liars"),
        ({"compress_gossip": "top_k"}, "needs compress_ratio"),
        ({"compress_uploads": "sign", "bits": 4}, "bits = 4, but nothing"),
        ({"liars": 0.2}, "nobody says what liars do: set attack"),
        ({"attack": "nan", "liars": 0.2, "attack_scale": 2.0}, "nan has no scale"),
        (
            {"dataset": "quadratic", "attack": "label_flip", "liars": 0.2},
            "quadratic has no classes",
        ),
        ({"aggregator": "norm_clipping"}, "needs clip_radius"),
        ({"clip_radius": 1.0}, "clip_radius = 1.0, but nothing here reads it"),
        ({"aggregator": "median", "krum_multi": 2}, "set aggregator to krum"),
        ({"aggregator": "krum", "assumed_liars": 30}, "at least 33 uploads"),
        ({"algo": "dsgd", "aggregator": "median"}, "without a server nobody uploads"),
    ],
)
def test_defences_that_cannot_be(given, message):
    with pytest.raises(ValueError, match=message):
        digits(**given)
