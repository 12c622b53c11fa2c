"""Shows the examples of docstrings as code, wherever in a docstring they stand."""

import re

import griffe

# Lines from `>>>` to the next empty one, indented alike.
_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts a fence around each example."""

    def on_object(self, *, obj: griffe.Object, **kwargs) -> None:
        """Called for everything that has a docstring."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The docstring with its examples as blocks of code."""

    def fence(match: re.Match) -> str:
        indent = match[1]
        return f"\n{indent}```pycon\n{match[0]}\n{indent}```"

    return _EXAMPLE.sub(fence, text)
