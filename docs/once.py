"""Shows everything once in the API pages: where it is defined, not where it is listed.

A package lists in `__all__` what its modules define. Where such a module has an entry
of its own in the API pages, the package's entry leaves out what that one shows.
"""

import re
from pathlib import Path

import griffe

_ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)


class Once(griffe.Extension):
    """Takes out of packages what their modules show."""

    def on_package(self, *, pkg: griffe.Module, **kwargs) -> None:
        """Called when the whole package is loaded."""
        entries = listed()
        for path in entries:
            module = pkg[path.removeprefix(f"{pkg.path}.")]
            for name, member in list(module.members.items()):
                if member.is_alias and _parent(member.target_path) in entries:
                    del module.members[name]


def listed() -> set[str]:
    """Modules that have an entry in the API pages."""
    pages = Path(__file__).parent.glob("api/*.md")
    return {name for page in pages for name in _ENTRY.findall(page.read_text())}


def _parent(path: str) -> str:
    return path.rpartition(".")[0]
