"""All Python of the site's pages runs as printed and does what they say."""

import json
import re
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

import afga_jax
import toy
from afga_jax.gossip import kernels
from reference_cases import SIZES, UNEQUAL

DOCS = Path(__file__).parents[1] / "docs"
OWN_WORK = "guide/your-own-work.md"  # `test_afternoon` runs it
GUIDES = [path.relative_to(DOCS).as_posix() for path in DOCS.glob("guide/*.md")]
PAGES = [
    *sorted(set(GUIDES) - {OWN_WORK}),
    "hard-conditions.md",
    "one-page.md",
    "see.md",
    "test-vectors.md",
    "when-does-gossip-pay.md",
]
KEY = jax.random.key(3)
STEPS = [1, 4, 2, 3, 4, 1, 2, 3, 4]


@pytest.fixture
def registries():
    """What a page registers is gone after the test."""
    kept = [(one, dict(one)) for one in (afga_jax.ALGORITHMS, kernels.KERNELS)]
    yield
    for one, before in kept:
        one.clear()
        one.update(before)


def blocks(page, language):
    pattern = rf"^```{language}\n(.*?)^```"
    return re.findall(pattern, (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def execute(page, only=None):
    """The names that a page's Python defines, all of it or the first blocks."""
    names = {}
    for block in blocks(page, "python")[:only]:
        exec(compile(block, page, "exec"), names)
    return names


@pytest.fixture
def precision():
    """What a page says about precision is forgotten after the test."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.slow
@pytest.mark.usefixtures("registries", "precision")
@pytest.mark.parametrize("page", PAGES)
def test_page_prints_what_it_says(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    execute(page)
    printed = capsys.readouterr().out.split()
    expected = "".join(blocks(page, "text")).split()
    assert expected
    assert len(printed) == len(expected)
    for word, wanted in zip(printed, expected, strict=True):
        if re.fullmatch(r"\d+\.\d+", wanted):
            # Printed with three digits; another machine may round the last one.
            np.testing.assert_allclose(float(word), float(wanted), rtol=0, atol=2e-3)
        else:
            assert word == wanted


def test_no_page_with_python_is_left_out():
    every = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert {page for page in every if blocks(page, "python")} == {*PAGES, OWN_WORK}


def test_one_page_is_short_and_plain():
    given, algorithm, *_ = blocks("one-page.md", "python")
    assert "ring(N)" in algorithm
    lines = (given + algorithm).splitlines()
    assert len([line for line in lines if line.strip()]) <= 60
    imported = [line for line in lines if "afga_jax" in line]
    assert imported == [
        "from afga_jax import clustering, data, fedamsgrad, participation",
        "from afga_jax.keys import batch_key",
    ]


def test_one_page_is_the_notebook():
    path = DOCS.parent / "notebooks" / "00_one_page.ipynb"
    cells = json.loads(path.read_text())["cells"]
    code = ["".join(one["source"]) for one in cells if one["cell_type"] == "code"]
    page = [block.rstrip("\n") for block in blocks("one-page.md", "python")]
    assert code[1 : 1 + len(page)] == page


@pytest.mark.usefixtures("registries", "x64")
def test_the_guides_fednova_is_the_packages():
    made = execute("guide/add-an-algorithm.md", only=3)["nova"]
    options = {"num_clients": 9, "participation": 0.6, "clustering": UNEQUAL}
    options |= {"local_steps": 4, "client_steps": STEPS, "local_lr": 0.3}
    data, after = toy.clients(9, sizes=SIZES), []
    for algorithm in (made, "fednova"):
        built = afga_jax.build(algorithm, toy.logistic(norm=True), **options)
        after.append(jax.jit(built.round)(KEY, built.init(KEY), data))
    chex.assert_trees_all_close(*after, rtol=0, atol=1e-12)


BAD_STEPS = [
    ([1, 2], r"shape \(2,\), but num_clients = 9.*one number for each"),
    ([1.5] * 9, r"type float64.*whole numbers"),
    ([0] + [1] * 8, r"client_steps\[0\] = 0.*>= 1 and <= local_steps = 4"),
    ([4] * 8 + [5], r"client_steps\[8\] = 5.*>= 1 and <= local_steps = 4"),
]


@pytest.mark.parametrize(("steps", "message"), BAD_STEPS, ids=range(len(BAD_STEPS)))
def test_client_steps_that_cannot_be(steps, message):
    options = {"num_clients": 9, "local_steps": 4, "client_steps": steps}
    with pytest.raises(ValueError, match=message):
        afga_jax.build("fedavg", toy.logistic(), **options)
