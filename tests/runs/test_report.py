"""Tables and figures of small hand-written runs."""

import csv
import io

import numpy as np
import pytest
from PIL import Image

from afga_jax.runs import report, settings
from afga_jax.runs.record import Run
from afga_jax.runs.report import figures, results


def made(algo="afga", accuracies=((0.5, 0.6), (0.7, 0.8)), *, facts=None, **given):
    """A run with one row of accuracies for each seed, a round apart."""
    given = {"dataset": "cifar10", "scale": "small", "target": 0.75, **given}
    config = settings.resolve({"algo": algo, **given}).config.to_dict()
    rows = [
        {
            "seed": seed,
            "round": round,
            "test_accuracy": accuracy,
            "test_loss": 1.0 / round,
            "train_loss": 2.0 / round,
            "delta_norm": 0.1,
            "spread": 0.0,
            "gradients_total": 10 * round,
            "uploads_total": 5 * round,
            "gossip_messages_total": 0,
            "bytes_total": 1e9 * round,
            "hours": 0.5 * round,
            "seconds": 3.0 * round,
        }
        for seed, row in enumerate(accuracies)
        for round, accuracy in enumerate(row, 1)
    ]
    return Run(config, rows, {"finished": True}, facts)


def parsed(runs):
    return list(csv.DictReader(io.StringIO(report.table(runs, "csv"))))


def drawn_by(monkeypatch, draw):
    kept = []
    monkeypatch.setattr(figures, "_save", lambda figure, path: kept.append(figure))
    draw()
    return kept[0]


def test_final_accuracy_is_the_mean_of_the_last_five_rounds_over_seeds():
    first, second = np.linspace(0.1, 0.7, 7), np.linspace(0.2, 0.8, 7)
    (row,) = parsed([made(accuracies=(first, second))])
    finals = 100 * np.array([first[-5:].mean(), second[-5:].mean()])
    assert float(row["accuracy"]) == pytest.approx(finals.mean(), rel=1e-12)
    assert float(row["accuracy_std"]) == pytest.approx(finals.std(ddof=1), rel=1e-12)
    assert (row["seeds"], row["rounds"], row["hours"]) == ("2", "7", "3.5")


def test_first_round_at_the_target():
    (row,) = parsed([made(accuracies=((0.1, 0.8, 0.7), (0.1, 0.2, 0.9)))])
    assert (row["round_at_target"], row["seeds_at_target"]) == ("2.5", "2")
    text = report.table([made(accuracies=((0.1, 0.8), (0.1, 0.2)))])
    assert "2 (1 of 2 seeds)" in text
    assert "|      1.00 |" in text  # half an hour for each of two rounds
    assert row["hours_at_target"] == "1.25"
    assert "> 2" in report.table([made(accuracies=((0.1, 0.2),))])


MARKDOWN = """\
| algorithm  |       accuracy, % |      paper, % | round at 75 % | paper's at 78 % | \
h at 75 % | rounds | gradients | sent | simulated h |
| :--------- | ----------------: | ------------: | ------------: | --------------: | \
--------: | -----: | --------: | ---: | ----------: |
| fedamsgrad |     40.00 ± 14.14 | 79.59 ± 0.76* |           > 1 |             154 | \
        – |      1 |        10 | 1 GB |        0.50 |
| cafga …    | **60.00 ± 14.14** | 82.10 ± 0.67* |           > 1 |             112 | \
        – |      1 |        10 | 1 GB |        0.50 |

\\* not at the paper's size and settings. ± is the standard deviation over 2 seeds. \
… still running, or stopped.
"""


def test_markdown():
    slow = made("fedamsgrad", ((0.3,), (0.5,)))
    fast = made("cafga", ((0.5,), (0.7,)))._replace(summary=None)
    assert report.table([slow, fast]) == MARKDOWN


def test_text_for_a_terminal():
    runs = [made("dsgd", ((0.5,), (0.7,))), made("fedprox", ((0.8,), (0.9,)))]
    above, below = report.table(runs, "text").split("\n\n")
    head, first, second = above.splitlines()
    assert head.split("  ")[0] == "algorithm"
    assert not {"rounds", "gradients"} & set(head.split())
    assert len(head) == len(first) == len(second)
    assert second.startswith("fedprox     85.00 ± 7.07")
    assert below.startswith("1 rounds and 10 gradients in each run.\n")
    assert below.endswith("± is the standard deviation over 2 seeds.\n")
    longer = made("fedprox", ((0.8, 0.8), (0.9, 0.9)))
    assert "rounds" in report.table([runs[0], longer], "text").splitlines()[0]


def test_neighbours_that_seeds_do_not_tell_apart():
    best = made("cafga", ((0.90,), (0.92,), (0.94,)))
    near = made("afga", ((0.89,), (0.91,), (0.93,)))
    far = made("fedavg", ((0.50,), (0.51,), (0.52,)))
    broken = made("dsgd")._replace(summary={"finished": False, "diverged_at": 3})
    assert report.ranking([far, near, broken, best]) == "cafga ≈ afga > fedavg"
    # Two standard errors of this difference are 0.0327.
    for mean, sign in ((0.888, "≈"), (0.886, ">")):
        other = made("afga", tuple((mean + d,) for d in (-0.02, 0.0, 0.02)))
        assert report.ranking([best, other]) == f"cafga {sign} afga"
    single = [made("afga", ((0.5,),)), made("fedavg", ((0.6,),))]
    assert report.ranking(single).startswith("A single seed")
    assert report.ranking([best]) == ""


