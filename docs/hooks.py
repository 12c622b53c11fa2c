"""Makes the repository's other pages part of the site, so that links to them work.

Pages of `docs/` link to files beside that folder, such as `../README.md`, as a reader
of the repository needs it, and those link back. The Markdown files of `BESIDE` and the
notebooks, as they were executed, become pages of the site; a link to anything else, a
source file for example, keeps its text only.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File
from nbconvert import MarkdownExporter

ROOT = Path(__file__).parents[1]
BESIDE = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "benchmarks/results/*.md",
    "notebooks/README.md",
)

# Of a link or an image: its text, the file, and the heading. The text may be an image.
_LINK = re.compile(
    r"(!?)\[((?:!\[[^\]]*\]\([^)]*\)|[^\]])*)\]\(([^)#\s]+)(#[^)\s]*)?\)"
)


def on_files(files, config):
    """Adds the pages that are not below `docs/`."""
    for pattern in BESIDE:
        for path in sorted(ROOT.glob(pattern)):
            place = _page(path.relative_to(ROOT).as_posix())
            files.append(File.generated(config, place, abs_src_path=str(path)))
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        for file in _notebook(path, config):
            files.append(file)
    return files


def on_page_markdown(markdown, page, config, files):
    """Turns links between files of the repository into links between pages."""
    here = posixpath.dirname(page.file.src_uri)
    # A notebook's page has no file, but stands in the folder of the same name.
    path = page.file.abs_src_path
    source = Path(path).relative_to(ROOT).parent.as_posix() if path else here

    def rewrite(match):
        image, text, target, anchor = match.groups(default="")
        text = _LINK.sub(rewrite, text)
        if ":" in target:
            return f"{image}[{text}]({target}{anchor})"
        place = posixpath.normpath(posixpath.join(source, target))
        found = files.get_file_from_path(_page(place))
        if found is not None:
            link = posixpath.relpath(found.src_uri, here or ".")
            return f"{image}[{text}]({link}{anchor})"
        # What does not exist stays a link, which is then an error.
        return text if (ROOT / place).exists() else match[0]

    return _LINK.sub(rewrite, markdown)


def _notebook(path, config):
    """A notebook's page, and its pictures."""
    names = {"unique_key": path.stem, "output_files_dir": f"{path.stem}_files"}
    text, resources = MarkdownExporter().from_filename(str(path), resources=names)
    yield File.generated(config, f"notebooks/{path.stem}.md", content=text)
    for name, content in resources["outputs"].items():
        yield File.generated(config, f"notebooks/{name}", content=content)


def _page(place: str) -> str:
    """Where a file of the repository is on the site."""
    if place.startswith("docs/"):
        return place.removeprefix("docs/")
    if place.startswith("notebooks/"):
        return place.replace("README.md", "index.md").replace(".ipynb", ".md")
    return f"repository/{place.replace('README.md', 'readme.md')}"
