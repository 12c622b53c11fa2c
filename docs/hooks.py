"""Makes the repository's other pages part of the site, so that links to them work.

Pages of `docs/` link to files beside that folder, such as `../README.md`, as a reader
of the repository needs it, and those link back. The Markdown files of `BESIDE` become
pages of the site; a link to anything else, such as a source file, keeps its text only.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
BESIDE = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "benchmarks/results/*.md",
    "notebooks/README.md",
)

# Of a link or an image: its text, the file, and the heading.
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files, config):
    """Adds the pages that are not below `docs/`."""
    for pattern in BESIDE:
        for path in sorted(ROOT.glob(pattern)):
            place = _page(path.relative_to(ROOT).as_posix())
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turns links between files of the repository into links between pages."""
    here = posixpath.dirname(page.file.src_uri)
    source = Path(page.file.abs_src_path).relative_to(ROOT).parent.as_posix()

    def rewrite(match):
        image, text, target, anchor = match.groups(default="")
        if ":" in target:
            return match[0]
        place = posixpath.normpath(posixpath.join(source, target))
        found = files.get_file_from_path(_page(place))
        if found is not None:
            link = posixpath.relpath(found.src_uri, here or ".")
            return f"{image}[{text}]({link}{anchor})"
        # What does not exist stays a link, which is then an error.
        return text if (ROOT / place).exists() else match[0]

    return _LINK.sub(rewrite, markdown)


def _page(place: str) -> str:
    """Where a file of the repository is on the site."""
    if place.startswith("docs/"):
        return place.removeprefix("docs/")
    return f"repository/{place.replace('README.md', 'readme.md')}"