def test_latex_escapes_and_marks_the_best():
    runs = [made("afga_adapted", ((0.5,), (0.5,))), made("fedavg", ((0.3,), (0.3,)))]
    text = report.table(runs, "latex")
    assert (
        r"afga\_adapted & \textbf{50.00 $\pm$ 0.00} & 81.51* & $>$ 1 & 259 & -- &"
        in text
    )
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    cells = [line.count("&") for line in text.splitlines() if "&" in line]
    assert len(set(cells)) == 1


def test_without_accuracy_the_loss_is_shown():
    run = made(accuracies=((None, None),))
    text = report.table([run, made("fedavg", ((None,),))])
    assert "accuracy" not in text
    assert "**0.7500**" in text


def test_a_run_that_has_not_begun_has_an_empty_row(tmp_path):
    run = made(accuracies=())
    (row,) = parsed([run])
    assert (row["accuracy"], row["rounds"]) == ("", "0")
    assert "| – |" in report.table([run]).replace("   ", " ").replace("  ", " ")
    report.curves(run, tmp_path / "curves.png")
    report.comparison([run], tmp_path / "figure.png")


def test_a_run_that_diverged_says_where():
    run = made()._replace(summary={"finished": False, "diverged_at": 3})
    assert "| afga (diverged in round 3) |" in report.table([run])
    (row,) = parsed([run])
    assert (row["diverged_at"], row["accuracy"]) == ("3", "")


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="kind = 'html' is not known"):
        report.table([made()], "html")


def test_only_the_paper_setting_goes_without_a_star():
    plain = made(scale="paper", out="elsewhere", tracker="wandb")
    other = made(scale="paper", topology="complete")
    assert "80.02 ± 2.00 |" in report.table([plain])
    assert "80.02 ± 2.00*" in report.table([other])


def test_gossip_without_resampling_has_its_own_published_number():
    (found,) = results.results([made(resample=False)])
    assert found.paper.source == "AFGA Table 4"
    (found,) = results.results([made("cafga", resample=False)])
    assert found.paper is None


def test_labels_name_what_differs():
    runs = [made(local_lr=1.0), made(local_lr=2.0), made("fedavg")]
    assert results.labels(runs) == ["afga local_lr=1", "afga local_lr=2", "fedavg"]
    assert results.labels([made(), made()]) == ["afga (1)", "afga (2)"]


def test_differing_data_is_named_and_rates_are_not():
    assert report.cautions([made(), made("fedavg", local_lr=0.5)]) == []
    other = made("fedavg", alpha=0.3, partition_seed=1, rounds=7)
    (line,) = report.cautions([made(alpha=0.6), other])
    assert "alpha (0.6, 0.3), partition_seed (0, 1), rounds (100, 7)" in line


def test_stand_in_data_is_said(monkeypatch):
    run = made(facts={"stand_in": True})
    assert report.cautions([run]) == [f"afga: {results.STAND_IN}."]
    assert not report.cautions([made(facts={"stand_in": False})])
    for draw in (
        lambda: report.curves(run, "x.png"),
        lambda: report.comparison([run, made("fedavg")], "x.png"),
    ):
        assert results.STAND_IN in drawn_by(monkeypatch, draw).get_suptitle()


def test_comparison_shows_means_bands_and_costs(monkeypatch):
    runs = [made("fedamsgrad"), made("afga", ((0.2, 0.4), (0.4, 0.6)))]
    figure = drawn_by(monkeypatch, lambda: report.comparison(runs, "x.png"))
    labels = [panel.get_xlabel() for panel in figure.axes]
    assert labels == [
        "round",
        "gradients computed",
        "bytes sent",
        "simulated time, hours",
    ]
    ends = [panel.lines[1].get_xdata()[-1] for panel in figure.axes]
    assert ends == [2, 20, 2e9, 1.0]
    for panel in figure.axes:
        np.testing.assert_allclose(panel.lines[1].get_ydata(), [30, 50])
        band = panel.collections[1].get_paths()[0].vertices[:, 1]
        assert band.max() == pytest.approx(50 + np.sqrt(200))
    assert figure.axes[0].get_ylabel() == "test accuracy, %"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["fedamsgrad", "afga"]


def test_the_legend_stays_inside(monkeypatch):
    runs = [made(local_lr=0.1 * n, seed=n, alpha=0.1 * n) for n in range(1, 12)]
    figure = drawn_by(monkeypatch, lambda: report.comparison(runs, "x.png"))
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
    assert len(figure.legends[0].get_texts()) == 11


def test_a_wide_range_of_costs_is_logarithmic(monkeypatch):
    cheap, dear = made("fedavg"), made("afga")
    for row in dear.metrics:
        row["bytes_total"] *= 100
    runs = [cheap, dear]
    figure = drawn_by(monkeypatch, lambda: report.comparison(runs, "x.png"))
    scales = [panel.get_xscale() for panel in figure.axes]
    assert scales == ["linear", "linear", "log", "linear"]


def test_paper_lines_only_in_the_paper_setting(monkeypatch):
    runs = [made("afga", scale="paper"), made("cafga", scale="small")]
    figure = drawn_by(monkeypatch, lambda: report.comparison(runs, "x.png"))
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["afga", "afga, paper's final", "cafga"]


def test_figures_are_written_and_nothing_global_changes(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    report.curves(made(), tmp_path / "deep" / "curves.png")
    many = [made(local_lr=0.1 * n) for n in range(1, 12)]
    report.comparison(many, tmp_path / "figure.png")
    for path in (tmp_path / "deep" / "curves.png", tmp_path / "figure.png"):
        with Image.open(path) as picture:
            assert min(picture.size) > 900
    assert dict(matplotlib.rcParams) == before
