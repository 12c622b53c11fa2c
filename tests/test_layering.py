"""Imports point one way: a package may use only those above it in this list."""

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "afga_jax"
ORDER = [
    "typing",
    "checks",
    "keys",
    "trees",
    "mesh",
    "population",
    "optimizers",
    "gossip",
    "recipe",
    "rounds",
    "algorithms",
    "data",
    "models",
    "training",
    "runs",
    "testing",
    "__init__",
]


def layer_of(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path):
    """Packages and root modules of ours that a file names, wherever it imports them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "afga_jax":
                yield from parts[1:2] or [a.name for a in node.names]
        elif isinstance(node, ast.Import):
            for name in (a.name.split(".") for a in node.names):
                if name[0] == "afga_jax":
                    yield name[1] if len(name) > 1 else "__init__"


def test_imports_point_one_way():
    for path in PACKAGE.rglob("*.py"):
        layer = layer_of(path)
        for name in imports(path):
            assert name in ORDER, f"{path}: {name} is the root's: name its module"
            assert ORDER.index(name) <= ORDER.index(layer), f"{path}: {layer} → {name}"


def test_the_boxes_are_plain_numpy():
    """Only `draws` knows the package; a runner of tests is needed by nothing."""
    for path in (PACKAGE / "testing").rglob("*.py"):
        named = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                named.add(node.module)
            elif isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
        outside = {name.split(".")[0] for name in named} - sys.stdlib_module_names
        assert "pytest" not in outside
        if path.name != "draws.py":
            assert outside <= {"numpy", "afga_jax"}, path
            inside = {name for name in named if name.startswith("afga_jax")}
            assert all(name.startswith("afga_jax.testing") for name in inside), path


def test_the_root_is_small():
    """A new module belongs into a package."""
    assert len(list(PACKAGE.glob("*.py"))) <= 8


def test_one_module_asks_for_the_platform():
    asking = [
        layer_of(path)
        for path in PACKAGE.rglob("*.py")
        if "default_backend" in path.read_text()
    ]
    assert asking == ["mesh"]
