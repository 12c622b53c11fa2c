"""Defaults: complete for every run, each with a source, as the papers print them."""

import dataclasses
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import afga_jax
from afga_jax import ALGORITHMS, Options
from afga_jax.algorithms import FAMILIES
from afga_jax.runs.config import DATASETS, SCALES, SETTINGS, Config, fields
from afga_jax.runs.settings import (
    ROWS,
    SETTING_OF,
    choices,
    decided,
    demo,
    rates,
    resolve,
    stood_in,
)

ROOT = Path(__file__).parents[2]
KNOWN = {one.name for one in fields()}


def paper(algo, setting, dataset="cifar10", **given):
    return resolve(
        {"algo": algo, "setting": setting, "dataset": dataset, "scale": "paper"} | given
    )


@pytest.mark.parametrize(
    ("setting", "clients", "share"),
    [("1", 100, 0.05), ("2", 50, 0.1), ("3", 100, 0.1), ("4", 50, 0.2)],
)
def test_settings_of_afga(setting, clients, share):
    config, sources, _ = paper("cafga", setting)
    assert (config.num_clients, config.participation) == (clients, share)
    assert (config.num_clusters, config.local_steps, config.batch_size) == (5, 24, 50)
    assert (config.rounds, config.target, config.alpha) == (500, 0.78, 0.6)
    assert (config.partition, config.model) == ("dirichlet", "convmixer")
    assert {sources[name] for name in ("num_clients", "rounds")} == {"AFGA §6"}
    # Sizes that are not in the table are the model's own, the papers'.
    assert config.width is config.depth is config.patch is None


def test_other_data_of_afga():
    hundred, text = paper("afga", "1", "cifar100"), paper("afga", "2", "shakespeare")
    assert (hundred.config.rounds, hundred.config.target) == (600, 0.52)
    assert (text.config.local_steps, text.config.target) == (100, 0.52)
    assert text.config.model == "lstm"


def test_setting_of_hafed():
    config = paper("hafed_partial", "hafed", "fashion_mnist").config
    assert (config.num_clients, config.num_clusters) == (32, 4)
    assert (config.participation, config.local_steps) == (0.25, 48)
    assert (config.eps, config.partition, config.model) == (1e-8, "shards", "cnn")
    shards = (config.num_shards, config.shard_size, config.shards_per_client)
    assert shards == (200, 300, 6)


def test_setting_of_fedcluster():
    config = paper("fedcluster", "fedcluster").config
    assert (config.num_clients, config.num_clusters) == (1000, 10)
    assert (config.local_steps, config.batch_size, config.weighting) == (20, 30, "size")
    assert (config.partition, config.client_size) == ("major_class", 500)
    assert config.model == "alexnet"
    alone = paper("sgd", "fedcluster").config
    assert (alone.local_steps, alone.batch_size, alone.local_lr) == (1000, 60, 0.01)


