"""Environments of the peers and of other compilers, one each, with their own versions.

    python -m benchmarks.environments [NAME ...]

Each is a folder `benchmarks/.venv-NAME`, which git ignores. One that cannot be made is
emptied again but for the reason, so that benchmarks can say why a peer
is missing.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).parent
TORCH = "2.13.0"
JAX = "0.10.2"


def _own_dependencies() -> list[str]:
    """What this package needs, for what runs it in another environment."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    return project["dependencies"]


PACKAGES = {
    "torch": (f"torch=={TORCH}", "numpy"),
    "pfl": ("pfl[pytorch]==0.6.0", f"torch=={TORCH}"),
    "flower": ("flwr[simulation]==1.41.0", f"torch=={TORCH}"),
    # Its last release needs functions that later releases of jax took away.
    "fedjax": (
        "fedjax==0.0.17",
        "jax==0.4.30",
        "jaxlib==0.4.30",
        "dm-haiku==0.0.12",
        "optax==0.2.2",
        "chex==0.1.86",
        "numpy<2",
    ),
    # XLA's compilers for GPUs and TPUs, beside what this package needs.
    "accelerators": (
        *("-c", str(HERE.parent / "constraints.txt")),
        f"jax[cuda12,tpu]=={JAX}",
        *_own_dependencies(),
    ),
}
#: Those that take part in benchmarks, made unless others are named.
PEERS = ("torch", "pfl", "flower", "fedjax")
# What must be importable before an environment counts as made.
IMPORTS = {
    "torch": "import torch",
    "pfl": "import pfl.model.pytorch, pfl.algorithm.federated_averaging",
    "flower": "import flwr.simulation, ray, torch",
    "fedjax": "import fedjax",
    "accelerators": "import jax_cuda12_plugin, libtpu, flax, optax",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", default=list(PEERS))
    for name in parser.parse_args().names:
        python, reason = interpreter(name, again=True)
        print(f"{name}: {python or reason}", flush=True)


def interpreter(
    name: str, *, again: bool = False
) -> tuple[pathlib.Path | None, str | None]:
    """The Python of an environment, made if it is missing, or why there is none.

    Args:
      name: One of `PACKAGES`.
      again: Try anew where making it failed before.

    Returns:
      The path and None, or None and the reason.
    """
    if name not in PACKAGES:
        raise ValueError(f"no environment {name!r}; known: {', '.join(PACKAGES)}.")
    folder = HERE / f".venv-{name}"
    python, failed = folder / "bin" / "python", folder / "failed.txt"
    if python.exists():
        return python, None
    if failed.exists() and not again:
        return None, failed.read_text().strip()
    print(f"making {folder.name} with {', '.join(PACKAGES[name])}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    reason = _made(folder, python, name)
    if reason is None:
        return python, None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    failed.write_text(reason + "\n")
    return None, reason


def _made(folder: pathlib.Path, python: pathlib.Path, name: str) -> str | None:
    """Makes an environment; the reason if that fails."""
    steps = (
        [sys.executable, "-m", "venv", folder],
        [python, "-m", "pip", "install", "-q", *PACKAGES[name]],
        [python, "-c", IMPORTS[name]],
    )
    for step in steps:
        done = subprocess.run(
            [str(part) for part in step], capture_output=True, text=True
        )
        if done.returncode:
            return reason_of(done.stderr or done.stdout)
    return None


def reason_of(message: str) -> str:
    """The line of a message that says what went wrong."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line]
    return (errors or lines or ["no message"])[-1][:300]


if __name__ == "__main__":
    main()
