"""What is shipped: versions, extras, constraints, and a wheel with the package."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import afga_jax

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Trackers ask for versions of packages that others here do not take.
UNTESTED = {"wandb", "mlflow"}


def constraints():
    """Name and version of every line."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    lines = [line for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in map(_split, lines)}


def _split(line):
    name, separator, version = line.partition("==")
    assert separator, f"{line!r} is not name==version"
    assert version.replace(".", "").replace("post", "").isalnum()
    return name, version


def test_the_version_is_in_one_place():
    """What is built takes it from the package, which the wheel's test looks at."""
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]


def test_extras():
    users = {"gpu", "tpu", "privacy", "datasets"}
    assert set(EXTRAS) == users | UNTESTED | {"test", "notebooks", "docs", "dev"}
    told = (ROOT / "docs" / "commands.md").read_text()
    assert [name for name in EXTRAS if f"`{name}`" not in told] == []
    # Whoever develops has all that the tests, the site and the notebooks need.
    (own,) = [Requirement(r) for r in EXTRAS["dev"] if r.startswith("afga-jax")]
    assert own.extras == {"datasets", "docs", "notebooks", "privacy", "test"}


def test_constraints_fit_the_requirements():
    tested = constraints()
    wanted = [
        Requirement(text)
        for texts in (
            PROJECT["dependencies"],
            *(EXTRAS[name] for name in set(EXTRAS) - UNTESTED),
        )
        for text in texts
    ]
    for one in wanted:
        name = canonicalize_name(one.name)
        if name != "afga-jax":
            assert tested[name] in one.specifier, f"{name}=={tested[name]}, not {one}"


@pytest.mark.slow
def test_pre_commit_formats_what_is_committed(tmp_path):
    """`pre-commit install`, as CONTRIBUTING prints it, then a commit."""
    shutil.copy(ROOT / ".pre-commit-config.yaml", tmp_path)
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "ruff").symlink_to(Path(sys.executable).with_name("ruff"))
    (tmp_path / "crooked.py").write_text("x  =  1\n")
    user = ["-c", "user.name=n", "-c", "user.email=e"]
    git = ["git", "-C", str(tmp_path), *user]
    subprocess.run([*git, "init", "-q"], check=True)
    _run("-m", "pre_commit", "install", cwd=tmp_path)
    subprocess.run([*git, "add", "crooked.py", ".pre-commit-config.yaml"], check=True)
    done = subprocess.run([*git, "commit", "-qm", "m"], capture_output=True, text=True)
    assert "ruff format" in done.stderr + done.stdout
    assert done.returncode != 0
    assert (tmp_path / "crooked.py").read_text() == "x = 1\n"


@pytest.mark.slow
def test_wheel_holds_the_package(tmp_path):
    """That it works outside the repository is tried by `make wheel`."""
    source = tmp_path / "source"
    kept = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "afga_jax", source / "afga_jax", ignore=kept)
    (source / "experiments").mkdir()
    (source / "experiments" / "__init__.py").touch()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    # Empty: the build would warn where the environment forbids it to write bytecode.
    bytecode = {"PYTHONDONTWRITEBYTECODE": ""}
    built = _run("-m", "build", "--no-isolation", cwd=source, **bytecode)
    said = built.stdout + built.stderr
    assert "warning" not in said.lower(), said
    (wheel,) = (source / "dist").glob("*.whl")
    _check_content(wheel)


def _check_content(wheel):
    names = {Path(name) for name in zipfile.ZipFile(wheel).namelist()}
    tops = {name.parts[0] for name in names}
    about = f"afga_jax-{afga_jax.__version__}.dist-info"
    assert tops == {"afga_jax", about}
    shipped = {name for name in names if name.parts[0] == "afga_jax"}
    package = (ROOT / "afga_jax").rglob("*")
    wanted = {
        path.relative_to(ROOT)
        for path in package
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == wanted
    assert Path("afga_jax/py.typed") in shipped


def _run(*arguments, cwd=None, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done
