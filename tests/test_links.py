"""Every page can be reached, says what it is for, and has links that lead somewhere."""

import importlib
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
# Of a link or an image, also of an image that is one.
LINK = re.compile(r"\]\(\s*<?([^)>\s]+)>?[^)]*\)")
# What commands write: tables without a word around them.
WRITTEN = re.compile(r"docs/results/[-./\w]+/(table|prices)\.md|benchmarks/results/")


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


def documents(path, name):
    """Whether a page of the API shows a module, or something that is defined there."""
    shown = re.findall(r"^::: (\S+)$", path.read_text(), re.MULTILINE)
    module, _, own = name.rpartition(".")
    return name in shown or (
        module in shown and hasattr(importlib.import_module(module), own)
    )


def links(page):
    """Files that a page links to, each with the link as it is written."""
    path = ROOT / page
    for link in LINK.findall(CODE.sub("", text_of(path))):
        if not re.match(r"[a-z]+:", link):
            target = link.partition("#")[0]
            yield (path.parent / target).resolve() if target else path, link


def test_there_are_pages():
    assert {"README.md", "docs/index.md", "notebooks/README.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for found, link in links(page):
        assert found.exists(), f"{page} links to {link}, which does not exist"
        assert found.is_relative_to(ROOT), f"{page} links to {link}, outside"
        anchor = link.partition("#")[2]
        if anchor.startswith("afga_jax."):
            assert documents(found, anchor), f"{page}: {link} is not shown there"
        elif anchor and found.suffix in (".md", ".ipynb"):
            assert anchor in anchors(found), f"{page}: {link} has no such heading"


@pytest.mark.parametrize("home", ["README.md", "docs/index.md"])
def test_every_page_can_be_reached(home):
    reached, ahead = set(), [home]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        near = {found.relative_to(ROOT).as_posix() for found, _ in links(page)}
        ahead += near & set(PAGES) - reached
    assert sorted(set(PAGES) - reached) == []


@pytest.mark.parametrize("page", [page for page in PAGES if not WRITTEN.match(page)])
def test_a_page_begins_with_what_it_is_for(page):
    """With a title and then a sentence: no picture, table, list, code or heading."""
    title, *rest = [block for block in text_of(ROOT / page).split("\n\n") if block]
    assert re.fullmatch(r"# .+", title.strip())
    first = next(block for block in rest if not block.startswith("[![Open in Colab]"))
    assert re.match(r"[A-Z*`][^\n]", first), first


def test_anchors_and_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One `two`, three\n[a](b.md#c)\n```\n[no](no.md)\n```\n")
    assert anchors(page) == {"one-two-three"}
    assert LINK.findall(text_of(page)) == ["b.md#c"]
    assert LINK.findall("[![a](b.png)](c.md)") == ["b.png", "c.md"]
    page.write_text("# Page\n\n::: afga_jax.keys\n")
    assert documents(page, "afga_jax.keys")
    assert documents(page, "afga_jax.keys.place_key")
    assert not documents(page, "afga_jax.keys.lost_key")
    assert not documents(page, "afga_jax.trees")
