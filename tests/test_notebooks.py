"""Notebooks as they are committed: with their outputs, and nothing of a machine."""

import ast
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from IPython.core.inputtransformer2 import TransformerManager

ROOT = Path(__file__).parents[1]
NAMES = (
    "00_one_page",
    "01_quickstart",
    "02_gossip_and_topology",
    "03_dilemma_of_local_steps",
    "04_write_your_own_algorithm",
    "05_scale",
    "06_when_does_gossip_pay",
)
LARGEST = 400_000  # bytes: readers load them with their pictures
MACHINE = re.compile(r"/(?:home|root|tmp|usr|opt|work|Users|var)/|[A-Z]:\\\\")


def notebook(name):
    return json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text())


def code(name):
    return [cell for cell in notebook(name)["cells"] if cell["cell_type"] == "code"]


def source(cell):
    return "".join(cell["source"])


def written(output):
    """What an output shows, but for pictures."""
    shown = {k: v for k, v in output.get("data", {}).items() if k != "image/png"}
    return "".join(output.get("text", "")) + json.dumps(shown)


def test_all_are_listed():
    found = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert found == sorted(NAMES)
    listed = (ROOT / "notebooks" / "README.md").read_text()
    assert [name for name in NAMES if f"({name}.ipynb)" in listed] == list(NAMES)


@pytest.mark.slow
def test_jupyter_opens_them(tmp_path):
    """`jupyter lab notebooks`, as the page prints it, shows every notebook."""
    assert (
        ".venv/bin/jupyter lab notebooks" in (ROOT / "notebooks/README.md").read_text()
    )
    command = [Path(sys.executable).with_name("jupyter"), "lab", "notebooks"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = ["--no-browser", "--allow-root", "--IdentityProvider.token="]
    given += ["--ip=127.0.0.1", f"--port={port}", "--port-retries=0"]
    own = {
        f"JUPYTER_{kind}_DIR": str(tmp_path) for kind in ("RUNTIME", "CONFIG", "DATA")
    }
    lab = subprocess.Popen(
        [*command, *given],
        cwd=ROOT,
        env={**os.environ, **own, "IPYTHONDIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        # It says that it is running a moment before it listens.
        for _ in range(600):
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.1)
        address = f"http://127.0.0.1:{port}/api/contents"
        with urllib.request.urlopen(address, timeout=60) as answer:
            listed = {entry["name"] for entry in json.load(answer)["content"]}
    finally:
        lab.terminate()
        lab.wait(60)
    assert {f"{name}.ipynb" for name in NAMES} <= listed


@pytest.mark.parametrize("name", NAMES)
def test_was_executed_from_top_to_bottom(name):
    cells = code(name)
    counts = [cell["execution_count"] for cell in cells]
    assert counts == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    for output in outputs:
        # Warnings would be on stderr.
        assert output["output_type"] in ("stream", "display_data", "execute_result")
        assert output.get("name", "stdout") == "stdout"


@pytest.mark.parametrize("name", NAMES)
def test_says_nothing_of_the_machine(name):
    path = ROOT / "notebooks" / f"{name}.ipynb"
    assert path.stat().st_size < LARGEST
    content = notebook(name)
    assert set(content["metadata"]) == {"kernelspec", "language_info"}
    assert content["metadata"]["kernelspec"]["name"] == "python3"
    assert content["metadata"]["language_info"] == {"name": "python"}
    for cell in content["cells"]:
        assert cell["metadata"] == {}
        assert not MACHINE.search(source(cell))
        for output in cell.get("outputs", ()):
            assert not MACHINE.search(written(output))
            assert output.get("metadata", {}) == {}


@pytest.fixture
def first_cell():
    """Runs the cell that all notebooks begin with; returns what it had installed."""
    (cell,) = {source(code(name)[0]) for name in NAMES}

    def run(repository=""):
        shell = SimpleNamespace(lines=[])
        shell.run_line_magic = lambda *words: shell.lines.append(words)
        given = cell.replace('REPOSITORY = ""', f'REPOSITORY = "{repository}"')
        exec(TransformerManager().transform_cell(given), {"get_ipython": lambda: shell})
        return shell.lines

    return run


def test_first_cell_does_nothing_where_the_package_is(first_cell):
    assert first_cell() == []


def test_first_cell_installs_the_package(first_cell, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ((magic, arguments),) = first_cell("https://example.org/afga-jax")
    assert magic == "pip"
    # IPython puts the value of the name in.
    assert arguments.endswith('"afga-jax[notebooks] @ git+{REPOSITORY}"')
    with pytest.raises(ValueError, match=r"REPOSITORY is empty.*name it"):
        first_cell()


@pytest.mark.parametrize("name", NAMES)
def test_colab_follows_the_package(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    repository = project.get("urls", {}).get("Repository", "").removesuffix(".git")
    badge = "https://colab.research.google.com/"
    if repository:
        place = repository.removeprefix("https://github.com/")
        badge += f"github/{place}/blob/main/notebooks/{name}.ipynb"
    assert f"]({badge})" in source(notebook(name)["cells"][0])
    assert f'REPOSITORY = "{repository}"' in source(code(name)[0])


def test_own_algorithm_takes_fifteen_lines():
    cells = [source(cell) for cell in code("04_write_your_own_algorithm")]
    (own,) = [cell for cell in cells if cell.startswith("@afga_jax.algorithm")]
    assert len(own.splitlines()) <= 15
    (statement,) = ast.parse(own).body
    assert isinstance(statement, ast.FunctionDef)
