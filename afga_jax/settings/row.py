"""A row of the table of defaults."""

from typing import Any, NamedTuple


class Row(NamedTuple):
    """Defaults of some runs.

    Attributes:
      source: Where the values are from.
      when: What a run must have; a tuple lists alternatives.
      values: Defaults by the name of the field.
    """

    source: str
    when: dict[str, str | tuple[str, ...]]
    values: dict[str, Any]

    def fits(self, run: dict[str, Any]) -> bool:
        """Whether the run has all that the row asks for."""
        return all(
            run.get(name) in (wanted if isinstance(wanted, tuple) else (wanted,))
            for name, wanted in self.when.items()
        )


def row(source: str, values: dict[str, Any], **when: str | tuple[str, ...]) -> Row:
    """A row as it is written in the tables: the values, then what a run must have."""
    return Row(source, when, values)
