"""What a table or a figure of a paper is made of: data; and a study of our own."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from afga_jax.runs.published import Published
from afga_jax.runs.record import write_text
from afga_jax.runs.report.tables import csv_lines

Values = Mapping[str, Any]

_NOTHING: Values = MappingProxyType({})


class Line(NamedTuple):
    """A row of a table, a curve of a figure: one run.

    Attributes:
      label: The method's name, as the paper has it.
      given: Choices by the names of `Config`; the rest is the setting's.
      published: The paper's number; None: there is none.
      smoke: Choices that only the size `smoke` needs.
    """

    label: str
    given: Values
    published: Published | None = None
    smoke: Values = _NOTHING


def line(
    label: str,
    algo: str,
    dataset: str,
    setting: str,
    model: str,
    published: Published | None = None,
    *,
    smoke: Values = _NOTHING,
    **more: Any,
) -> Line:
    """A line with more choices than these; one that is None is left to the setting."""
    given = {"algo": algo, "dataset": dataset, "setting": setting, "model": model}
    given |= {name: value for name, value in more.items() if value is not None}
    return Line(label, given, published, smoke)


class Panel(NamedTuple):
    """Lines that are compared with each other.

    Attributes:
      title: Title above the panel.
      lines: The runs, in the paper's order.
    """

    title: str
    lines: tuple[Line, ...]


def panel(title: str, *lines: Line) -> tuple[Panel]:
    """The panels of a table or figure that has one."""
    return (Panel(title, lines),)


class Declaration(NamedTuple):
    """A table or a figure.

    Attributes:
      name: Name on the command line.
      title: What it shows.
      panels: Groups of lines, in the paper's order.
      metrics: What is drawn for each panel, as in `metrics.jsonl`.
      columns: Axes in a row of the figure.
      small: Choices that only the size `small` needs.
      quick: The two lines (panel, line) that the size `smoke` runs.
      accuracies: Accuracies in percent, by scale, to which hours are tabled.
      notes: What a reader must know.
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    metrics: tuple[str, ...] = ("test_accuracy",)
    columns: int = 2
    small: Values = _NOTHING
    quick: tuple[tuple[int, int], ...] = ((0, 0), (0, -1))
    accuracies: Mapping[str, tuple[int, ...]] = _NOTHING
    notes: tuple[str, ...] = ()

    def at(self, scale: str) -> Iterator[tuple[Panel, Line, dict[str, Any]]]:
        """The lines of a scale, each with its panel and its choices."""
        if scale == "smoke":
            for row, column in dict.fromkeys(self.quick):
                chosen = self.panels[row].lines[column]
                yield self.panels[row], chosen, _smoke(chosen)
            return
        more = self.small if scale == "small" else {}
        for panel in self.panels:
            for line in panel.lines:
                yield panel, line, {**line.given, **more, "scale": scale}


def declared(
    paper: str, title: str, panels: tuple[Panel, ...], **more: Any
) -> Declaration:
    """A table or a figure of a paper, named by its number there.

    >>> declared("HA-Fed", "Figure 6: CIFAR-10", ()).name
    'hafed-figure6'
    """
    number, *_ = title.split(":")
    name = f"{paper.replace('-', '')}-{number.replace(' ', '')}".lower()
    return Declaration(name, f"{paper} {title}", panels, **more)


class Study(NamedTuple):
    """A question of our own.

    Attributes:
      name: Name on the command line.
      title: What it shows.
      measure: `(scale, out, cells) -> results`; what can be used again is kept below
        `cells`, and `out` is the folder of all other files.
      row: `result -> its line in results.csv`.
      parts: `results -> parts of the text for the user`, the table first.
      size: `scale -> a line` that says what would be computed.
      draw: `(results, path)` draws the figure; None: there is none.
      seconds: `(scale, cells) -> seconds` that its runs took, which may be older; None:
        as long as `write` takes.
      only: `expression -> Study` of the lines whose `panel, label` it finds; None:
        there are no lines to choose from.
    """

    name: str
    title: str
    measure: Callable[[str, Path, Path], list[Any]]
    row: Callable[[Any], dict[str, Any]]
    parts: Callable[[list[Any]], list[str]]
    size: Callable[[str], str]
    draw: Callable[[list[Any], Path], None] | None = None
    seconds: Callable[..., float] | None = None
    only: "Callable[[str], Study] | None" = None

    def write(self, scale: str, out: Path, kept: Path) -> list[str]:
        """Measures what is not there yet; writes the results and the figure.

        Args:
          scale: The size.
          out: The folder of the files.
          kept: The folder of what can be used again, such as runs.

        Returns:
          The table, and what is to be said of it.
        """
        results = self.measure(scale, out, kept)
        write_text(out / "results.csv", csv_lines([self.row(each) for each in results]))
        if self.draw is not None:
            self.draw(results, out / "figure.png")
        return self.parts(results)


# The same for all names, so that those which ask for the same run share it.
_TINY = {"scale": "smoke", "rounds": 2, "hidden": (8,), "engine": "dense"}


def _smoke(line: Line) -> dict[str, Any]:
    """The line on the built-in digits, in the smallest size that still runs."""
    given = {**line.given, **_TINY}
    if given["dataset"] != "gaussians":
        given |= {"dataset": "digits", "model": "mlp"}
    if given["setting"] in ("1", "2", "3", "4"):
        given["setting"] = "2"
    return given | dict(line.smoke)
