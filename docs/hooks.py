"""Makes the repository's other pages part of the site, so that links to them work.

Pages of `docs/` link to files beside that folder, such as `../README.md`, as a reader
of the repository needs it. Markdown files become pages of the site; a link to anything
else, such as a source file, keeps its text only.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
BESIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/**/*.md")

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files, config):
    """Adds the pages that are not below `docs/`."""
    for pattern in BESIDE:
        for path in sorted(ROOT.glob(pattern)):
            place = path.relative_to(ROOT).as_posix()
            if ".venv" not in place:
                # The site's own first page is another one.
                page = File.generated(config, _page(place), abs_src_path=str(path))
                files.append(page)
    return files


def on_page_markdown(markdown, page, config, files):
    """Turns links between files of the repository into links between pages."""
    here = page.file.src_uri
    source = posixpath.relpath(Path(page.file.abs_src_path).as_posix(), ROOT.as_posix())

    def rewrite(match):
        text, target, anchor = match[1], match[2], match[3] or ""
        if ":" in target:
            return match[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        found = files.get_file_from_path(_page(place))
        if found is None:
            if (ROOT / place).exists():
                return text
            return match[0]
        link = posixpath.relpath(found.src_uri, posixpath.dirname(here) or ".")
        return f"[{text}]({link}{anchor})"

    return _LINK.sub(rewrite, markdown)


def _page(place: str) -> str:
    """Where a file of the repository is on the site."""
    if place.startswith("docs/"):
        return place.removeprefix("docs/")
    return f"repository/{place.replace('README.md', 'readme.md')}"
