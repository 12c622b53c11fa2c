"""What is shown while a run goes on."""

import io
from pathlib import Path

import pytest

import run_files
from afga_jax.runs.progress import Display
from afga_jax.runs.record import Run
from afga_jax.runs.report import STAND_IN
from afga_jax.runs.series import Series

FACTS = {"parameters": 7510, "notes": ["something to know"]}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def row(round, seed=0, **more):
    values = {"train_loss": 0.5, "test_loss": 0.25, "test_accuracy": 0.75 + 0.1 * seed}
    return {"seed": seed, "round": round, "seconds": 12.3, **values, **more}


def shown(error, evaluations=9, stand_in=False, **options):
    """A short run, told to a display; what it wrote as lines."""
    out = io.StringIO()
    display = Display(out=out, error=error, **options)
    config = run_files.CONFIG.replace(dataset="digits", model="mlp")
    display.begin(config, FACTS, Path("runs/here"), 0)
    display.first(1, 2.5, 10.0)
    display.advanced(1, 0.5)
    display.evaluated([row(2), row(2, seed=1)])
    display.advanced(1, 0.5)
    display.close()
    seeds = [{"final_accuracy": 0.75}, {"final_accuracy": 0.85}]
    summary = {"seeds": seeds, "first_round_at_target": 2.5, "wall_seconds": 75.0}
    rows = [row(number) for number in range(1, evaluations + 1)]
    facts = {**FACTS, "stand_in": stand_in}
    display.end(Run(config.to_dict(), rows, summary, facts, Path("runs/here")))
    return out.getvalue().splitlines()


def test_without_a_terminal_there_is_a_line_per_evaluation():
    error = io.StringIO()
    assert shown(error) == [
        "afga on digits: 8 clients, 7 rounds, mlp of 7,510 parameters, cpu; runs/here",
        "compiled in 10.0 s; 2.5 s per round: 6 more take about 15 s",
        "round    2  train loss 0.5000 ± 0.0000  test loss 0.2500 ± 0.0000  "
        "accuracy 80.00 ± 7.07 %  12 s",
        "final accuracy 80.00 ± 7.07 %, the mean of the last five evaluations; target "
        "at round 2.5; 1 min 15 s; runs/here",
    ]
    assert error.getvalue() == "note: something to know\n"


@pytest.mark.parametrize(
    ("evaluations", "said"),
    [
        (1, "from its only evaluation"),
        (3, "the mean of the last three evaluations"),
        (6, "the mean of the last five evaluations"),
    ],
)
def test_the_last_line_counts_evaluations(evaluations, said):
    assert f" %, {said}; " in shown(io.StringIO(), evaluations)[-1]


def test_the_last_line_says_that_digits_stood_in():
    last = shown(io.StringIO(), stand_in=True)[-1]
    assert last.endswith(f"runs/here; {STAND_IN}")


def test_a_bar_counts_every_round_once():
    """From the first round, which was timed before there was a bar, to the last."""
    error = Terminal()
    display = Display(out=io.StringIO(), error=error)
    display.begin(run_files.CONFIG.replace(model="mlp"), FACTS, Path("runs/here"), 2)
    display.first(4, 2.5, 10.0)
    for rounds in (2, 2, 1):
        display.advanced(rounds, 0.5)
    display.close()
    last = error.getvalue().rstrip().rpartition("\r")[2]
    assert last.startswith("round 7/7 |")


def test_on_a_terminal_there_is_a_bar():
    error = Terminal()
    lines = shown(error)
    assert not any(line.startswith("round") for line in lines)
    last = error.getvalue().rstrip().rpartition("\r")[2]
    assert last.startswith("round 2/7 |")
    assert "left, loss=0.500, accuracy=80.00 ± 7.07 %" in last


def test_quiet_says_only_notes():
    error = Terminal()
    assert shown(error, quiet=True) == []
    assert error.getvalue() == "note: something to know\n"


@pytest.mark.parametrize("accuracy", [None, 0.5])
def test_a_task_without_accuracy(accuracy):
    out = io.StringIO()
    display = Display(out=out, error=io.StringIO())
    display.evaluated([row(2, test_accuracy=accuracy)])
    assert ("accuracy" in out.getvalue()) == (accuracy is not None)


def series_of(error, runs, label="afga"):
    """Some of three runs of four rounds, shown as one."""
    config = run_files.CONFIG.replace(rounds=4)
    with Series([4, 4, 4], error=error) as series:
        for number in runs:
            if number is None:
                series.skip()
                continue
            display = series.next(label)
            display.begin(config, FACTS, Path("runs/here"), 0)
            display.first(2, 0.1, 0.1)
            display.advanced(2, 0.5)
            display.evaluated([row(2)])
            display.advanced(number, 0.5)
            display.say("a line of a run's own")
            display.close()
    return error.getvalue()


def test_several_runs_have_one_bar():
    text = series_of(Terminal(), [None, 2, 2])
    assert text.count("something to know") == 1
    assert "own" not in text
    assert "run 2 of 3, afga, starting |" in text
    last = text.rstrip().rpartition("\r")[2]
    assert last.startswith("run 3 of 3, afga, round 4/4 |")
    assert last.endswith("00:00 left, 75.00 %")


def test_the_time_left_is_that_of_all_runs(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    error = Terminal()
    series = Series([4, 4, 8], error=error)
    series.skip()  # which says nothing about the pace
    display = series.next("afga")
    display.begin(run_files.CONFIG.replace(rounds=4), FACTS, Path("runs/here"), 2)
    now[0] = 10.0
    display.advanced(1, 0.5)  # a round in ten seconds: nine are left
    series.show("now")
    assert error.getvalue().rstrip().rpartition("\r")[2].endswith("| 01:30 left")
    # One that diverged leaves rounds that nobody waits for.
    series.next("cafga")
    assert error.getvalue().rstrip().rpartition("\r")[2].endswith("| 01:20 left")
    series.__exit__()
    # Two side by side, half of whose rounds are done, and then each on its own.
    with Series([4, 4, 8], error=error) as series:
        now[0] += 10.0
        series.advance(4)
        series.next("afga")
        series.show("now")
    assert error.getvalue().rstrip().rpartition("\r")[2].endswith("| 00:30 left")


def test_without_a_terminal_several_runs_say_only_notes():
    assert series_of(io.StringIO(), [2, 2, 2]) == "note: something to know\n"


def test_a_long_name_leaves_room_for_the_bar():
    text = series_of(Terminal(), [2], label="x" * 60)
    assert f"run 1 of 3, …{'x' * 23}, round" in text
