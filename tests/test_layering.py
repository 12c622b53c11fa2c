"""Imports point one way: a module may use only those before it in this list."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "afga_jax"
ORDER = [
    "typing platform",
    "checks keys published gradient memory",
    "topology clustering rows mesh execution",
    "kernels participation corrections local server update_rows",
    "operators",
    "mixing",
    "recipe traffic",
    "client aggregate stencil reach client_blocks",
    "graph",
    "schedule cycle",
    "dense span",
    "rounds",
    "algorithms",
    "planner placement seeds",
    "outline program",
    "models data evaluate ledger engine",
    "train",
    "config",
    "settings",
    "experiment",
    "checkpoint measure record summary",
    "trained",
    "report",
    "__init__",
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names.split()}


def layer_of(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "afga_jax":
                below = [a.name for a in node.names] if len(parts) == 1 else [parts[1]]
                yield from below
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("tensorflow."))


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=layer_of)
def test_imports_point_one_way(path):
    layer = layer_of(path)
    for name in imports(path):
        if name in LEVEL and name != layer:
            assert LEVEL[name] < LEVEL[layer] or layer == "__init__", (
                f"{layer} → {name}"
            )


def test_one_module_asks_for_the_platform():
    """But for layers, which have forms of their own for some of them."""
    asking = [
        layer_of(path)
        for path in PACKAGE.rglob("*.py")
        if "default_backend" in path.read_text() and layer_of(path) != "models"
    ]
    assert asking == ["platform"]
