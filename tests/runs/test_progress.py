"""What is shown while a run goes on."""

import io
from pathlib import Path

import pytest

import run_files
from afga_jax.runs.progress import Display
from afga_jax.runs.record import Run

FACTS = {"parameters": 7510, "notes": ["something to know"]}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def row(round, seed=0, **more):
    values = {"train_loss": 0.5, "test_loss": 0.25, "test_accuracy": 0.75 + 0.1 * seed}
    return {"seed": seed, "round": round, "seconds": 12.3, **values, **more}


def shown(error, **options):
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
    display.end(Run(config.to_dict(), [], summary, FACTS, Path("runs/here")))
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


def test_on_a_terminal_there_is_a_bar():
    error = Terminal()
    lines = shown(error)
    assert not any(line.startswith("round") for line in lines)
    last = error.getvalue().rstrip().rpartition("\r")[2]
    assert last.startswith("round 3/7 |")
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