PRINTED = [
    ("2", "cifar10", "convmixer", "fedavg", 0.1, 1.0),
    ("1", "shakespeare", "lstm", "fedavg", 1.0, 1.0),
    ("2", "shakespeare", "lstm", "scaffold", 0.1, 1.0),
    ("2", "cifar10", "convmixer", "fedamsgrad", 1.0, 0.01),
    ("2", "cifar100", "convmixer", "fedadam", 1.0, 0.01),
    ("2", "cifar10", "convmixer", "afga", 2.0, 0.01),
    ("2", "cifar10", "resnet18", "cafga", 2.0, 0.01),
    ("2", "cifar100", "convmixer", "cafga", 1.0, 0.01),
    ("2", "shakespeare", "lstm", "afga", 10.0, 0.01),
    ("hafed", "cifar10", "resnet18", "fedamsgrad", 0.1, 0.0005),
    ("hafed", "cifar10", "resnet18", "hafed_partial", 0.1, 0.001),
    ("hafed", "cifar10", "convmixer", "fedamsgrad", 0.1, 0.001),
    ("hafed", "cifar10", "convmixer", "hafed_partial", 0.1, 0.01),
    ("hafed", "cifar100", "resnet18", "fedamsgrad", 0.1, 0.001),
    ("hafed", "cifar100", "convmixer", "hafed_partial", 1.0, 0.01),
    ("hafed", "fashion_mnist", "convmixer", "fedamsgrad", 0.1, 0.0005),
    ("hafed", "fashion_mnist", "convmixer", "hafed_partial", 0.1, 0.001),
    ("hafed", "fashion_mnist", "cnn", "fedamsgrad", 0.1, 0.01),
    ("hafed", "cifar10", "convmixer", "fedyogi", 0.1, 0.01),
    ("hafed", "cifar10", "convmixer", "fedavg", 0.01, 1.0),
    ("hafed", "cifar10", "convmixer", "damsgrad", 0.001, None),
    ("fedcluster", "cifar10", "alexnet", "fedavg", 0.1, 1.0),
    ("fedcluster", "cifar10", "alexnet", "fedcluster", 0.01, 1.0),
    ("fedcluster", "mnist", "alexnet", "fedavg", 0.05, 1.0),
    ("fedcluster", "mnist", "alexnet", "fedcluster", 0.005, 1.0),
]


@pytest.mark.parametrize(
    ("setting", "dataset", "model", "algo", "local_lr", "server_lr"),
    PRINTED,
    ids=lambda value: str(value),
)
def test_printed_rates(setting, dataset, model, algo, local_lr, server_lr):
    found = rates.find(setting, algo, dataset, model)
    assert found.source == rates.PAPER[setting]
    assert found.local_lr == local_lr
    assert server_lr in (found.server_lr, None)
    resolved = paper(algo, setting, dataset, model=model)
    assert resolved.config.local_lr == local_lr
    assert resolved.sources["local_lr"] == rates.PAPER[setting]


@pytest.mark.parametrize(
    ("run", "source"),
    [
        (("2", "fedams", "cifar10"), "nearest: fedamsgrad on cifar10, AFGA §6"),
        (("2", "afga_adapted", "cifar100"), "nearest: afga on cifar100, AFGA §6"),
        (("hafed", "afga", "cifar10"), "nearest: afga on cifar10, AFGA §6"),
        (("fedcluster", "afga", "mnist"), "nearest: afga on cifar10, AFGA §6"),
        (
            ("hafed", "fedamsgrad", "mnist"),
            "nearest: fedamsgrad on fashion_mnist with cnn, HA-Fed §6",
        ),
        (
            ("hafed", "hafed", "cifar10"),
            "nearest: hafed_partial on cifar10 with convmixer, HA-Fed §6",
        ),
    ],
    ids=lambda value: str(value),
)
def test_the_nearest_is_found_and_said(run, source):
    setting, algo, dataset = run
    resolved = paper(algo, setting, dataset)
    assert resolved.sources["local_lr"] == source
    assert any(source in note and "local_lr" in note for note in resolved.notes)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_run_is_complete_and_sourced(algo):
    needed = ("num_clients", "local_steps", "batch_size", "rounds", "eval_every")
    needed += ("local_lr", "server_lr", "eps", "num_clusters", "checkpoint_every")
    runs = [{"dataset": dataset} for dataset in DATASETS]
    runs += [{"dataset": "digits", "setting": setting} for setting in SETTINGS]
    for run, scale in itertools.product(runs, SCALES):
        config, sources, _ = resolve(run | {"algo": algo, "scale": scale})
        for name in needed:
            assert getattr(config, name) is not None, (run, name)
            assert sources[name]
        assert (config.active is None) != (config.participation is None)


