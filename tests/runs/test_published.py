"""The papers' numbers: complete, and by the names that runs use."""

from afga_jax import ALGORITHMS
from afga_jax.models import MODELS
from afga_jax.runs import published
from afga_jax.runs.config import DATASETS, SETTINGS


def test_every_cell_is_there_once():
    by_source = {}
    for one in published.NUMBERS:
        by_source.setdefault(one.source, []).append(one[:4])
    assert {source: len(cells) for source, cells in by_source.items()} == {
        "AFGA Table 1": 16,
        "AFGA Table 2": 16,
        "AFGA Table 3": 16,
        "AFGA Table 5": 8,
        "AFGA Table 8": 5,
        "AFGA Table 6": 8,
        "HA-Fed Table 1": 12,
    }
    assert all(len(set(cells)) == len(cells) for cells in by_source.values())


def test_names_are_those_of_runs():
    for one in (*published.NUMBERS, published.GOSSIP_ONLY):
        assert one.algorithm in ALGORITHMS
        assert one.dataset in DATASETS
        assert one.setting in SETTINGS
        assert one.model in MODELS


def test_cells_by_hand():
    def cell(*asked):
        found = published.lookup(*asked)
        return found.accuracy, found.deviation, found.rounds

    assert cell("fedavg", "cifar10", "1", "convmixer") == (75.57, 1.10, 313)
    assert cell("fedprox", "cifar10", "1", "convmixer") == (75.63, 1.24, None)
    assert cell("scaffold", "cifar100", "2", "convmixer") == (55.12, 1.01, 235)
    assert cell("cafga", "shakespeare", "2", "lstm") == (53.57, 0.02, 91)
    assert cell("feddyn", "cifar10", "2", "resnet18") == (74.15, 2.23, None)
    assert cell("pga", "cifar10", "2", "convmixer") == (80.93, None, 210)
    assert cell("hafed_partial", "cifar10", "hafed", "resnet18") == (84.38, 0.33, None)
    assert cell("fedamsgrad", "fashion_mnist", "hafed", "cnn") == (88.79, 0.16, None)


def test_what_no_paper_ran_has_no_number():
    assert published.lookup("afga", "digits", "2", "mlp") is None
    assert published.lookup("cafga", "cifar10", None, "convmixer") is None


def test_tables_that_disagree_are_all_shown():
    found = published.every("afga", "cifar10", "2", "convmixer")
    assert [(one.source[-1], one.accuracy) for one in found] == [
        ("1", 80.02),
        ("5", 82.61),
        ("8", 82.16),
    ]
