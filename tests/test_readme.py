"""The README's Python runs as printed."""

import re
from pathlib import Path

import afga_jax

README = Path(__file__).parents[1] / "README.md"


def test_python_blocks(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 2
    assert len([line for line in blocks[0].splitlines() if line]) <= 15
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    accuracies = [float(number) for number in re.findall(r"accuracy (\S+)", printed)]
    assert len(accuracies) == 2
    assert min(accuracies) > 0.7
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "afga.png",
        "fedamsgrad.png",
    ]
    assert afga_jax.ALGORITHMS.pop("lazy_gossip").defaults["local_lr"] == 0.1


def test_it_is_short():
    """At most 900 words outside code; a link's address is no word."""
    text = re.sub(r"```.*?```", "", README.read_text(), flags=re.DOTALL)
    words = re.sub(r"\]\([^)]*\)", "]", text).split()
    assert sum(bool(re.search(r"\w", word)) for word in words) <= 900


def test_every_algorithm_is_in_the_table():
    text = README.read_text()
    for name in afga_jax.ALGORITHMS:
        assert f"`{name}`" in text
