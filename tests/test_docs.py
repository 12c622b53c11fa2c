"""The site: its pages exist, and the API pages have all that is public."""

import re
from pathlib import Path

import griffe

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


def test_the_api_pages_show_everything_once():
    """A package does not show again what a module with its own entry shows."""
    extensions = griffe.load_extensions(str(DOCS / "once.py"))
    package = griffe.load("afga_jax", search_paths=[ROOT], extensions=extensions)
    shown = []
    for page in (DOCS / "api").glob("*.md"):
        for path in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE):
            module = package[path.removeprefix("afga_jax.")]
            for name, member in module.members.items():
                exported = module.exports is not None and name in module.exports
                if member.is_alias and exported:
                    shown.append(member.target_path)
                elif not member.is_alias and member.kind.value in ("class", "function"):
                    shown.append(member.path)
    assert "afga_jax.algorithms.options.Options" in shown
    assert len(shown) > 100
    assert sorted(path for path in shown if shown.count(path) > 1) == []
    settings = (ROOT / "mkdocs.yml").read_text()
    assert re.search(r"extensions: \[.*docs/once\.py.*\]", settings)