def test_an_algorithm_alone_is_compared_fairly():
    # Whatever the algorithm, the data, the model and who takes part are the same.
    same = ["dataset", "partition", "alpha", "model", "width", "depth", "num_clients"]
    same += ["participation", "batch_size", "local_steps", "rounds", "setting", "scale"]
    for dataset in ("cifar10", "shakespeare", "fashion_mnist", "digits", "quadratic"):
        runs = [resolve({"algo": algo}, dataset=dataset).config for algo in ALGORITHMS]
        for name in same:
            assert len({getattr(run, name) for run in runs}) == 1, (dataset, name)


def test_rows_name_real_fields():
    first = {"algo", "setting", "scale", "dataset", "partition", "model", "clustering"}
    choices_of = {one.name: one.choices for one in fields()}
    choices_of |= {"family": FAMILIES, "theory": ("afga", "hafed")}
    for row in (*SETTING_OF, *ROWS):
        assert row.source
        assert set(row.values) <= KNOWN
        assert set(row.when) <= {*first, "family", "theory"}
        Config(**{k: v for k, v in row.values.items() if v is not None})
        for name, wanted in row.when.items():
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            assert set(wanted) <= set(choices_of[name]), row


@pytest.mark.parametrize(
    ("server", "relative", "eps", "on_digits"),
    [
        (afga_jax.fedamsgrad, "fedamsgrad", 1e-6, 0.01),
        (afga_jax.fedadam, "fedadam", 1e-3, 0.01),
        (lambda rate, *_: afga_jax.average(rate), "fedavg", 1e-8, 1.0),
    ],
    ids=["amsgrad", "adam", "average"],
)
def test_a_new_algorithm_has_the_defaults_of_its_family(
    server, relative, eps, on_digits, registry
):
    @afga_jax.algorithm()
    def mine(options):
        chosen = server(options.server_lr, options.b1, options.b2, options.eps)
        return afga_jax.compose(options, compute="resampled", server=chosen)

    resolved, known = paper("mine", "2"), paper(relative, "2").config
    assert resolved.sources["local_lr"] == f"nearest: {relative} on cifar10, AFGA §6"
    assert resolved.config.eps == known.eps == eps
    assert resolved.config.local_lr == known.local_lr
    assert resolved.config.server_lr == known.server_lr
    assert resolve({"algo": "mine"}, dataset="digits").config.server_lr == on_digits


def test_options_that_all_algorithms_share_are_filled_in():
    resolved = resolve({"algo": "fedadagrad"})
    assert resolved.config.b1 == 0.0
    assert resolved.sources["b1"] == "the algorithm's own default"
    common = {one.name: one.default for one in dataclasses.fields(Options)}
    assert resolved.config.b2 == common["b2"]


@pytest.mark.parametrize(
    ("accelerator", "given", "scale", "notes"),
    [
        (False, {}, "small", 1),
        (True, {}, "paper", 0),
        (False, {"scale": "paper"}, "paper", 0),
        (False, {"dataset": "digits"}, "small", 0),
        (True, {"dataset": "digits"}, "small", 0),
    ],
    ids=["cpu", "accelerator", "asked", "digits", "digits on an accelerator"],
)
def test_scale(accelerator, given, scale, notes):
    resolved = resolve(given | {"algo": "afga"}, accelerator=accelerator)
    assert resolved.config.scale == scale
    said = [note for note in resolved.notes if "--scale=small" in note]
    assert len(said) == notes


def test_the_user_goes_first():
    given = {"local_lr": 0.5, "num_clients": 10, "active": 2, "rounds": 7, "width": 9}
    resolved = resolve({"algo": "cafga", "num_clusters": 2} | given)
    assert {name: getattr(resolved.config, name) for name in given} == given
    assert resolved.config.participation is None
    assert not resolved.sources.keys() & given.keys()


