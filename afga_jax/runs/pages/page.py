"""One self-contained HTML file, made from a template and data.

Data go into the file as JSON, in a script element that is never run; the page's own
script puts them into text nodes. So a name is shown as it is, whatever it contains.
The page's policy allows no address: it loads nothing.
"""

import dataclasses
import html
import json
import math
import re
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from afga_jax.runs.record import write_text

# What could end the element, or a line of an older JavaScript; all else is ASCII.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_PART = re.compile(r"\{\{([\w.]+)\}\}")


@dataclasses.dataclass(frozen=True)
class Page:
    """A page, which a notebook shows by itself.

    Attributes:
      html: The whole file.
      height: Height in a notebook, in pixels.
    """

    html: str
    height: int = 900

    def save(self, path: str | Path) -> Path:
        """Writes the file whole or not at all; folders are made.

        Args:
          path: The file's name.

        Returns:
          The path.
        """
        write_text(Path(path), self.html)
        return Path(path)

    def _repr_html_(self) -> str:
        # A frame of its own: its styles and its script do not touch the notebook's.
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts" '
            f'style="width:100%;height:{self.height}px;border:0"></iframe>'
        )


def fill(name: str, content: Any) -> Page:
    """Fills a template.

    Args:
      name: Name of the template, which names the files of `templates` that go into it.
      content: Its data: dataclasses, dictionaries, lists and plain values. NaN and
        infinities become null.
    """
    templates = resources.files(__package__) / "templates"

    def part(file: str) -> str:
        if file == "data":
            return as_json(content)
        return (templates / file).read_text("utf-8")

    # In one pass, so that data which look like a part's name stay data.
    return Page(_PART.sub(lambda found: part(found[1]), part(f"{name}.html")))


def as_json(content: Any) -> str:
    r"""JSON that may stand inside a script element.

    >>> print(as_json({"name": "</script>&\u2028", "loss": float("nan")}))
    {"name":"\u003c/script\u003e\u0026\u2028","loss":null}
    """
    text = json.dumps(_plain(content), allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&]", lambda found: _ESCAPES[found[0]], text)


def rounded(values: Any, digits: int) -> list:
    """Numbers with so many significant digits, to keep a page small.

    >>> rounded([[1 / 3, 12.0]], 3)
    [[0.333, 12.0]]
    """
    return [
        rounded(row, digits) if np.ndim(row) else float(f"{row:.{digits}g}")
        for row in np.asarray(values, float)
    ]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: _plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | None) else str(value)
