"""Links between the pages lead somewhere, and to the heading that they name."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "benchmarks/*.md",
        "benchmarks/results/*.md",
        "notebooks/*.md",
        "notebooks/*.ipynb",
    )
    for path in ROOT.glob(pattern)
)
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)>\s]+)>?[^)]*\)")


def text_of(path):
    """The Markdown of a page, or of a notebook's cells, without code."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join(
            "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
        )
    return FENCED.sub("", text)


def anchors(path):
    """What headings can be linked to by."""
    headings = re.findall(r"^#+ +(.+?) *$", text_of(path), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", one).lower() for one in headings]
    return {re.sub(r"[^\w\- ]", "", one).replace(" ", "-") for one in plain}


def test_there_are_pages():
    assert {"README.md", "docs/index.md", "notebooks/README.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    path = ROOT / page
    for link in LINK.findall(CODE.sub("", text_of(path))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        found = (path.parent / target).resolve() if target else path
        assert found.exists(), f"{page} links to {link}, which does not exist"
        assert found.is_relative_to(ROOT), f"{page} links to {link}, outside"
        if anchor and found.suffix in (".md", ".ipynb"):
            assert anchor in anchors(found), f"{page}: {link} has no such heading"


def test_anchors_and_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One `two`, three\n[a](b.md#c)\n```\n[no](no.md)\n```\n")
    assert anchors(page) == {"one-two-three"}
    assert LINK.findall(text_of(page)) == ["b.md#c"]
