"""The site: its pages exist, and the API pages have all that is public."""

import re
from pathlib import Path

import afga_jax

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_pages_of_the_menu_exist():
    menu = re.search(r"^nav:\n(.*?)^\w", (ROOT / "mkdocs.yml").read_text(), re.M | re.S)
    pages = re.findall(r"[:-] (\S+\.md)$", menu[1], re.MULTILINE)
    assert "index.md" in pages
    for page in pages:
        # Pages from beside docs/ are put there by docs/hooks.py.
        place = page.removeprefix("repository/").replace("readme.md", "README.md")
        place = place.replace("notebooks/index.md", "notebooks/README.md")
        place = re.sub(r"^(notebooks/\d\w+)\.md$", r"\1.ipynb", place)
        assert (DOCS / page).is_file() or (ROOT / place).is_file(), page
    notebooks = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert notebooks == {re.sub(r".*/|\.md", "", one) for one in pages if "/0" in one}


def test_all_that_is_public_answers_a_question():
    listed = (DOCS / "api" / "index.md").read_text()
    assert [name for name in afga_jax.__all__ if f"`{name}`" not in listed] == []
    pages = {path.name for path in (DOCS / "api").glob("*.md")} - {"index.md"}
    assert {page for page in pages if f"({page}" not in listed} == set()


def test_all_that_is_public_is_documented():
    listed = {
        module
        for page in (DOCS / "api").glob("*.md")
        for module in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
    }
    for name in afga_jax.__all__:
        public = getattr(afga_jax, name)
        module = getattr(public, "__module__", None) or getattr(public, "__name__", "")
        # A plain value, such as the registry, belongs to the package that shows it.
        assert not module or module in listed, f"{name} of {module}"
    for module in listed:
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").is_file() or place.is_dir(), module