def test_small_cifar():
    config = resolve({"algo": "cafga"}).config
    assert (config.setting, config.num_clients, config.num_clusters) == ("2", 50, 5)
    assert (config.width, config.depth, config.patch) == (64, 4, 4)
    assert (config.rounds, config.local_steps, config.batch_size) == (100, 24, 50)
    assert (config.eps, config.local_lr, config.server_lr) == (1e-6, 2.0, 0.01)
    assert resolve({"algo": "fedamsgrad"}).config.local_lr == 1.0


def test_the_cnn_is_spared_rates_that_do_not_train_it():
    resolved = resolve({"algo": "cafga"}, dataset="fashion_mnist")
    assert (resolved.config.local_lr, resolved.config.server_lr) == (0.1, 0.01)
    assert any("do not train this model" in note for note in resolved.notes)
    mixer = resolve({"algo": "cafga", "model": "convmixer"}, dataset="fashion_mnist")
    assert mixer.config.local_lr == 2.0


def test_clusters_only_where_the_algorithm_has_some():
    assert resolve({"algo": "afga"}).config.num_clusters == 1
    assert resolve({"algo": "hafed"}).config.num_clusters == 5
    assert resolve({"algo": "afga", "num_clusters": 5}).config.num_clusters == 5


def test_another_model_has_its_own_sizes():
    config = resolve({"algo": "afga", "model": "mlp"}).config
    assert config.width is config.patch is None


def test_what_has_no_effect_is_said():
    notes = resolve({"algo": "afga", "mu": 0.1, "partition": "iid", "alpha": 1.0}).notes
    assert "mu has no effect with algo = 'afga'; it needs fedprox." in notes
    assert any(note.startswith("alpha has no effect with partition") for note in notes)
    inside = resolve({"algo": "fedcluster", "inner": "fedprox", "mu": 0.1}).notes
    assert not any("mu has" in note for note in inside)


def test_stand_in_only_where_no_data_set_was_asked_for():
    assert resolve({}).config.stand_in is True
    assert resolve({"dataset": "cifar10"}).config.stand_in is False
    assert resolve({}, dataset="shakespeare").config.stand_in is False
    assert resolve({}, dataset="digits").config.stand_in is False


def test_the_stand_in_keeps_the_users_choices():
    given = {"algo": "cafga", "local_lr": 0.25, "width": 8, "depth": 1, "seed": 3}
    moved = stood_in(resolve(given).config)
    assert (moved.dataset, moved.stand_in, moved.num_clients) == ("digits", True, 20)
    assert {name: getattr(moved, name) for name in given} == given
    assert moved.model == "convmixer"
    plain = stood_in(resolve({"algo": "cafga"}).config)
    assert (plain.model, plain.width) == ("mlp", None)


def test_choices_are_what_was_given():
    given = {
        "algo": "cafga",
        "setting": "1",
        "scale": "small",
        "eps": 1e-4,
        "active": 5,
    }
    assert choices(resolve(given).config) == given


def test_what_the_table_decides():
    assert {"num_clients", "local_lr", "model", "eps"} <= decided()
    assert not {"seed", "out", "algo", "setting", "scale"} & decided()


def test_the_demo_has_the_best_rates_of_its_search():
    """Of the table in the module's text, and none of them at an edge."""
    table = demo.__doc__[demo.__doc__.index("η_l  ") :]
    head, *lines = (line.split() for line in table.strip().splitlines())
    rates = [float(word) for word in head[1:]]
    for algo, *accuracies in lines:
        best = rates[np.argmax([float(word) for word in accuracies])]
        given = {"algo": algo, "dataset": "digits", "setting": "demo"}
        config, sources, _ = resolve(given)
        assert (config.local_lr, config.num_clients, config.alpha) == (best, 40, 0.05)
        assert "settings/demo.py" in sources["local_lr"]
        assert min(rates) < best < max(rates)
    makefile = (ROOT / "Makefile").read_text()
    shown = re.search(r"^demo:.*?--algos=(\S+)", makefile, re.MULTILINE | re.DOTALL)
    assert shown[1].split(",") == [line[0] for line in lines]
